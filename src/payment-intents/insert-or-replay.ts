import type { EntityManager } from '@mikro-orm/postgresql';
import type { Config } from '../config/config.ts';
import { Batcher } from '../database/batcher.ts';
import type { NewPaymentIntentRow, PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { laterProperties, PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { commitNothing } from '../database/writability.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Trace } from '../requests/trace.ts';
import {
  isServerGone,
  mayBeStoredError,
  mayHaveRun,
  orUnavailable,
  serverGoneError,
} from '../requests/unavailable.ts';
import { traceStatement } from '../telemetry/spans.ts';

export type PaymentIntentStore = ReturnType<typeof createPaymentIntentStore>;

type StoredIntent = { intent: NewPaymentIntentRow; replayed: boolean };

/**
 * Concurrent statements: two small ones for a short wait, but one while it has many rows. Measured with 64
 * requests in flight, beside two: 11 to 15 % more creates, and a tenth less processor time for each.
 */
const batching = { slots: 2, maxBeside: 16, maxBatchSize: 128 };

interface StoreObserver {
  /** Called for each batch when it has been written or has failed. */
  onBatch?: (size: number, durationMs: number) => void;
  onWrite?: () => void;
  onFailedWrite?: (reason: unknown) => void;
}

/** An intent to store, and the trace of its request. */
type Create = { intent: NewPaymentIntentRow; trace: Trace | undefined };

/** Stores intents by group commit: concurrent creates share one statement and one flush to disk. */
export function createPaymentIntentStore(
  em: EntityManager,
  queue: Config['queue'],
  { onBatch, onWrite, onFailedWrite }: StoreObserver = {},
) {
  const insert = createInsert(em);
  const findStored = createFindStored(em);

  const traced = <T>(operation: string, creates: readonly Create[], run: () => Promise<T>): Promise<T> =>
    traceStatement({ operation, table: 'payment_intents', creates: creates.length }, creates, run);

  const commit = async (
    creates: readonly Create[],
    isRepeated: boolean,
  ): Promise<(StoredIntent | Error)[]> => {
    const batch = creates.map(({ intent }) => intent);
    const insertedCount = await traced('INSERT', creates, () => insert(inLockOrder(batch)));
    if (insertedCount > 0) onWrite?.();
    if (insertedCount === batch.length) return batch.map((intent) => ({ intent, replayed: false }));
    const found = await traced('SELECT', creates, () =>
      findStored(batch, insertedCount > 0 || isRepeated),
    ).catch((reason) => {
      throw insertedCount > 0 ? mayBeStoredError(reason) : reason;
    });
    return batch.map((intent) => {
      if (found.ids.has(intent.id)) return { intent, replayed: false };
      const first = found.firsts.get(idempotencyOf(intent));
      if (first !== undefined) return replay(intent, first);
      // The insert was refused by a server that is no longer the primary.
      throw serverGoneError(`payment intent ${intent.id} is neither inserted nor there`);
    });
  };

  const commitEach = async (batch: readonly Create[], isRepeated: boolean) => {
    const outcomes = await Promise.all(
      batch.map((create) => orUnavailable(() => commit([create], isRepeated)).catch(asOutcome)),
    );
    const gone = outcomes.flat().find((outcome) => isServerGone(outcome));
    const isAnyStored = outcomes.flat().some((outcome) => !(outcome instanceof Error));
    if (gone !== undefined) throw isAnyStored ? mayBeStoredError(gone) : gone;
    return outcomes.flat();
  };

  const group = new Batcher<Create, StoredIntent>({
    ...batching,
    ...queue,
    ...(onBatch && { onBatch }),
    isHeldAfter: isServerGone,
    run: (batch, isRepeated) =>
      orUnavailable(() =>
        commit(batch, isRepeated).catch((reason) => {
          onFailedWrite?.(reason);
          // One bad row has rolled back the whole statement, so each row is retried alone.
          if (batch.length > 1 && concernsOneRow(reason)) return commitEach(batch, isRepeated);
          throw reason;
        }),
      ),
  });

  return {
    /**
     * Stores a new intent and returns it once it is durable. If an intent of the same merchant and mode
     * already has its idempotency key, stores nothing and returns that intent, as `replayed`.
     *
     * Throws `idempotency_key_reused` if that intent was made by a different request. Throws `unavailable` if
     * the database cannot answer: the intent may or may not be stored, and a retry with the same key settles
     * it. Throws the signal's reason, and stores nothing, if it aborts before the insert begins.
     */
    create: (
      intent: NewPaymentIntentRow,
      { trace, signal }: { trace?: Trace | undefined; signal?: AbortSignal | undefined } = {},
    ) => group.add({ intent, trace }, signal).catch(refuse),
    /** Returns the intent that `create` would replay, or undefined if there is none. Stores nothing. */
    async findReplay(intent: NewPaymentIntentRow): Promise<StoredIntent | undefined> {
      if (intent.idempotencyKey == null) return undefined;
      const { firsts } = await orUnavailable(() => findStored([intent], false));
      const [first] = firsts.values();
      const stored = first && replay(intent, first);
      if (stored instanceof Error) throw stored;
      return stored;
    },
    waiting: () => group.waiting(),
    /** The number of these that wait for the database to come back. */
    held: () => group.held(),
    /** Refuses creates that still wait after this time, because the process is stopping. */
    endWithin: (ms: number) => group.endWithin(ms),
  };
}

function asOutcome(reason: unknown): Error[] {
  return [reason instanceof Error ? reason : new Error(String(reason))];
}

/** Data exceptions and broken constraints (SQLSTATE classes 22 and 23). */
function concernsOneRow(reason: unknown): boolean {
  const { code } = reason as { code?: unknown };
  return typeof code === 'string' && /^2[23]/.test(code);
}

/**
 * Inserts rows in one statement, except those whose idempotency key is taken, and returns the number
 * inserted. That is nearly always all of them, so a list of ids would only cost time.
 *
 * The statement is prepared and runs on MikroORM's own connections. `em.insertMany` has no ON CONFLICT; the
 * query builder has one, but takes several times the processor time per row. `npm run bench -- --inserts`
 * compares them. Columns and types come from the entity, so they stay in step. With the `run` of a
 * transaction, the rows are written in that transaction.
 */
export function createInsert(
  em: EntityManager,
): (rows: readonly NewPaymentIntentRow[], run?: RunPrepared) => Promise<number> {
  const platform = em.getPlatform();
  const { tableName, props } = em.getMetadata(PaymentIntentEntity);
  const later: readonly string[] = laterProperties;
  const created = props.filter(({ name }) => !later.includes(name));
  const columns = created.map(({ name, fieldNames, columnTypes: [type = ''], customType }) => ({
    column: `"${fieldNames[0]}"`,
    type,
    read(row: NewPaymentIntentRow): unknown {
      const value: unknown = row[name as keyof NewPaymentIntentRow];
      return customType ? customType.convertToDatabaseValue(value, platform) : value;
    },
  }));
  const statement = (label: string, source: string) =>
    preparedStatement(
      label,
      `insert into "${tableName}" (${columns.map(({ column }) => column).join(', ')}) ${source} on conflict do nothing`,
    );
  const placeholders = columns.map((_, i) => `$${i + 1}`);
  const arrays = columns.map(({ type }, i) => `${placeholders[i]}::${type}[]`);
  // PostgreSQL inserts a single row a fifth faster this way than from arrays.
  const insertOne = statement('insert_payment_intent', `values (${placeholders.join(', ')})`);
  const insertMany = statement('insert_payment_intents', `select * from unnest(${arrays.join(', ')})`);
  const statements = createPreparedStatements(em);

  return async (rows, run = statements.run) => {
    const [only] = rows.length === 1 ? rows : [];
    const values = columns.map(({ read }) => (only ? read(only) : rows.map(read)));
    const result = await run(only ? insertOne : insertMany, values);
    return result.rowCount ?? 0;
  };
}

/** Sorts by idempotency key: an insert waits for others with its key, so any other order could deadlock. */
function inLockOrder(batch: readonly NewPaymentIntentRow[]): readonly NewPaymentIntentRow[] {
  if (batch.every(({ idempotencyKey }) => idempotencyKey == null)) return batch;
  return batch.toSorted(
    (a, b) =>
      compare(a.idempotencyKey ?? '', b.idempotencyKey ?? '') ||
      compare(a.merchantId, b.merchantId) ||
      compare(a.mode, b.mode),
  );
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

const idempotencyOf = (intent: Pick<NewPaymentIntentRow, 'merchantId' | 'mode' | 'idempotencyKey'>) =>
  `${intent.merchantId} ${intent.mode} ${intent.idempotencyKey}`;

/**
 * Finds the first intent of each idempotency key, and the ids of those given that are stored, if they may
 * have been inserted. Runs in one transaction whose commit waits for the standbys: a row whose own commit was
 * interrupted may be visible but on no standby yet, and must not be reported before it is.
 */
function createFindStored(em: EntityManager) {
  const { transaction } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const findFirsts = preparedStatement(
    'find_payment_intents_by_key',
    `select ${columns.of('i')} from payment_intents i
       join unnest($1::uuid[], $2::payment_mode[], $3::text[]) as k (merchant_id, mode, idempotency_key)
         on i.merchant_id = k.merchant_id and i.mode = k.mode and i.idempotency_key = k.idempotency_key`,
  );
  return (intents: readonly NewPaymentIntentRow[], mayBeInserted: boolean) =>
    transaction(async (run) => {
      const stored = mayBeInserted ? await run(findIds, [intents.map(({ id }) => id)]) : undefined;
      const ids = new Set(stored?.rows.map(({ id }) => id as string));
      const keyed = intents.filter(({ id, idempotencyKey }) => idempotencyKey != null && !ids.has(id));
      const found = await run(findFirsts, [
        keyed.map(({ merchantId }) => merchantId),
        keyed.map(({ mode }) => mode),
        keyed.map(({ idempotencyKey }) => idempotencyKey),
      ]);
      await run(commitNothing, []);
      const firsts = found.rows.map((row) => columns.read(row));
      return { ids, firsts: new Map(firsts.map((first) => [idempotencyOf(first), first])) };
    });
}

const findIds = preparedStatement(
  'find_payment_intent_ids',
  'select id from payment_intents where id = any ($1::uuid[])',
);

function replay(intent: NewPaymentIntentRow, first: NewPaymentIntentRow): StoredIntent | Error {
  const isSameRequest = first.requestFingerprint === intent.requestFingerprint;
  return isSameRequest ? { intent: first, replayed: true } : new ServiceError('idempotency_key_reused');
}

/** Throws the reason. For `unavailable`, the message says whether the intent may have been stored. */
function refuse(reason: unknown): never {
  if (!(reason instanceof ServiceError) || reason.code !== 'unavailable') throw reason;
  const message = mayHaveRun(reason.cause)
    ? 'The service cannot answer right now. The intent may have been created: retry with the same idempotency key, which then returns it.'
    : 'The service cannot answer right now. The intent was not created: retry, with the same idempotency key.';
  throw new ServiceError('unavailable', { message, cause: reason.cause });
}
