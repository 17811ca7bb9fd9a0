import type { EntityManager } from '@mikro-orm/postgresql';
import type { ModeName } from '../contract/chains.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { type Batcher, createBatcher, waitingReads } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import {
  parseShownColumns,
  readShownRow,
  type ShownColumns,
  type ShownRow,
  shownRow,
} from './payment-intent-text.ts';
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
  /** Returns an intent, or undefined if this merchant and mode has none with this id. Throws `unavailable`. */
  find(key: IntentKey): Promise<PaymentIntentRow | undefined>;
  /** The same in the text form of `payment-intent-text.ts`, which is faster. */
  findShown(key: IntentKey): Promise<ShownColumns | undefined>;
  /** Converts a text row to an entity row. Columns that are not shown are null. */
  rowOf(shown: ShownColumns): PaymentIntentRow;
  /** Returns the payments of intents, by id; none for an intent without payments. Throws `unavailable`. */
  paymentsOf(rows: readonly PaymentIntentRow[]): Promise<ReadonlyMap<string, Payment[]>>;
}

/** Retrieves intents by id. Concurrent requests share a statement. */
export function createPaymentIntentReader(em: EntityManager): PaymentIntentReader {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const { run } = createPreparedStatements(em);
  const rows = createKeyedBatcher(run, {
    name: 'find_payment_intent',
    columns: columns.of('i'),
    read: columns.read,
    keyOf: ({ id, merchantId, mode }) => keyOf(id, merchantId, mode),
  });
  const shown = createKeyedBatcher(run, {
    name: 'find_shown_payment_intent',
    columns: shownRow('i'),
    read: (row) => readShownRow(row as unknown as ShownRow),
    keyOf: ({ id, merchant_id, mode }) => keyOf(id, merchant_id, mode),
  });
  const readPayments = createPaymentsReader(em);
  return {
    find: (key) => rows.add(key),
    findShown: (key) => shown.add(key),
    rowOf: (shown) => columns.read(parseShownColumns(shown)),
    paymentsOf: (rows) => orUnavailable(() => readPayments(run, rows)),
  };
}

/** A form in which intents are read. */
interface Form<Found> {
  /** Prefix of its statements' names. */
  name: string;
  /** Columns of `payment_intents i`. */
  columns: string;
  read: (row: Readonly<Record<string, unknown>>) => Found;
  keyOf: (found: Found) => string;
}

/** Reads intents in this form. A single intent has a simpler statement. */
function createKeyedBatcher<Found>(
  run: RunPrepared,
  form: Form<Found>,
): Batcher<IntentKey, Found | undefined> {
  const { name, columns } = form;
  const findOne = preparedStatement(
    name,
    `select ${columns} from payment_intents i where i.id = $1 and i.merchant_id = $2 and i.mode = $3`,
  );
  // Each id is looked up separately: a join planned while the table was small, and kept until its statistics are
  // renewed, would read millions of rows for every batch.
  const findMany = preparedStatement(
    `${name}s`,
    `select ${columns}
       from unnest($1::uuid[], $2::uuid[], $3::payment_mode[]) as wanted (id, merchant_id, mode)
      cross join lateral
            (select * from payment_intents i
              where i.id = wanted.id and i.merchant_id = wanted.merchant_id and i.mode = wanted.mode limit 1) i`,
  );
  return createBatcher({
    slots,
    maxBatchSize,
    ...waitingReads,
    run: (batch) =>
      orUnavailable(async () => {
        const [only] = batch;
        const { rows } =
          batch.length === 1 && only !== undefined
            ? await run(findOne, [only.id, only.merchantId, only.mode])
            : await run(findMany, [
                batch.map(({ id }) => id),
                batch.map(({ merchantId }) => merchantId),
                batch.map(({ mode }) => mode),
              ]);
        const found = new Map(rows.map(form.read).map((one) => [form.keyOf(one), one]));
        return batch.map(({ id, merchantId, mode }) => found.get(keyOf(id, merchantId, mode))) as Found[];
      }),
  });
}

const keyOf = (id: string, merchantId: string, mode: string) => `${id} ${merchantId} ${mode}`;
