import { randomUUID } from 'node:crypto';
import { Migration } from '@mikro-orm/migrations';
import { afterAll, describe, expect, test } from 'vitest';
import type { SocketLocation } from '../src/config/database-location.ts';
import { networks } from '../src/contract/chains.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createOrm, migrate, ourMigrations, pendingMigrations } from '../src/database/orm.ts';
import { findBrokenRules } from '../src/payment-intents/intent-rules.ts';
import { openClient } from './support/open-client.ts';
import { createTestDatabase, startService, type TestService } from './support/service.ts';
import { useService } from './support/use-service.ts';

/** Lists all parts of a schema, as PostgreSQL describes them. */
const schemaQuery = `
  select 'column' as kind, c.relname || '.' || a.attname as name,
         format_type(a.atttypid, a.atttypmod) || case when a.attnotnull then ' not null' else '' end || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') as definition
    from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
   where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and a.attnum > 0 and not a.attisdropped
  union all
  select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace
  union all
  select 'index', indexname, indexdef from pg_indexes where schemaname = 'public'
  union all
  select 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
  union all
  select 'enum', t.typname, string_agg(e.enumlabel, ', ' order by e.enumsortorder) from pg_type t join pg_enum e on e.enumtypid = t.oid group by 1, 2
  union all
  select 'function', proname, pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
  order by 1, 2`;

async function withOrm<T>(
  location: SocketLocation,
  use: (orm: ReturnType<typeof createOrm>) => Promise<T>,
): Promise<T> {
  const orm = createOrm(location, 2);
  try {
    return await use(orm);
  } finally {
    await orm.close();
  }
}

const schemaOf = (location: SocketLocation) => withOrm(location, (orm) => orm.em.execute(schemaQuery));

/** A row that breaks no rule. */
const intentOf = ({ merchant }: TestService) => ({
  id: newUuid(),
  merchant_id: merchant.id,
  mode: 'testnet',
  status: 'requires_payment',
  network: 3,
  amount_units: '1',
  expected_wallet: Buffer.alloc(20, 1),
  lane: 'sdk',
  metadata: '{}',
  created_at: '2026-01-01T00:00:00.000Z',
  expires_at: '2026-01-01T00:30:00.000Z',
  client_secret_version: 1,
  idempotency_key: null as string | null,
  request_fingerprint: null as Buffer | null,
});

function insertInto(service: TestService, table: string, row: Record<string, unknown>) {
  const columns = Object.keys(row);
  return service.query(
    `insert into ${table} (${columns.join()}) values (${columns.map((_, i) => `$${i + 1}`).join()})`,
    Object.values(row),
  );
}

describe('the migrations', async () => {
  const database = await createTestDatabase();
  afterAll(() => database.drop());

  test('create the columns that the entities describe', async () => {
    await withOrm(database, async (orm) => {
      const described = [...orm.getMetadata().getAll().values()].flatMap(({ tableName, props }) =>
        props.map(({ fieldNames: [name], columnTypes: [type], nullable = false }) => ({
          ...{ table: tableName, name, type, nullable },
        })),
      );
      expect(described.length).toBeGreaterThan(100);
      const others = await orm.em.execute(
        `select d.* from json_to_recordset(?) as d ("table" text, name text, type text, nullable boolean)
           left join pg_attribute a on a.attrelid = to_regclass(d."table") and a.attname = d.name
            and a.atttypid = to_regtype(d.type) and a.attnotnull <> d.nullable
          where a.attname is null`,
        [JSON.stringify(described)],
      );
      expect(others).toEqual([]);
    });
  });

  test('run once when started three times at once, and create the same schema again', async () => {
    const before = await schemaOf(database);
    expect(before.length).toBeGreaterThan(60);
    await withOrm(database, (orm) => orm.em.execute('drop schema public cascade; create schema public'));
    const applied = await Promise.all([migrate(database), migrate(database), migrate(database)]);
    expect(applied.map((names) => names.length).sort()).toEqual([0, 0, ourMigrations.length]);
    expect(await schemaOf(database)).toEqual(before);
    expect(await withOrm(database, (orm) => pendingMigrations(orm.em.fork()))).toEqual([]);
  });
});

const running = (name: string, sql: string) => ({
  name,
  class: class extends Migration {
    override up() {
      this.addSql(sql);
    }
  },
});

