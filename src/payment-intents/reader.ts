import type { EntityManager } from '@mikro-orm/postgresql';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import type { ModeName } from '../contract/words.ts';
import { Batcher, usualWaits } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { type EntityColumns, entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createPaymentsReader } from './payments.ts';

/** Identifies an intent of a merchant and mode. */
export interface IntentKey {
  /** UUID. */
  id: string;
  merchantId: string;
  mode: ModeName;
}

/** Concurrent statements that retrieve intents by id. */
const slots = 4;
const maxBatchSize = 128;

export interface PaymentIntentReader {
  /** Returns an intent, or undefined if this merchant and mode has none with this id. */
  find(key: IntentKey): Promise<PaymentIntentRow | undefined>;
  /** Returns the payments of intents, by id; none for an intent without payments. */
  paymentsOf(rows: readonly PaymentIntentRow[]): Promise<ReadonlyMap<string, Payment[]>>;
}

/** Retrieves intents by id. Concurrent requests share a statement. */
export function createPaymentIntentReader(em: EntityManager): PaymentIntentReader {
  const { run } = createPreparedStatements(em);
  const intents = createIntentBatcher(run, entityColumns<PaymentIntentRow>(em, PaymentIntentEntity));
  const readPayments = createPaymentsReader(em);
  return {
    find: (key) => intents.add(key),
    paymentsOf: (rows) => readPayments(run, rows),
  };
}

function createIntentBatcher(
  run: RunPrepared,
  columns: EntityColumns<PaymentIntentRow>,
): Batcher<IntentKey, PaymentIntentRow | undefined> {
  const findOne = preparedStatement(
    'find_payment_intent',
    `select ${columns.of('i')} from payment_intents i where i.id = $1 and i.merchant_id = $2 and i.mode = $3`,
  );
  // Each id is looked up separately: a join planned while the table was small, and kept until its statistics are
  // renewed, would read millions of rows for every batch.
  const findMany = preparedStatement(
    'find_payment_intents',
    `select ${columns.of('i')}
       from unnest($1::uuid[], $2::uuid[], $3::payment_mode[]) as wanted (id, merchant_id, mode)
      cross join lateral
            (select * from payment_intents i
              where i.id = wanted.id and i.merchant_id = wanted.merchant_id and i.mode = wanted.mode limit 1) i`,
  );
  return new Batcher({
    slots,
    maxBatchSize,
    ...usualWaits,
    async run(batch) {
      const [only] = batch;
      const { rows } =
        batch.length === 1 && only !== undefined
          ? await run(findOne, [only.id, only.merchantId, only.mode])
          : await run(findMany, [
              batch.map(({ id }) => id),
              batch.map(({ merchantId }) => merchantId),
              batch.map(({ mode }) => mode),
            ]);
      const found = new Map(rows.map(columns.read).map((row) => [keyOf(row), row]));
      return batch.map((key) => found.get(keyOf(key)));
    },
  });
}

const keyOf = ({ id, merchantId, mode }: IntentKey) => `${id} ${merchantId} ${mode}`;
