// Measures the cost of our table's constraints. `pgbench` inserts single rows into the table as it is, into
// one with the same columns and indexes but no constraints, and into one with only the columns.

import { loadByPgbench } from './load.ts';
import { median, onThisMachine, prepareDatabase, publish, table, withSetting } from './setting.ts';

const tables = {
  'payment_intents, as it is': 'payment_intents',
  'its columns and indexes, no rule': 'with_indexes',
  'its columns alone': 'columns_alone',
} as const;

export async function compareSchemas({
  rounds,
  seconds,
}: {
  rounds: number;
  seconds: number;
}): Promise<void> {
  await withSetting(async ({ folder, postgres }) => {
    const { orm, merchantId } = await prepareDatabase(postgres);
    await orm.em.execute('create table columns_alone as select * from payment_intents');
    // This also drops NOT NULL.
    await orm.em.execute('create table with_indexes as select * from payment_intents');
    await orm.em.execute('create unique index on with_indexes (id)');
    await orm.em.execute('create index on with_indexes (merchant_id, mode, id)');
    await orm.em.execute(
      'create unique index on with_indexes (merchant_id, mode, idempotency_key) where idempotency_key is not null',
    );
    const paces = new Map<string, number[]>();
    for (let round = 0; round < rounds; round++) {
      const order = Object.entries(tables);
      for (const [name, tableName] of round % 2 === 0 ? order : order.reverse()) {
        await orm.em.execute('checkpoint');
        const pace = await loadByPgbench(folder, postgres, insertInto(tableName, merchantId), 64, seconds);
        if (pace === undefined) throw new Error('pgbench is not installed: apt-get install postgresql');
        paces.set(name, [...(paces.get(name) ?? []), pace.perSecond]);
        console.error(`${name}: ${Math.round(pace.perSecond)}/s`);
      }
    }
    const [size] = await orm.em.execute<{ bytes: number }[]>(
      "select (pg_table_size('payment_intents') / count(*))::int as bytes from payment_intents",
    );
    await orm.close();
    const ours = paces.get('payment_intents, as it is') ?? [];
    const lines = Object.keys(tables).map((name) => {
      const of = paces.get(name) ?? [];
      return [name, Math.round(median(of)), median(ours.map((pace, i) => pace / (of[i] ?? 0))).toFixed(2)];
    });
    await publish(
      'results-schema.md',
      `# What the rules of a row cost

\`npm run bench -- --schema\` ${onThisMachine()}; \`pgbench\`, one prepared row for each statement, 64 clients, ${rounds} rounds of ${seconds} s for each in turn. A row takes ${size?.bytes} bytes without its indexes.

${table(['table', 'rows/s', 'ours as a ratio of it (target: at least 0.8)'], lines)}
`,
    );
  });
}

function insertInto(tableName: string, merchantId: string): string {
  return `insert into ${tableName} (id, merchant_id, mode, status, network, amount_units, expected_wallet, lane, metadata, created_at, expires_at, client_secret_version) values (gen_random_uuid(), '${merchantId}', 'testnet', 'requires_payment', 3, 12500000, '\\x${'1'.repeat(40)}', 'sdk', '{"order_id":"order-1001"}', '2026-01-01T00:00:00Z', '2026-01-01T00:30:00Z', 1)`;
}
