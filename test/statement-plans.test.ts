import { expect, test } from 'vitest';
import { createAuthorizationStore } from '../src/authorizations/authorization-store.ts';
import type { SignedPayment } from '../src/contract/x402.ts';
import { PaymentIntentEntity } from '../src/database/entities/payment-intent.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm, endSessions } from '../src/database/orm.ts';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { keepSums } from '../src/payment-intents/payment-sums.ts';
import { createDeliveries, createDeliveryQueue } from '../src/webhooks/delivery-queue.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { openCalls } from './support/call.ts';
import { insertOf } from './support/intent-rows.ts';
import { openClient } from './support/open-client.ts';
import { startService, type TestService } from './support/service.ts';
import { createMerchantCalls } from './support/settlement.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { nothingInFlight } from './support/webhook-worker.ts';
import { nonceOf } from './support/x402.ts';

/** Counts the rows of tables that sessions have read. A session's counts are complete once it has ended. */
async function rowsRead({ query }: TestService, ...tables: string[]): Promise<number> {
  const of = `select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as n from pg_stat_user_tables where relname = any ($1)`;
  return (await query<{ n: number }>(of, [tables]))[0]?.n ?? 0;
}

test('reads of one merchant leave connections for its creates and for reads of other merchants', async () => {
  const service = await startService({ ROLES: 'api', DATABASE_POOL: '16' });
  const other = await service.newMerchant();
  // Each merchant has its own connections, and both keys are cached before anything waits.
  const calls = [service.merchant, other].map(({ keys }) => openCalls(service, keys.testnet.apiKey));
  for (const { call } of calls) await call('listTransfers');
  const blocker = await openClient(service.location);
  await blocker.query('begin; lock table payment_intents in access exclusive mode');
  const lists = Array.from({ length: 100 }, () =>
    service.call('listPaymentIntents', { lane: 'manual' }).then(({ code }) => code),
  );
  // A quarter of the pool, less one place for other merchants.
  await sessionsWaiting(service, 3);
  // Other tables are not locked. Both calls need a connection, and the second one a turn to read.
  const url = { url: 'https://shop.example/webhooks' };
  expect(await calls[0]?.call('createWebhookEndpoint', url)).toMatchObject({ code: 'ok' });
  expect(await calls[1]?.call('listWebhookEndpoints')).toMatchObject({ code: 'ok' });
  await sessionsWaiting(service, 3);
  await blocker.query('rollback');
  await blocker.end();
  for (const { close } of calls) close();
  expect(new Set(await Promise.all(lists))).toEqual(new Set(['ok']));
  await service.close();
});

test('the planned cost of a page of intents does not depend on the number of intents', async () => {
  const service = await startService({ ROLES: 'api', DATABASE_POOL: '1' });
  await service.query(...insertOf({ merchantId: service.merchant.id, count: 30_000, firstAtMs: Date.now() }));
  await service.query('analyze payment_intents');
  expect((await service.call('listPaymentIntents')).json.payment_intents).toHaveLength(20);
  const { em } = service.served;
  const [{ statement } = { statement: '' }] = await em.execute<{ statement: string }[]>(
    `select statement from pg_prepared_statements where name like 'list_pages_of_payment_intents_%'`,
  );
  const [plan] = await em.execute(`explain (generic_plan) ${statement.replace('$1', '$1::json')}`);
  // From a cost of 100,000 on, PostgreSQL JIT-compiles the statement for each run.
  expect(Number(/cost=\d+\.\d+\.\.(\d+)/.exec(plan?.['QUERY PLAN'])?.[1])).toBeLessThan(2_000);
  await service.close();
});

