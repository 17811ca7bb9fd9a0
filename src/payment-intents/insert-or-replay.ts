import type { EntityManager } from '@mikro-orm/postgresql';
import type { QueueLimits } from '../config/config.ts';
import { createBatcher, waitingReads } from '../database/batcher.ts';
import {
  laterProperties,
  type NewPaymentIntentRow,
  PaymentIntentEntity,
} from '../database/entities/payment-intent.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { isServerGone, orUnavailable } from '../database/unavailable.ts';
import { commitNothing } from '../database/writability.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Trace } from '../requests/trace.ts';
import type { Tracing } from '../requests/tracing.ts';

export interface PaymentIntentStore {
  /**
   * Stores a new intent and returns it once it is durable. If an intent of the same merchant and mode already has its
   * idempotency key, stores nothing and returns that intent, as `replayed`.
   *
   * Throws `idempotency_key_reused` if that intent was made by a different request. Throws `unavailable` if the
   * database cannot answer: the intent may or may not be stored, and a retry with the same key settles it. Throws the
   * signal's reason, and stores nothing, if it aborts before the insert begins.
   */
  create(
    intent: NewPaymentIntentRow,
    options?: { trace?: Trace | undefined; signal?: AbortSignal },
  ): Promise<StoredIntent>;
  /**
   * Returns the existing intent with this one's idempotency key, as `create` does, and stores nothing; undefined if
   * there is none. Throws like `create`.
   */
  findReplay(
    intent: NewPaymentIntentRow,
    options?: { signal?: AbortSignal },
  ): Promise<StoredIntent | undefined>;
  waiting(): number;
  /** Refuses the creates that still wait after this time: the process ends. */
  endWithin(ms: number): void;
}

export interface StoredIntent {
  intent: NewPaymentIntentRow;
  replayed: boolean;
}

/** Concurrent statements: while two are written and flushed, the next one fills. */
const slots = 2;
const maxBatchSize = 128;

export interface StoreObserver {
  /** Called for each batch when it has been written or has failed. */
  onBatch?: (size: number, durationMs: number) => void;
  /** Called when a batch was written. */
  onWrite?: () => void;
  /** Called with the reason if a batch could not be written. */
  onFailedWrite?: (reason: unknown) => void;
  tracing?: Tracing | undefined;
}

/** An intent to store, and the trace of its request. */
interface Create {
  intent: NewPaymentIntentRow;
  trace: Trace | undefined;
}

