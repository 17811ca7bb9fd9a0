// The migration to narrow rows, on a million rows of the previous schema: no row is lost or changes its meaning.

import { expect, test } from 'vitest';
import { createOrm, migrate, ourMigrations } from '../../src/database/orm.ts';
import { findBrokenRules } from '../../src/payment-intents/intent-rules.ts';
import { type Cluster, useCluster } from './support/cluster.ts';

const rows = 1_000_000;
let cluster: Cluster;

useCluster((opened) => {
  cluster = opened;
});

/** An intent's values in the form of the previous schema. */
const asBefore = `
  select i.id, i.merchant_id, i.mode::text, i.status::text, n.chain, n.chain_id, n.confirmations_required, i.amount_units,
         n.decimals, n.token_symbol, lower('0x' || encode(n.token_address, 'hex')) as token_address,
         lower('0x' || encode(i.expected_wallet, 'hex')) as expected_wallet, i.lane::text, i.metadata::text,
         (extract(epoch from i.expires_at - i.created_at) / 60)::smallint as expires_in_minutes, i.created_at, i.expires_at,
         i.client_secret_version, i.idempotency_key, i.request_fingerprint
    from payment_intents i join networks n on n.id = i.network`;

test('a million rows keep their values', async () => {
  const before = ourMigrations.findIndex(({ name }) => name === '2026-11-22-narrow-payment-intents');
  await cluster.query('create database before');
  const database = { ...cluster.location, database: 'before' };
  await migrate(database, ourMigrations.slice(0, before));
  const orm = createOrm(database, 2);
  const execute = <T extends object>(sql: string) => orm.em.execute<T[]>(sql);
  await execute(
    `insert into merchants select gen_random_uuid(), 'Merchant ' || i, now() from generate_series(1, 10) i`,
  );
  await execute(`create role service login; grant select, insert on payment_intents to service`);
  await execute(`
    with facts (mode, chain, chain_id, token, confirmations) as (values
      ('mainnet', 'base', 8453, '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913', 10),
      ('mainnet', 'polygon', 137, '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359', 12),
      ('testnet', 'base', 84532, '0x036CbD53842c5426634e7929541eC2318f3dCF7e', 10),
      ('testnet', 'polygon', 80002, '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582', 12)),
    merchant as (select array_agg(id) as ids from merchants)
    insert into payment_intents
    select gen_random_uuid(), ids[i % 10 + 1], mode, 'requires_payment', chain, chain_id, confirmations,
           1 + i * 9007199::bigint, 6, 'USDC', token, '0x' || substr(encode(sha256(i::text::bytea), 'hex'), 1, 40),
           case when i % 3 = 0 then 'manual' else 'sdk' end, json_build_object('order', i, 'text', 'a"\\b{},'), 5 + i % 56,
           created_at, created_at + make_interval(mins => 5 + i % 56), 1 + i % 3,
           case when i % 2 = 0 then 'order-' || i || chain end, case when i % 2 = 0 then sha256(i::text::bytea) end
      from (select i, date_trunc('milliseconds', now() - make_interval(secs => i)) as created_at, f.*, merchant.ids
              from generate_series(0, ${rows / 4 - 1}) i cross join facts f cross join merchant) as series
`);
  await execute(`
    create table kept as select id, merchant_id, mode, status, chain, chain_id, confirmations_required, amount_units, decimals,
           token_symbol, lower(token_address) as token_address, lower(expected_wallet) as expected_wallet, lane,
           metadata::text, expires_in_minutes, created_at, expires_at, client_secret_version, idempotency_key, request_fingerprint
      from payment_intents`);
  const [made] = await execute<{ n: number }>('select count(*)::int as n from kept');
  expect(made?.n).toBe(rows);

  const startedAtMs = performance.now();
  await migrate(database);
  const tookMs = performance.now() - startedAtMs;
  console.log(`${made?.n} rows in ${(tookMs / 1000).toFixed(1)} s`);

  const [difference] = await execute<{ lost: number; other: number }>(`
    select (select count(*)::int from (select * from kept except all ${asBefore}) as lost) as lost,
           (select count(*)::int from (${asBefore} except all select * from kept) as other) as other`);
  expect(difference).toEqual({ lost: 0, other: 0 });
  expect(await findBrokenRules(orm.em, 'all')).toEqual({ read: made?.n, broken: [] });
  // Grants are kept.
  expect(
    await execute(`select has_table_privilege('service', 'payment_intents', 'insert') as granted`),
  ).toEqual([{ granted: true }]);
  await orm.close();
}, 300_000);