test('an upgrade takes the time it needs, and commits each migration before the next one begins', async () => {
  const database = await createTestDatabase();
  await withOrm(database, async ({ em }) => {
    for (const name of ['statement_timeout', 'transaction_timeout'])
      await em.execute(`alter database ${database.database} set ${name} = '1s'`);
  });
  const added = [
    running('one', 'create table one (); select pg_sleep(1.2)'),
    running('two', 'select from nowhere'),
  ];
  await expect(migrate(database, [...ourMigrations, ...added])).rejects.toThrow('nowhere');
  expect(await withOrm(database, ({ em }) => em.execute(`select to_regclass('one') as "table"`))).toEqual([
    { table: 'one' },
  ]);
  await database.drop();
});

test('an upgrade runs on a copy by logical replication, whose sequences begin anew', async () => {
  const database = await createTestDatabase();
  await withOrm(database, ({ em }) =>
    em.execute(`select setval(pg_get_serial_sequence('schema_migrations', 'id'), 1)`),
  );
  expect(await migrate(database, [...ourMigrations, running('one', 'create table one ()')])).toEqual(['one']);
  await database.drop();
});

test('an upgrade that waits for a lock lets others pass after three seconds, and tries again', async () => {
  const database = await createTestDatabase();
  const [holder, reader] = [await openClient(database), await openClient(database)];
  await holder.query('begin; select from payment_intents');
  const added = running('one', 'alter table payment_intents add column one int');
  const migrated = migrate(database, [...ourMigrations, added]);
  const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
  await expect.poll(async () => (await reader.query(waiting)).rowCount, { interval: 10 }).toBe(1);
  // Behind the migration, which is behind the holder.
  await reader.query('select from payment_intents');
  await holder.query('rollback');
  expect(await migrated).toEqual(['one']);
  await Promise.all([holder.end(), reader.end()]);
  await database.drop();
});

describe('the database itself refuses', async () => {
  const service = await useService();
  const valid = () => intentOf(service);
  const insert = (table: string, row: Record<string, unknown>) => insertInto(service, table, row);

  const fingerprint = Buffer.alloc(32);

  test('no valid intent', async () => {
    await insert('payment_intents', valid());
    await insert('payment_intents', { ...valid(), idempotency_key: 'k', request_fingerprint: fingerprint });
  });

  test.each<[string, Record<string, unknown>, string]>([
    ['an amount of zero', { amount_units: '0' }, 'amount_units'],
    ['an amount of 2^53', { amount_units: '9007199254740992' }, 'amount_units'],
  ])('%s', async (_, fault, constraint) => {
    await expect(insert('payment_intents', { ...valid(), ...fault })).rejects.toMatchObject({
      code: '23514',
      constraint: `payment_intents_${constraint}_check`,
    });
  });

  test.each([
    ['an unknown mode', { mode: 'sandbox' }],
    ['an unknown status', { status: 'paid' }],
    ['an unknown lane', { lane: 'api' }],
    ['metadata that is not JSON', { metadata: '{' }],
  ])('%s', async (_, fault) => {
    await expect(insert('payment_intents', { ...valid(), ...fault })).rejects.toMatchObject({
      code: '22P02',
    });
  });

  test.each([
    ['update networks set confirmations_required = 1 where id = 1', 'networks is append-only'],
    ['delete from networks where id = 1', 'networks is append-only'],
    ['truncate networks', 'networks is append-only'],
    ['delete from merchants where false', 'merchants are not deleted'],
    ['truncate merchants cascade', 'merchants are not deleted'],
  ])('%s', async (statement, message) => {
    await expect(service.query(statement)).rejects.toThrow(message);
  });

  test('a duplicate idempotency key of one merchant and mode', async () => {
    await insert('payment_intents', {
      ...valid(),
      idempotency_key: 'twice',
      request_fingerprint: fingerprint,
    });
    await expect(
      insert('payment_intents', { ...valid(), idempotency_key: 'twice', request_fingerprint: fingerprint }),
    ).rejects.toMatchObject({ code: '23505', constraint: 'payment_intents_idempotency_key_unique' });
  });

  test('a duplicate id', async () => {
    const row = valid();
    await insert('payment_intents', row);
    await expect(insert('payment_intents', row)).rejects.toMatchObject({ code: '23505' });
  });

  test.each(
    Object.keys({
      merchant_id: 0,
      mode: 0,
      network: 0,
      amount_units: 0,
      expected_wallet: 0,
      metadata: 0,
      created_at: 0,
    }),
  )('a missing %s', async (column) => {
    await expect(insert('payment_intents', { ...valid(), [column]: null })).rejects.toMatchObject({
      code: '23502',
    });
  });

  test('a key hash that is a duplicate or too short, a key of an unknown merchant or mode, an invalid wallet, a nameless merchant', async () => {
    const key = {
      merchant_id: service.merchant.id,
      mode: 'testnet',
      pepper_version: 1,
      key_hash: Buffer.alloc(32, 7),
      hint: 'x',
      created_at: new Date(),
    };
    await insert('api_keys', { id: randomUUID(), ...key });
    const attempts = [
      [{ ...key }, 'api_keys_key_hash_unique'],
      [{ ...key, key_hash: Buffer.alloc(31) }, 'api_keys_key_hash_check'],
      [{ ...key, key_hash: Buffer.alloc(32, 8), merchant_id: randomUUID() }, 'api_keys_merchant_id_foreign'],
      [{ ...key, key_hash: Buffer.alloc(32, 8), mode: 'x' }, 'api_keys_mode_check'],
    ] as const;
    for (const [row, constraint] of attempts) {
      await expect(insert('api_keys', { id: randomUUID(), ...row })).rejects.toMatchObject({ constraint });
    }
    await expect(
      insert('payout_wallets', {
        merchant_id: service.merchant.id,
        mode: 'testnet',
        chain: 'base',
        address: 'vitalik.eth',
        updated_at: new Date(),
      }),
    ).rejects.toMatchObject({ constraint: 'payout_wallets_address_check' });
    await expect(
      insert('merchants', { id: randomUUID(), name: '', created_at: new Date() }),
    ).rejects.toMatchObject({ constraint: 'merchants_name_check' });
  });
});