/** Stores intents by group commit: concurrent creates share one statement and one flush to disk. */
export function createPaymentIntentStore(
  em: EntityManager,
  queue: QueueLimits,
  { onBatch, onWrite, onFailedWrite, tracing }: StoreObserver = {},
): PaymentIntentStore {
  const insert = createInsert(em);
  const { run: runPrepared } = createPreparedStatements(em);

  const traced = <T>(operation: string, creates: readonly Create[], run: () => Promise<T>): Promise<T> => {
    if (tracing === undefined) return run();
    const statement = { operation, table: 'payment_intents', creates: creates.length };
    return tracing.statement(
      statement,
      creates.map(({ trace }) => trace),
      run,
    );
  };

  const commit = async (
    creates: readonly Create[],
    isRepeated = false,
  ): Promise<(StoredIntent | Error)[]> => {
    const batch = creates.map(({ intent }) => intent);
    const insertedCount = await traced('INSERT', creates, () => insert(inLockOrder(batch)));
    if (insertedCount > 0) onWrite?.();
    if (insertedCount === batch.length) return batch.map((intent) => ({ intent, replayed: false }));
    // Separate statements, because only a new snapshot sees the rows that the insert conflicted with.
    const isNothingOurs = insertedCount === 0 && !isRepeated;
    const inserted = isNothingOurs ? new Set() : await traced('SELECT', creates, () => findIds(em, batch));
    // A row whose commit was interrupted may be there and on no standby yet: nobody is told of it before it is.
    await runPrepared(commitNothing, []);
    const replayed = creates.filter(({ intent }) => !inserted.has(intent.id));
    if (replayed.length === 0) return batch.map((intent) => ({ intent, replayed: false }));
    const firsts = await traced('SELECT', replayed, () =>
      findByIdempotencyKeys(
        em,
        replayed.map(({ intent }) => intent),
      ),
    );
    return batch.map((intent) =>
      inserted.has(intent.id)
        ? { intent, replayed: false }
        : replay(intent, firsts.get(idempotencyOf(intent))),
    );
  };

  const commitEach = (batch: readonly Create[]) =>
    Promise.all(
      batch.map(async (create) => {
        const [outcome] = await orUnavailable(() => commit([create])).catch(asOutcome);
        return outcome as StoredIntent | Error;
      }),
    );

  const group = createBatcher<Create, StoredIntent>({
    slots,
    maxBatchSize,
    ...queue,
    ...(onBatch && { onBatch }),
    isHeldAfter: isServerGone,
    run: (batch, isRepeated) =>
      orUnavailable(() =>
        commit(batch, isRepeated).catch((reason) => {
          onFailedWrite?.(reason);
          // One bad row has rolled back the whole statement, so each row is retried alone.
          if (batch.length > 1 && concernsOneRow(reason)) return commitEach(batch);
          throw reason;
        }),
      ),
  });

  const replays = createBatcher<NewPaymentIntentRow, StoredIntent | undefined>({
    slots: 1,
    maxBatchSize,
    ...waitingReads,
    run: (batch) =>
      orUnavailable(async () => {
        const firsts = await findByIdempotencyKeys(em, batch);
        return batch.map((intent) => {
          const first = firsts.get(idempotencyOf(intent));
          return first && replay(intent, first);
        });
      }),
  });

  return {
    create: (intent, { trace, signal } = {}) => group.add({ intent, trace }, signal),
    findReplay: async (intent, { signal } = {}) =>
      intent.idempotencyKey == null ? undefined : replays.add(intent, signal),
    waiting: () => group.waiting(),
    endWithin: (ms) => group.endWithin(ms),
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
 * Inserts rows in one statement, except those whose idempotency key is taken, and returns the number inserted. That is
 * nearly always all of them, so a list of ids would only cost time.
 *
 * The statement is prepared and runs on MikroORM's own connections. `em.insertMany` has no ON CONFLICT; the query
 * builder has one, but takes several times the processor time per row. `npm run bench -- --inserts` compares them.
 * Columns and types come from the entity, so they stay in step. Values are written in PostgreSQL's text format, because
 * `pg` would inspect the type of each one. With the `run` of a transaction, the rows are written in that transaction.
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
    isQuoted: !plainTypes.test(type),
    textOf(row: NewPaymentIntentRow): string | null {
      const value: unknown = row[name as keyof NewPaymentIntentRow];
      const converted = customType ? customType.convertToDatabaseValue(value, platform) : value;
      if (converted == null) return null;
      return converted instanceof Date ? converted.toISOString() : String(converted);
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
    const values = columns.map(({ textOf, isQuoted }) =>
      only ? textOf(only) : arrayLiteral(rows.map(textOf), isQuoted),
    );
    const result = await run(only ? insertOne : insertMany, values);
    return result.rowCount ?? 0;
  };
}

/** Types whose text never needs quoting in an array literal. */
const plainTypes = /^(?:uuid|bigint|smallint|timestamptz\(3\)|payment_\w+)$/;

function arrayLiteral(elements: readonly (string | null)[], isQuoted: boolean): string {
  const texts = elements.map((text) => {
    if (text === null) return 'NULL';
    return isQuoted ? `"${text.replace(/["\\]/g, '\\$&')}"` : text;
  });
  return `{${texts.join(',')}}`;
}

/**
 * Sorts by idempotency key. An insert waits for other inserts of the same key, so a different order, here or in another
 * process, could cause a deadlock.
 */
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

const idempotencyOf = (intent: NewPaymentIntentRow) =>
  `${intent.merchantId} ${intent.mode} ${intent.idempotencyKey}`;

/** The ids of the intents that are stored. */
async function findIds(em: EntityManager, intents: readonly NewPaymentIntentRow[]): Promise<Set<string>> {
  const ids = intents.map(({ id }) => id);
  const found = await em
    .fork()
    .find(PaymentIntentEntity, { id: ids }, { fields: ['id'], disableIdentityMap: true });
  return new Set(found.map(({ id }) => id));
}

async function findByIdempotencyKeys(
  em: EntityManager,
  intents: readonly NewPaymentIntentRow[],
): Promise<Map<string, NewPaymentIntentRow>> {
  const found = await em
    .fork()
    .find(
      PaymentIntentEntity,
      { $or: intents.map(({ merchantId, mode, idempotencyKey }) => ({ merchantId, mode, idempotencyKey })) },
      { disableIdentityMap: true },
    );
  return new Map(found.map((intent) => [idempotencyOf(intent), intent]));
}

function replay(intent: NewPaymentIntentRow, first: NewPaymentIntentRow | undefined): StoredIntent | Error {
  if (first === undefined) return new Error(`payment intent ${intent.id} is neither inserted nor there`);
  const isSameRequest =
    first.requestFingerprint != null && first.requestFingerprint === intent.requestFingerprint;
  return isSameRequest ? { intent: first, replayed: true } : new ServiceError('idempotency_key_reused');
}
