// Compares statements that write a batch: MikroORM's own ways, and the prepared statement of the store. Each writes the
// same rows without a server. Measures this process's processor time per row and the total time per batch.

import type { EntityManager } from '@mikro-orm/postgresql';
import { type NewPaymentIntentRow, PaymentIntentEntity } from '../src/database/entities/payment-intent.ts';
import { newUuid } from '../src/database/identifiers.ts';
import { createInsert } from '../src/payment-intents/insert-or-replay.ts';
import { median, onThisMachine, prepareDatabase, publish, table, withSetting } from './setting.ts';

const batchSizes = [1, 20, 60] as const;
const rowsEach = 3_000;

type Insert = (rows: readonly NewPaymentIntentRow[]) => Promise<unknown>;

export async function compareInserts({ rounds }: { rounds: number }): Promise<void> {
  await withSetting(async ({ postgres }) => {
    const { orm, merchantId } = await prepareDatabase(postgres);
    const ways: Record<string, Insert> = {
      'query builder, on conflict do nothing': byQueryBuilder(orm.em),
      '`em.insertMany`, which knows no on conflict': (rows) =>
        orm.em.fork().insertMany(PaymentIntentEntity, rows as NewPaymentIntentRow[]),
      'the store’s prepared statement, on conflict do nothing': createInsert(orm.em),
    };
    const samples = new Map<string, { cpuMicros: number; micros: number }[]>();
    for (let round = 0; round < rounds; round++) {
      for (const [name, insert] of Object.entries(ways)) {
        for (const batchSize of batchSizes) {
          const key = `${name} | ${batchSize}`;
          samples.set(key, [...(samples.get(key) ?? []), await measure(insert, merchantId, batchSize)]);
        }
      }
    }
    await orm.close();
    const lines = [...samples].map(([key, all]) => [
      key,
      Math.round(median(all.map(({ cpuMicros }) => cpuMicros))),
      Math.round(median(all.map(({ micros }) => micros))),
    ]);
    await publish(
      'results-inserts.md',
      `# Ways to write a batch of intents

\`npm run bench -- --inserts\` ${onThisMachine()}; medians of ${rounds} rounds of ${rowsEach.toLocaleString('en')} rows for each, one batch after the other.

${table(['statement', 'rows a batch', 'CPU µs a row', 'µs a row in all'], lines)}
`,
    );
  });
}

async function measure(insert: Insert, merchantId: string, batchSize: number) {
  const batches = Array.from({ length: rowsEach / batchSize }, () =>
    Array.from({ length: batchSize }, () => newRow(merchantId)),
  );
  const [first, ...rest] = batches;
  await insert(first ?? []);
  const cpuBefore = process.cpuUsage();
  const startedAtMs = performance.now();
  for (const batch of rest) await insert(batch);
  const { user, system } = process.cpuUsage(cpuBefore);
  const rows = rest.length * batchSize;
  return { cpuMicros: (user + system) / rows, micros: ((performance.now() - startedAtMs) * 1000) / rows };
}

function byQueryBuilder(em: EntityManager): Insert {
  return (rows) =>
    em
      .fork()
      .createQueryBuilder(PaymentIntentEntity)
      .insert(rows as NewPaymentIntentRow[])
      .onConflict()
      .ignore()
      .returning(['id'])
      .execute();
}

function newRow(merchantId: string): NewPaymentIntentRow {
  const createdAtMs = Date.now();
  return {
    id: newUuid(createdAtMs),
    merchantId,
    mode: 'testnet',
    status: 'requires_payment',
    network: 3,
    amountUnits: 12_500_000n,
    expectedWallet: `0x${'1'.repeat(40)}`,
    lane: 'sdk',
    metadata: { order_id: 'order-1001' },
    createdAt: new Date(createdAtMs),
    expiresAt: new Date(createdAtMs + 1_800_000),
    clientSecretVersion: 1,
    idempotencyKey: null,
    requestFingerprint: null,
  };
}