test('a list reads nothing of the other mode, however many rows that has', async () => {
  const service = await startService({ ROLES: 'api', DATABASE_POOL: '1' });
  const { id } = await service.newMerchant();
  const of = { count: 20_000, firstAtMs: Date.now() - 86_400_000 };
  // By the merchant and the mode alone, a quarter of all rows would match.
  await service.query(...insertOf({ ...of, merchantId: id }));
  const columns = { mode: `'mainnet'` };
  await service.query(
    ...insertOf({ ...of, merchantId: service.merchant.id, firstAtMs: of.firstAtMs + of.count, columns }),
  );
  await service.query(
    `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, position, data)
     select id, merchant_id, mode, 'payment_intent.expired', created_at, id, 1, row_number() over (order by id), '{}' from payment_intents`,
  );
  await service.query('vacuum analyze payment_intents, events');
  // Inserting the events has read each intent. From here on this is counted.
  await service.query('select pg_stat_force_next_flush()');
  const before = await rowsRead(service, 'payment_intents', 'events');
  const lists = [
    ['listPaymentIntents', {}],
    ['listPaymentIntents', { page_size: 100 }],
    ['listPaymentIntents', { lane: 'manual' }],
    ['listEvents', {}],
    ['listEvents', { type: 'payment_intent.canceled' }],
  ] as const;
  for (const [method, request] of lists)
    expect(await service.call(method, request)).toMatchObject({ json: {} });
  await service.server.close();
  await endSessions(service.served);
  expect((await rowsRead(service, 'payment_intents', 'events')) - before).toBeLessThan(1_000);
  await service.close();
});

// PostgreSQL keeps the plan of a prepared statement until its tables have new statistics. A plan made while a
// table was small must also be good when it is large.
test('concurrent retrievals use an index, also in a new database', async () => {
  const service = await startService({ ROLES: 'api' });
  const own = { ROLES: 'api', RATE_LIMIT_CHECKOUT: '0', DATABASE_POOL: '1' };
  const reading = await startService(own, { beside: service });
  const intents = await Promise.all(
    Array.from({ length: 8 }, () => createMerchantCalls(service).createIntent()),
  );
  // As if payers had signed.
  await service.query('update payment_intents set authorizations_count = 1');
  // The first five runs of a statement are planned individually.
  for (let run = 0; run < 10; run++) {
    const asked = intents.flatMap(({ id, client_secret }) => [
      reading.call('getPaymentIntent', { id }),
      reading.call('getCheckout', {}, { apiKey: client_secret }),
      reading.call('listPaymentIntents', { metadata_key: 'order_id', metadata_value: id }),
    ]);
    expect(new Set((await Promise.all(asked)).map(({ code }) => code))).toEqual(new Set(['ok']));
  }
  const planned = await reading.served.em.execute<{ name: string; custom_plans: number }[]>(
    'select name, custom_plans::int from pg_prepared_statements where custom_plans + generic_plans > 5',
  );
  const names = planned.map(({ name }) => name.slice(0, -13)).sort();
  expect(names).toEqual(['find_checkouts', 'find_payment_intents']);
  // After those five the plan is kept: planning again would take longer than running it.
  for (const { name, custom_plans } of planned) expect(custom_plans, name).toBe(5);
  // A session's counts are complete once it has ended.
  await reading.server.close();
  await endSessions(reading.served);
  for (const [table, most] of [
    ['payment_intents', 1],
    ['authorizations', 0],
  ] as const) {
    const scans = async () => {
      const of = 'select seq_scan::int, idx_scan::int from pg_stat_user_tables where relname = $1';
      return (await service.query<{ seq_scan: number; idx_scan: number }>(of, [table]))[0];
    };
    await expect.poll(async () => (await scans())?.idx_scan).toBeGreaterThanOrEqual(80);
    expect((await scans())?.seq_scan, table).toBe(most);
  }
  await service.close();
});

test('giving an event its position costs the same however many events wait, also in a new database', async () => {
  const service = await startService({ ROLES: 'api' });
  await service.query(`alter database ${service.location.database} set plan_cache_mode = force_generic_plan`);
  await service.query('vacuum analyze');
  const insertEvents = (count: number) =>
    service.query(
      `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
       select uuidv7(), md5((n % 200)::text)::uuid, 'testnet', 'payment_intent.expired', now(), gen_random_uuid(), 1, '{}'
         from generate_series(1, $1::int) n`,
      [count],
    );
  await service.query(
    `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
     select gen_random_uuid(), md5(n::text)::uuid, 'testnet', 'https://shop.example', '{*}', true, now() from generate_series(1, 200) n`,
  );
  const orm = createOrm(service.location, 1);
  const { positionAll } = createPositioner(orm.em, createDeliveries);
  // From here on the session keeps the plan.
  await insertEvents(1);
  expect(await positionAll()).toBe(1);
  const count = 20_000;
  await insertEvents(count);
  expect(await positionAll()).toBe(count);
  await endSessions(orm);
  for (const table of ['events', 'webhook_endpoints']) {
    await expect.poll(() => rowsRead(service, table)).toBeGreaterThan(0);
    // Each event is read to take it and to make its deliveries, and some again to find the next merchant.
    expect(await rowsRead(service, table), table).toBeLessThan(5 * count);
  }
  await service.close();
});