test('doctor finds broken rows that the database does not refuse', async () => {
  const service = await startService();
  const verify = (newest: number | 'all') => findBrokenRules(service.database.orm.em, newest);
  const insert = (change: Record<string, unknown>) =>
    insertInto(service, 'payment_intents', {
      ...intentOf(service),
      idempotency_key: 'a',
      request_fingerprint: Buffer.alloc(32),
      ...change,
    });
  try {
    expect(await verify('all')).toEqual({ read: 0, broken: [] });
    await insert({});
    expect(await verify('all')).toEqual({ read: 1, broken: [] });
    const fingerprintRule = 'it has a request fingerprint of 32 bytes if it has an idempotency key';
    const faults: [string, Record<string, unknown>][] = [
      ['its merchant is there', { merchant_id: randomUUID() }],
      ['its network is one of its mode', { mode: 'mainnet' }],
      ['its network is one of its mode', { network: 99 }],
      ['it expires 5 to 60 whole minutes after its creation', { expires_at: '2026-01-01T00:04:00Z' }],
      ['it expires 5 to 60 whole minutes after its creation', { expires_at: '2026-01-01T01:01:00Z' }],
      ['it expires 5 to 60 whole minutes after its creation', { expires_at: '2026-01-01T00:30:00.001Z' }],
      ['its metadata is an object', { metadata: '[]' }],
      ['its idempotency key has 1 to 255 characters', { idempotency_key: '' }],
      ['its idempotency key has 1 to 255 characters', { idempotency_key: 'k'.repeat(256) }],
      ['its wallet has 20 bytes', { expected_wallet: Buffer.alloc(19) }],
      [fingerprintRule, { request_fingerprint: Buffer.alloc(31) }],
      [fingerprintRule, { request_fingerprint: null }],
      [fingerprintRule, { idempotency_key: null }],
      ['its client secret is of a key version', { client_secret_version: 0 }],
    ];
    for (const [rule, fault] of faults) {
      const id = newUuid();
      await insert({ id, idempotency_key: 'b', ...fault });
      expect(await verify(1)).toEqual({
        read: 1,
        broken: [{ rule, count: 1, example: formatIdentifier('pi', id) }],
      });
      expect((await verify('all')).broken).toEqual([{ rule, count: 1, example: formatIdentifier('pi', id) }]);
      await service.query('delete from payment_intents where id = $1', [id]);
    }
  } finally {
    await service.close();
  }
});

test('the table of networks matches the code', async () => {
  const database = await createTestDatabase();
  try {
    const rows = await withOrm(database, (orm) =>
      orm.em.execute(
        `select id, mode, chain, chain_id as "chainId", token_symbol as "tokenSymbol", decimals,
                '0x' || encode(token_address, 'hex') as "tokenAddress",
                confirmations_required as "confirmationsRequired"
           from networks order by id`,
      ),
    );
    expect(rows).toEqual(
      networks.map((network) => ({ ...network, tokenAddress: network.tokenAddress.toLowerCase() })),
    );
  } finally {
    await database.drop();
  }
});
