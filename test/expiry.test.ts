import { once } from 'node:events';
import net from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { networkFor } from '../src/contract/chains.ts';
import { formatIdentifier, parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { createExpireSome, createExpiry } from '../src/payment-intents/expire-payment-intents.ts';
import { type Door, doors, type Request } from './support/call.ts';
import { eventsOf } from './support/event-rows.ts';
import { type IntentRows, insertIntents } from './support/intent-rows.ts';
import { choosePorts } from './support/listen.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, startService, type TestService } from './support/service.ts';
import { insertWatchedChain } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const uuidOf = (id: string) => parseIdentifier('pi', id) as string;
const hour = 3_600_000;

/** Moves the creation and the expiry of an intent back, so that it has been overdue for `overdueMs`. */
const makeOverdue = (service: TestService, id: string, overdueMs: number) =>
  service.query(
    `update payment_intents
        set created_at = created_at - expires_at + $2::timestamptz, expires_at = $2::timestamptz
      where id = $1`,
    [uuidOf(id), new Date(Date.now() - overdueMs).toISOString()],
  );

const isWarning = ({ level }: Record<string, unknown>) => level === 'error' || level === 'warn';

describe('a process with all roles', async () => {
  const service = await useService();

  afterEach(() => {
    expect(service.log.filter(isWarning)).toEqual([]);
  });

  const createIntent = async (body: Request = { amount_units: 100 }) =>
    (await service.call('createPaymentIntent', body)).json;
  const get = async (id: string, door: Door = 'json') =>
    (await service.call('getPaymentIntent', { id }, { door })).json;
  const statusOf = async (id: string) => (await get(id)).status;

  test('expires an overdue intent, with one event that has the intent as it is retrieved', async () => {
    const created = await createIntent({
      amount_units: 100,
      chain: 'polygon',
      metadata: { order_id: 'order-1001' },
    });
    const before = await get(created.id);
    const changedAtMs = Date.now();
    await makeOverdue(service, created.id, hour);
    await expect.poll(() => statusOf(created.id), { interval: 20, timeout: 10_000 }).toBe('expired');
    for (const door of doors) {
      const json = await get(created.id, door);
      const { created_at, expires_at, expired_at } = json;
      expect(json).toEqual({ ...before, status: 'expired', created_at, expires_at, expired_at });
      const expiredAtMs = new Date(expired_at as string).getTime();
      expect(expiredAtMs).toBeGreaterThanOrEqual(changedAtMs);
      expect(expiredAtMs).toBeLessThanOrEqual(Date.now());
      const { client_secret, ...snapshot } = json;
      expect(client_secret).toBe(created.client_secret);
      const [event, ...others] = await eventsOf(service, created.id);
      expect(others).toEqual([]);
      expect(event).toMatchObject({
        type: 'payment_intent.expired',
        sequence: 1,
        created_at: new Date(expiredAtMs),
      });
      expect(JSON.parse(event?.data ?? '')).toEqual({ payment_intent: snapshot });
    }
    // Its merchant can read the event.
    const listed = async () => {
      return (await service.call('listEvents', { payment_intent: created.id })).json.events;
    };
    await expect.poll(async () => (await listed()).length, { interval: 20, timeout: 10_000 }).toBe(1);
    expect(await listed()).toMatchObject([{ type: 'payment_intent.expired', sequence: 1 }]);
  });

  test('expires no intent before its time', async () => {
    const [soon, later] = [await createIntent(), await createIntent()];
    await makeOverdue(service, soon.id, -1_500);
    const expiresAtMs = new Date((await get(soon.id)).expires_at).getTime();
    const early: string[] = [];
    const look = async () => {
      const status = await statusOf(soon.id);
      if (Date.now() < expiresAtMs) early.push(status);
      return status;
    };
    await expect.poll(look, { interval: 20, timeout: 10_000 }).toBe('expired');
    expect(new Set(early)).toEqual(new Set(['requires_payment']));
    const json = await get(soon.id, 'grpc');
    expect(new Date(json.expired_at as string).getTime()).toBeGreaterThanOrEqual(expiresAtMs);
    expect(await statusOf(later.id)).toBe('requires_payment');
    expect(await eventsOf(service, later.id)).toEqual([]);
  });
});

describe('expiry', async () => {
  // Only the tests expire intents.
  const service = await useService({ ROLES: 'api' });
  const merchantId = service.merchant.id;
  let unreadable: { id: string; message: string }[];
  let expire: ReturnType<typeof createExpiry>;
  const config = loadConfig({});
  const second = () => createOrm(service.location, 4, config.databaseTimeouts);

  beforeEach(async () => {
    unreadable = [];
    expire = createExpiry(service.database.orm.em, (id, reason) => {
      unreadable.push({ id, message: (reason as Error).message });
    });
    await service.query('truncate payment_intents, events');
  });

  /** Rows that have been overdue for about `overdueMs`, created 30 minutes before their expiry. */
  const insertOverdue = (count: number, columns: IntentRows['columns'] = {}, overdueMs = hour) =>
    insertIntents(service, { merchantId, count, firstAtMs: Date.now() - hour / 2 - overdueMs, columns });

  const counts = async () =>
    Object.fromEntries(
      (
        await service.query<{ status: string; n: number }>(
          'select status, count(*)::int as n from payment_intents group by status',
        )
      ).map(({ status, n }) => [status, n]),
    );

  /** How many events there are for how many intents, and the highest sequence. */
  const events = async () =>
    (
      await service.query(
        `select count(*)::int as events, count(distinct payment_intent)::int as intents, max(sequence) as last,
                string_agg(distinct type, ' ') as type
           from events`,
      )
    )[0];

  test.each(['processing', 'succeeded', 'expired', 'canceled'])(
    'leaves an intent that is %s unchanged',
    async (status) => {
      await insertOverdue(3, { status: `'${status}'`, amount_received_units: '1' });
      const before = await service.query('select * from payment_intents order by id');
      expect(await expire()).toEqual({ expired: 0, lagMs: 0, hasMore: false });
      expect(await service.query('select * from payment_intents order by id')).toEqual(before);
      expect(await events()).toMatchObject({ events: 0 });
    },
  );

  test('expires intents of every network, and none before its time', async () => {
    for (const mode of ['testnet', 'mainnet'] as const) {
      for (const chain of ['base', 'polygon'] as const) {
        const columns = { mode: `'${mode}'`, network: String(networkFor(mode, chain).id) };
        await insertOverdue(2, columns);
        await insertOverdue(1, columns, -60_000);
      }
    }
    expect(await expire()).toMatchObject({ expired: 8, hasMore: false });
    expect(await counts()).toEqual({ expired: 8, requires_payment: 4 });
    expect(await events()).toEqual({ events: 8, intents: 8, last: 1, type: 'payment_intent.expired' });
    const modes = await service.query(
      `select count(*)::int as n from events e join payment_intents i on i.id = e.payment_intent
        where e.mode = i.mode and e.merchant_id = i.merchant_id and e.created_at = i.expired_at`,
    );
    expect(modes).toEqual([{ n: 8 }]);
  });

  test('expires an intent at its deadline, not before', async () => {
    const expireSome = createExpireSome(service.database.orm.em, () => {});
    const { transaction } = createPreparedStatements(service.database.orm.em);
    const deadline = Date.UTC(2026, 0, 1);
    await insertIntents(service, { merchantId, count: 1, firstAtMs: deadline - hour / 2 });
    for (const [early, expired] of [[1, 0] as const, [0, 1] as const]) {
      const until = new Date(deadline - early);
      expect(await transaction((run) => expireSome(run, { network: 3, until }))).toMatchObject({ expired });
    }
  });

  test('leaves the intents of a watched chain to the clock of the chain', async () => {
    await insertWatchedChain(service, {});
    await insertOverdue(1);
    expect(await expire()).toMatchObject({ expired: 0 });
    await service.query('delete from watched_chains');
    expect(await expire()).toMatchObject({ expired: 1 });
  });

  test('runs in batches, the longest overdue first, and reports its lag', async () => {
    await insertOverdue(600);
    const first = await expire();
    expect(first).toMatchObject({ expired: 250, hasMore: true });
    expect(first.lagMs).toBeGreaterThan(hour - 1_000);
    expect(first.lagMs).toBeLessThan(hour + 60_000);
    const [bounds] = await service.query(
      `select max(expires_at) filter (where status = 'expired') < min(expires_at) filter (where status <> 'expired')
         as in_order from payment_intents`,
    );
    expect(bounds).toEqual({ in_order: true });
    expect(await expire()).toMatchObject({ expired: 250, hasMore: true });
    expect(await expire()).toMatchObject({ expired: 100, hasMore: false });
    expect(await expire()).toEqual({ expired: 0, lagMs: 0, hasMore: false });
    expect(await events()).toMatchObject({ events: 600, intents: 600, last: 1 });
  });

  test('in several processes at once, expires each intent once', async () => {
    await insertOverdue(2_000, { network: 'n % 4 + 1' });
    const orms = [second(), second()];
    const workers = orms.flatMap(({ em }) =>
      Array.from({ length: 3 }, () =>
        createExpiry(em, (id) => {
          throw new Error(`${id} cannot be read`);
        }),
      ),
    );
    const expired = await Promise.all(
      workers.map(async (work) => {
        let total = 0;
        for (let done = await work(); done.expired > 0; done = await work()) total += done.expired;
        return total;
      }),
    );
    await Promise.all(orms.map((orm) => orm.close()));
    expect(expired.reduce((a, b) => a + b)).toBe(2_000);
    expect(expired.filter((n) => n > 0).length).toBeGreaterThan(1);
    expect(await counts()).toEqual({ expired: 2_000 });
    expect(await events()).toMatchObject({ events: 2_000, intents: 2_000, last: 1 });
  });

  test('skips intents locked by another transaction', async () => {
    await insertOverdue(3);
    const other = await openClient(service.location);
    await other.query('begin');
    const { rows } = await other.query(
      'select id from payment_intents order by expires_at limit 1 for update',
    );
    expect(await expire()).toMatchObject({ expired: 2 });
    expect(await service.query(`select id from payment_intents where status = 'requires_payment'`)).toEqual(
      rows,
    );
    await other.query('rollback');
    await other.end();
    expect(await expire()).toMatchObject({ expired: 1 });
  });

  test('writes the status and the event together, or neither', async () => {
    await insertOverdue(2);
    await service.query('alter table events rename to elsewhere');
    await expect(expire()).rejects.toThrow('events');
    await service.query('alter table elsewhere rename to events');
    expect(await counts()).toEqual({ requires_payment: 2 });
    expect(await expire()).toMatchObject({ expired: 2 });
    expect(await events()).toMatchObject({ events: 2 });
  });

  test('labels partly paid intents underpaid', async () => {
    const cases: [received: string, labels: string, expected: string[] | undefined][] = [
      ['0', 'null', undefined],
      ['1', 'null', ['underpaid']],
      ['999999', `'{wrong_token,reorged}'`, ['wrong_token', 'reorged', 'underpaid']],
      ['1000000', 'null', undefined],
      ['0', `'{wrong_token}'`, ['wrong_token']],
    ];
    for (const [received, labels] of cases) {
      await insertOverdue(1, {
        amount_received_units: received,
        labels: `${labels}::text[]`,
        event_count: '6',
      });
    }
    expect(await expire()).toMatchObject({ expired: cases.length });
    const rows = await service.query<{ id: string; sequence: number; data: string }>(
      'select i.id, sequence, data from payment_intents i join events e on e.payment_intent = i.id',
    );
    const labelled = await Promise.all(
      rows.map(async ({ id, sequence, data }) => {
        const { json } = await service.call('getPaymentIntent', { id: formatIdentifier('pi', id) });
        expect(JSON.parse(data).payment_intent.labels).toEqual(json.labels);
        expect(sequence).toBe(7);
        return [String(json.amount_received_units), json.labels];
      }),
    );
    const sorted = (list: unknown[][]) => list.map((each) => JSON.stringify(each)).sort();
    expect(sorted(labelled)).toEqual(sorted(cases.map(([received, , labels]) => [received, labels])));
  });

  describe('with rows of a newer version', () => {
    beforeAll(async () => {
      await service.query("alter type payment_lane add value 'express'");
    });

    test('skips each of them, reports it once, and expires the others', async () => {
      await insertOverdue(3, { lane: `'express'` }, 2 * hour);
      await insertOverdue(5);
      expect(await expire()).toMatchObject({ expired: 5 });
      const ids = (
        await service.query<{ id: string }>(
          `select id from payment_intents where lane = 'express' order by id`,
        )
      ).map(({ id }) => formatIdentifier('pi', id));
      expect(unreadable.toSorted((a, b) => (a.id < b.id ? -1 : 1))).toEqual(
        ids.map((id) => ({ id, message: 'the database holds express, which is newer than this process' })),
      );
      await insertOverdue(5);
      expect(await expire()).toMatchObject({ expired: 5 });
      expect(await expire()).toEqual({ expired: 0, lagMs: 0, hasMore: false });
      expect(unreadable).toHaveLength(3);
      expect(await counts()).toEqual({ expired: 10, requires_payment: 3 });
      expect(await events()).toMatchObject({ events: 10 });
    });

    test('skips more of them than fit a batch', async () => {
      await insertOverdue(300, { lane: `'express'` }, 2 * hour);
      await insertOverdue(5);
      for (let done = await expire(); done.hasMore; ) done = await expire();
      expect(await counts()).toEqual({ expired: 5, requires_payment: 300 });
      expect(new Set(unreadable.map(({ id }) => id)).size).toBe(300);
      expect(unreadable).toHaveLength(300);
    });
  });
});

describe('roles', () => {
  let service: TestService;

  afterEach(() => service.close());

  const insertOverdue = (columns: IntentRows['columns'] = {}) =>
    insertIntents(service, {
      merchantId: service.merchant.id,
      count: 1,
      firstAtMs: Date.now() - hour,
      columns,
    });
  const statuses = async () =>
    (await service.query<{ status: string }>('select status from payment_intents order by id')).map(
      ({ status }) => status,
    );

  test('a process without the role expiry expires nothing', async () => {
    service = await startService({ ROLES: 'api,deliveries' });
    await insertOverdue();
    // Nothing signals that nothing will happen. A process with the role looks each second.
    await wait(2_500);
    expect(await statuses()).toEqual(['requires_payment']);
    expect(await service.query('select * from events')).toEqual([]);
  });

  test('a process without the role api opens only the operations port, and expires', async () => {
    const [HTTP_PORT = '', GRPC_PORT = ''] = Object.values(await choosePorts());
    service = await startService({ ROLES: 'expiry', HTTP_PORT, GRPC_PORT });
    expect(service.server.ports).toEqual({ http: 0, grpc: 0, metrics: expect.any(Number) });
    for (const port of [HTTP_PORT, GRPC_PORT]) {
      const socket = net.connect(Number(port), '127.0.0.1');
      const [refusal] = await once(socket, 'error');
      expect(refusal).toMatchObject({ code: 'ECONNREFUSED' });
    }
    for (const path of ['/healthz', '/readyz', '/metrics']) {
      const { status } = await httpRequest(service.operationsUrl + path, { method: 'GET' });
      expect([path, status]).toEqual([path, 200]);
    }
    await insertOverdue();
    await expect.poll(statuses, { interval: 20, timeout: 10_000 }).toEqual(['expired']);
  });

  test('an unreadable row is logged once, and other intents expire', async () => {
    service = await startService();
    await service.query("alter type payment_lane add value 'express'");
    await insertOverdue({ lane: `'express'`, metadata: `'{"order_id":"order-4711"}'` });
    for (let round = 1; round <= 3; round++) {
      await insertOverdue({ network: String(round) });
      await expect
        .poll(statuses, { interval: 20, timeout: 10_000 })
        .toEqual(['requires_payment', ...Array(round).fill('expired')]);
    }
    const [row] = await service.query<{ id: string }>(
      `select id from payment_intents where lane = 'express'`,
    );
    expect(service.log.filter(isWarning)).toEqual([
      expect.objectContaining({
        level: 'error',
        payment_intent: formatIdentifier('pi', row?.id as string),
        message: 'cannot expire a payment intent: its row is unreadable',
        err: expect.objectContaining({
          message: 'the database holds express, which is newer than this process',
        }),
      }),
    ]);
    expect(JSON.stringify(service.log)).not.toContain('order-4711');
  });
});
