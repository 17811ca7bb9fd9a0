import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SocketLocation } from '../src/config/database-location.ts';
import { createOrm, migrate, ourMigrations, pendingMigrations } from '../src/database/orm.ts';
import { createTestDatabase, startService, type TestService } from './support/service.ts';

/** Everything that a schema is made of, as PostgreSQL writes it down. */
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

describe('the migrations', () => {
  let database: Awaited<ReturnType<typeof createTestDatabase>>;

  beforeAll(async () => {
    database = await createTestDatabase();
  });

  afterAll(() => database.drop());

  test('leave the schema that the entities describe', async () => {
    await withOrm(database, async (orm) => {
      expect(await orm.schema.getUpdateSchemaSQL({ wrap: false, safe: false })).toBe('');
    });
  });

  test('going down leaves nothing, and up again the same schema', async () => {
    const before = await schemaOf(database);
    expect(before.length).toBeGreaterThan(60);
    await withOrm(database, (orm) => orm.migrator.down({ to: 0 }));
    const down = (await schemaOf(database)) as { name: string }[];
    expect(down.filter(({ name }) => !name.startsWith('schema_migrations'))).toEqual([]);
    expect(await withOrm(database, (orm) => pendingMigrations(orm.em.fork()))).toHaveLength(
      ourMigrations.length,
    );
    expect(await migrate(database)).toHaveLength(ourMigrations.length);
    expect(await schemaOf(database)).toEqual(before);
    expect(await withOrm(database, (orm) => pendingMigrations(orm.em.fork()))).toEqual([]);
  });

  test('asked for three times at once, run once', async () => {
    await withOrm(database, (orm) => orm.migrator.down({ to: 0 }));
    const applied = await Promise.all([migrate(database), migrate(database), migrate(database)]);
    expect(applied.map((names) => names.length).sort()).toEqual([0, 0, ourMigrations.length]);
  });
});

describe('the database itself refuses', () => {
  let service: TestService;

  beforeAll(async () => {
    service = await startService();
  });

  afterAll(() => service.close());

  const valid = () => ({
    id: randomUUID(),
    merchant_id: service.merchant.id,
    mode: 'testnet',
    status: 'requires_payment',
    chain: 'base',
    chain_id: 84532,
    confirmations_required: 10,
    amount_units: '1',
    decimals: 6,
    token_symbol: 'USDC',
    token_address: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    expected_wallet: `0x${'1'.repeat(40)}`,
    lane: 'sdk',
    metadata: '{}',
    expires_in_minutes: 30,
    created_at: '2026-01-01T00:00:00.000Z',
    expires_at: '2026-01-01T00:30:00.000Z',
    client_secret_version: 1,
    idempotency_key: null as string | null,
    request_fingerprint: null as Buffer | null,
  });

  const insert = (table: string, row: Record<string, unknown>) => {
    const columns = Object.keys(row);
    return service.query(
      `insert into ${table} (${columns.join()}) values (${columns.map((_, i) => `$${i + 1}`).join()})`,
      Object.values(row),
    );
  };

  const fingerprint = Buffer.alloc(32);

  test('nothing of a valid intent', async () => {
    await insert('payment_intents', valid());
    await insert('payment_intents', { ...valid(), idempotency_key: 'k', request_fingerprint: fingerprint });
  });

  test.each<[string, Record<string, unknown>, string]>([
    ['an amount of zero', { amount_units: '0' }, 'amount_units'],
    ['an amount of 2^53', { amount_units: '9007199254740992' }, 'amount_units'],
    ['an unknown mode', { mode: 'sandbox' }, 'chain_facts'],
    ['an unknown status', { status: 'paid' }, 'status'],
    ['an unknown chain', { chain: 'ethereum' }, 'chain'],
    ['an unknown lane', { lane: 'api' }, 'lane'],
    ['the chain id of another chain', { chain_id: 8453 }, 'chain_facts'],
    [
      'the token of another chain',
      { token_address: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' },
      'chain_facts',
    ],
    ['main money on a test chain', { mode: 'mainnet' }, 'chain_facts'],
    ['no confirmations', { confirmations_required: 0 }, 'confirmations_required'],
    ['another token', { token_symbol: 'DAI' }, 'token'],
    ['other decimals', { decimals: 18 }, 'token'],
    ['no wallet', { expected_wallet: '0x' }, 'expected_wallet'],
    ['four minutes', { expires_in_minutes: 4, expires_at: '2026-01-01T00:04:00.000Z' }, 'expires_in_minutes'],
    ['61 minutes', { expires_in_minutes: 61, expires_at: '2026-01-01T01:01:00.000Z' }, 'expires_in_minutes'],
    ['an expiry of another moment', { expires_at: '2026-01-01T00:30:00.001Z' }, 'expires_at'],
    ['metadata that is no object', { metadata: '[]' }, 'metadata'],
    ['a client secret of no key', { client_secret_version: 0 }, 'client_secret_version'],
    ['an idempotency key without a fingerprint', { idempotency_key: 'x' }, 'idempotency'],
    ['a fingerprint without a key', { request_fingerprint: fingerprint }, 'idempotency'],
    [
      'an empty idempotency key',
      { idempotency_key: '', request_fingerprint: fingerprint },
      'idempotency_key',
    ],
    [
      'a long idempotency key',
      { idempotency_key: 'k'.repeat(256), request_fingerprint: fingerprint },
      'idempotency_key',
    ],
    [
      'a short fingerprint',
      { idempotency_key: 'x', request_fingerprint: Buffer.alloc(31) },
      'request_fingerprint',
    ],
  ])('%s', async (_, fault, constraint) => {
    await expect(insert('payment_intents', { ...valid(), ...fault })).rejects.toMatchObject({
      code: '23514',
      constraint: `payment_intents_${constraint}_check`,
    });
  });

  test('an idempotency key twice, for one merchant and mode', async () => {
    await insert('payment_intents', {
      ...valid(),
      idempotency_key: 'twice',
      request_fingerprint: fingerprint,
    });
    await expect(
      insert('payment_intents', { ...valid(), idempotency_key: 'twice', request_fingerprint: fingerprint }),
    ).rejects.toMatchObject({ code: '23505', constraint: 'payment_intents_idempotency_key_unique' });
  });

  test('an id twice, and a merchant that is not there', async () => {
    const row = valid();
    await insert('payment_intents', row);
    await expect(insert('payment_intents', row)).rejects.toMatchObject({ code: '23505' });
    await expect(insert('payment_intents', { ...valid(), merchant_id: randomUUID() })).rejects.toMatchObject({
      code: '23503',
    });
  });

  test.each(
    Object.keys({ merchant_id: 0, mode: 0, amount_units: 0, expected_wallet: 0, metadata: 0, created_at: 0 }),
  )('no %s', async (column) => {
    await expect(insert('payment_intents', { ...valid(), [column]: null })).rejects.toMatchObject({
      code: '23502',
    });
  });

  test('a key hash twice, of another length, or of an unknown merchant; a wallet that is none; a merchant without a name', async () => {
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
    ).rejects.toMatchObject({
      constraint: 'merchants_name_check',
    });
  });
});
