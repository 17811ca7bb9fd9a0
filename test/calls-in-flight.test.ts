// A service that stops finishes the calls in flight, over every protocol.

import { expect, test } from 'vitest';
import { everyDoor } from './support/call.ts';
import { openClient } from './support/open-client.ts';
import { startService } from './support/service.ts';

test('a call that waits for the database when the service stops is answered', async () => {
  // The reads of one merchant use up to 7 of the 32 connections at once.
  const service = await startService({ DATABASE_POOL: '32' });
  const blocker = await openClient(service.location);
  await blocker.query('begin; lock table events in access exclusive mode');
  const answers = Promise.all(everyDoor.map((door) => service.call('listEvents', {}, { door })));
  const waiting = `select from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and query like 'select e.%'`;
  await expect.poll(() => service.query(waiting)).toHaveLength(everyDoor.length);
  const closing = service.server.close();
  // Waits until the service has begun to stop.
  await expect.poll(async () => (await fetch(`${service.operationsUrl}/readyz`)).status).toBe(503);
  await blocker.query('rollback');
  await blocker.end();
  expect((await answers).map(({ code }) => code)).toEqual(everyDoor.map(() => 'ok'));
  await closing;
  await service.close();
});
