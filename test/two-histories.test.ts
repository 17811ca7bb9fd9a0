// A stream whose statements reach two servers: the old primary, which missed the failover, and the new one.

import { create } from '@bufbuild/protobuf';
import { afterAll, expect, test } from 'vitest';
import { WatchEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { beginEpoch, firstEpoch } from '../src/events/event-epochs.ts';
import { createEventFeed } from '../src/events/event-feed.ts';
import { watchEvents } from '../src/events/event-methods.ts';
import { createPositioner } from '../src/events/position-events.ts';
import {
  createEventCursors,
  createEventReader,
  cursorToken,
  streamFilter,
} from '../src/events/read-events.ts';
import { newRequestContext } from '../src/requests/request-context.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { insertEventRows } from './support/event-rows.ts';
import { createTestDatabase } from './support/service.ts';

const merchantId = newUuid();
const mode = 'testnet' as const;
const identity = { merchantId, mode, merchantTypeId: '', keyTypeId: '', payoutWallets: {} };

type Server = Awaited<ReturnType<typeof openServer>>;

async function openServer() {
  const database = await createTestDatabase();
  const { em, close } = createOrm(database, 3);
  afterAll(async () => {
    await close();
    await database.drop();
  });
  const pool = await em.getConnection().getNativeClient();
  const store = async (n: number) => {
    const rows = Array.from({ length: n }, () => ({ merchantId }));
    const ids = await insertEventRows((sql, values) => pool.query(sql, values), rows);
    await createPositioner(em).positionAll();
    return ids;
  };
  return { em, store };
}

/** Opens a stream that continues at a position of the first epoch. Its statements go to these servers. */
function openStream(position: bigint, reads: () => Server, limits: Server, announces: Server) {
  const readerOf = () => createEventReader(reads().em);
  const feed = createEventFeed(announces.em, createLogger('silent', { write() {} }));
  afterAll(() => feed.stop());
  const method = watchEvents(
    { ...readerOf(), behind: (...args) => readerOf().behind(...args) },
    createEventCursors(limits.em),
    feed,
    { keepAliveMs: 20 },
  );
  const after = cursorToken(streamFilter(identity), { epoch: firstEpoch, position });
  const { signal } = new AbortController();
  const call = { context: newRequestContext('internal'), signal, header: new Headers() };
  return method.run(create(WatchEventsRequestSchema, { after }), identity, call);
}

async function openHistories() {
  const before = await openServer();
  const next = await openServer();
  await before.store(3);
  await next.store(3);
  await beginEpoch(next.em);
  return { before, next, later: await next.store(5) };
}

test('after an empty page from the old primary, no event of the new one is skipped', async () => {
  const { before, next, later } = await openHistories();
  let reads = before;
  const seen: string[] = [];
  let sent = 0;
  for await (const { event } of openStream(3n, () => reads, next, next)) {
    sent++;
    if (event !== undefined) seen.push(event.id);
    if (sent === 10) {
      expect(seen).toEqual([]);
      reads = next;
    }
    if (seen.length === later.length || sent === 30) break;
  }
  expect(seen).toEqual(later);
});

test('a reader of lost events is refused, even if the old primary still has them', async () => {
  const { before, next } = await openHistories();
  await before.store(2);
  const readAll = async () => {
    for await (const { event } of openStream(5n, () => next, before, next)) expect(event).toBeUndefined();
  };
  await expect(readAll()).rejects.toMatchObject({ code: 'cursor_expired' });
});

test('an event that may have been removed by retention is not reported as lost in a failover', async () => {
  const { next } = await openHistories();
  const { afterEvent } = createEventCursors(next.em);
  const unknown = formatIdentifier('evt', newUuid(Date.now() - 86_400_000));
  await expect(afterEvent(unknown, identity)).rejects.toThrow(/resume_after/);
  const removed = `insert into removed_events (id, merchant_id, mode, removed_at) values (?, ?, 'testnet', now())`;
  await next.em.execute(removed, [newUuid(Date.now() - 3_600_000), merchantId]);
  await expect(afterEvent(unknown, identity)).rejects.toThrow(/no longer kept/);
});