test('a claim reads nothing of merchants whose deliveries all wait for their next attempt', async () => {
  const service = await startService({ ROLES: 'api' });
  await service.query(
    `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
     select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'pending', now(),
            now() + interval '1 hour' from generate_series(1, 500)`,
  );
  const claiming = await startService({ ROLES: 'api' }, { beside: service });
  expect(await createDeliveryQueue(claiming.served.em).claim(nothingInFlight)).toEqual([]);
  // A session's counts are complete once it has ended.
  await claiming.server.close();
  await endSessions(claiming.served);
  const scans = async () => {
    const of = `select idx_scan::int as scans from pg_stat_user_tables where relname = 'webhook_deliveries'`;
    return (await service.query<{ scans: number }>(of))[0]?.scans ?? 0;
  };
  await expect.poll(scans).toBeGreaterThan(0);
  expect(await scans()).toBeLessThan(10);
  await service.close();
});

test('storing a signed payment costs the same, however many intents and open authorizations there are', async () => {
  const service = await startService({ ROLES: 'api' });
  await service.query(`alter database ${service.location.database} set plan_cache_mode = force_generic_plan`);
  const storing = await startService({ ROLES: 'api' }, { beside: service });
  const { id } = await createMerchantCalls(service).createIntent();
  const { em } = storing.database.orm;
  const row = await em.fork().findOneOrFail(PaymentIntentEntity, { id: parseIdentifier('pi', id) as string });
  const payment = { from: `0x${'1'.repeat(40)}`, nonce: nonceOf(id), value: 1n, validBefore: 1n };
  const { store } = createAuthorizationStore(em);
  const storeAgain = () => store(row, payment as SignedPayment);
  // From here on the session keeps the plan.
  expect(await storeAgain()).toHaveProperty('row');
  await service.query('delete from authorizations');
  const count = 5_000;
  await service.query(...insertOf({ merchantId: service.merchant.id, count, firstAtMs: Date.now() }));
  await service.query(
    `insert into authorizations (id, merchant_id, mode, payment_intent, network, from_address, nonce, wallet, amount_units,
                                 valid_before, status, created_at)
     select gen_random_uuid(), merchant_id, mode, id, network, '', int4send(amount_units::int), '', 1, expires_at, 'submitted',
            now() from payment_intents`,
  );
  for (let run = 0; run < 10; run++) expect(await storeAgain()).toBeUndefined();
  await storing.server.close();
  await endSessions(storing.database.orm);
  // Inserting the rows above has read each intent, too.
  for (const table of ['authorizations', 'payment_intents']) {
    await expect.poll(() => rowsRead(service, table)).toBeGreaterThan(0);
    expect(await rowsRead(service, table), table).toBeLessThan(3 * count);
  }
  await service.close();
});

test('the sums of an intent are kept from its 1,001st payment on', async () => {
  const service = await startService({ ROLES: 'api' });
  const ids = [];
  for (let i = 0; i < 2; i++)
    ids.push((await service.call('createPaymentIntent', { amount_units: 1 })).json.id);
  await insertTransfers(
    service,
    service.merchant,
    ids.map((paymentIntent) => ({ paymentIntent, amountUnits: 1 })),
  );
  const [few = '', many = ''] = ids.map((id) => parseIdentifier('pi', id));
  const { run } = createPreparedStatements(service.served.em);
  await keepSums(run, [
    { id: few, paymentsCount: 1_000 },
    { id: many, paymentsCount: 1_001 },
  ]);
  expect(await service.query('select payment_intent from payment_sums')).toEqual([{ payment_intent: many }]);
  await service.close();
});
