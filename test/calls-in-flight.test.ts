// A service that stops finishes the calls in flight, over every protocol.

import { createClient } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from '@connectrpc/connect-node';
import pg from 'pg';
import { expect, test, vi } from 'vitest';
import { pgConfigOf } from '../src/config/database-location.ts';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { openEventDoors } from './support/events.ts';
import { startService } from './support/service.ts';

test('a call that waits for the database when the service stops is answered', async () => {
  // Of 32 connections, the reads of one merchant have up to 7 at once.
  const service = await startService({ DATABASE_POOL: '32' });
  const { apiKey } = service.merchant.keys.testnet;
  const baseUrl = service.internalUrl;
  const sessionManager = new Http2SessionManager(baseUrl);
  const doors = openEventDoors(service);
  const transports = [
    createGrpcTransport({ baseUrl, sessionManager }),
    createGrpcWebTransport({ baseUrl, httpVersion: '2', sessionManager }),
    createConnectTransport({ baseUrl, httpVersion: '2', sessionManager }),
  ];
  const calls = [
    ...doors.map((door) => async () => (await door.list({}, apiKey)).code),
    ...transports.map((transport) => async () => {
      const headers = { authorization: `Bearer ${apiKey}` };
      const call = createClient(EventService, transport).listEvents({}, { headers });
      return call.then(() => 'ok', String);
    }),
  ];

  const blocker = new pg.Client(pgConfigOf(service.location));
  await blocker.connect();
  await blocker.query('begin; lock table events in access exclusive mode');
  const answers = Promise.all(calls.map((call) => call()));
  await vi.waitFor(
    async () => {
      const rows = await service.query(
        `select from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock' and query like 'select e.%'`,
      );
      expect(rows).toHaveLength(calls.length);
    },
    { timeout: 10_000 },
  );
  const closing = service.server.close();
  // Until the service has begun to stop.
  await vi.waitFor(async () => {
    const { status } = await fetch(`${service.operationsUrl}/readyz`);
    expect(status).toBe(503);
  });
  await blocker.query('rollback');
  await blocker.end();
  expect(await answers).toEqual(calls.map(() => 'ok'));
  for (const door of doors) door.close();
  sessionManager.abort();
  await closing;
  await service.close();
});
