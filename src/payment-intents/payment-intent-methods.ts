import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { PaymentIntent } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { Batcher } from '../database/batcher.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, jsonOfRows, preparedStatement } from '../database/prepared.ts';
import { invalidBody, invalidState, ServiceError } from '../requests/errors.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { MethodsOf } from '../requests/method.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import { chargeRows } from '../requests/row-cost.ts';
import { type Trace, traceparentOf } from '../requests/trace.ts';
import { changeOf, endOf, type PaymentIntentChange, storeChanges } from './change-payment-intents.ts';
import { buildPaymentIntent, parseCreatePaymentIntentRequest } from './create-payment-intent-request.ts';
import type { PaymentIntentStore } from './insert-or-replay.ts';
import { listPaymentIntents } from './list-payment-intents.ts';
import { createdPaymentIntent, presentPaymentIntent } from './payment-intent.ts';
import { createPaymentsReader, maxPayments } from './payments.ts';
import { chainUnwatched, type WatchedChains } from './watched-chains.ts';

export function createPaymentIntentMethods(
  em: EntityManager,
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
  watchedChains: WatchedChains,
  onEvent: () => void,
): MethodsOf<typeof PaymentIntentService> {
  const reader = createPaymentIntentReader(em);
  return {
    createPaymentIntent: createPaymentIntent(store, clientSecretKeys, watchedChains),
    /** The current state of the intent. */
    getPaymentIntent: {
      ratePolicy: 'reads',
      async run(request, identity, { context }) {
        const row = await reader.find(request.id, identity, context);
        // Anybody can send payments, so there may be many.
        chargeRows(context, Math.min(row.paymentsCount, maxPayments));
        return reader.present(row, clientSecretKeys);
      },
    },
    listPaymentIntents: listPaymentIntents(em),
    cancelPaymentIntent: cancelPaymentIntent(em, reader, clientSecretKeys, onEvent),
  };
}

type IntentKey = Pick<PaymentIntentRow, 'id' | 'merchantId' | 'mode'>;

const keyOf = ({ id, merchantId, mode }: IntentKey) => `${id} ${merchantId} ${mode}`;

type PaymentIntentReader = ReturnType<typeof createPaymentIntentReader>;

/** Retrieves intents by id. Concurrent requests share a statement. */
function createPaymentIntentReader(em: EntityManager) {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createPaymentsReader(em);
  // Each id is looked up separately: a join planned while the table was small, and kept until its statistics
  // are renewed, would read millions of rows for every batch.
  const find = preparedStatement(
    'find_payment_intents',
    `select ${columns.of('i')}
       from json_to_recordset($1) as wanted (id uuid, "merchantId" uuid, mode payment_mode)
      cross join lateral
            (select * from payment_intents i
              where i.id = wanted.id and i.merchant_id = wanted."merchantId" and i.mode = wanted.mode limit 1) i`,
  );
  const intents = new Batcher<IntentKey, PaymentIntentRow | undefined>({
    slots: 4,
    maxBatchSize: 128,
    async run(batch) {
      const { rows } = await run(find, [jsonOfRows(batch)]);
      const found = new Map(rows.map(columns.read).map((row) => [keyOf(row), row]));
      return batch.map((key) => found.get(keyOf(key)));
    },
  });
  return {
    /** Returns the intent, noted for the log. `resource_missing` if malformed, unknown or another's. */
    async find(publicId: string, { merchantId, mode }: Identity, context: RequestContext) {
      const id = parseIdentifier('pi', publicId);
      if (id !== undefined) context.paymentIntent = publicId;
      const found = id === undefined ? undefined : await intents.add({ id, merchantId, mode });
      if (found === undefined) throw new ServiceError('resource_missing');
      return found;
    },
    /** Returns an intent with its payments, as `createPaymentsReader` does. */
    async withPayments(row: PaymentIntentRow) {
      return (await readPayments(run, [row]))[0] ?? { row, payments: [] };
    },
    async present(found: PaymentIntentRow, clientSecretKeys: KeyRing): Promise<PaymentIntent> {
      const { row, payments } = await this.withPayments(found);
      return presentPaymentIntent(row, payments, clientSecretKeys);
    },
  };
}

const findSubmitted = preparedStatement(
  'find_submitted_authorization',
  `select valid_before from authorizations where payment_intent = $1 and status = 'submitted' limit 1`,
);

/** `CancelPaymentIntent`: cancels an unpaid intent. Idempotent. Calls `onEvent` after the commit. */
function cancelPaymentIntent(
  em: EntityManager,
  reader: PaymentIntentReader,
  clientSecretKeys: KeyRing,
  onEvent: () => void,
): MethodsOf<typeof PaymentIntentService>['cancelPaymentIntent'] {
  const { run } = createPreparedStatements(em);

  /** Resolves with true if the row is unchanged since it was read. Concurrent cancels share a statement. */
  const batcher = new Batcher<PaymentIntentChange, boolean>({
    slots: 2,
    maxBatchSize: 64,
    async run(changes) {
      // Of two concurrent calls for one intent, the first reads it again.
      const byId = new Map(changes.map((change) => [change.row.id, change]));
      const ids = await storeChanges(run, [...byId.values()]);
      return changes.map((change) => byId.get(change.row.id) === change && ids.has(change.row.id));
    },
  });

  /** Returns the end of the authorization that the payer has signed and that can still be used. */
  const signedFor = async ({ id, authorizationsCount }: PaymentIntentRow): Promise<Date | undefined> => {
    if (authorizationsCount == null) return undefined;
    const { rows } = await run(findSubmitted, [id]);
    return rows[0] && new Date(rows[0].valid_before);
  };

  /** Returns the canceled row, or undefined if it has changed since it was read. */
  const cancel = async (row: PaymentIntentRow, trace: Trace | undefined) => {
    const at = new Date();
    const { payments } = await reader.withPayments(row);
    const change = changeOf(row, [endOf(row, 'canceled', at)], payments, at, traceparentOf(trace));
    if (!(await batcher.add(change))) return undefined;
    onEvent();
    return change.row;
  };

  return {
    ratePolicy: 'changes',
    async run(request, identity, { context }) {
      // Each attempt sees a later state of the row, and an intent changes only a few times.
      for (;;) {
        const row = await reader.find(request.id, identity, context);
        if (row.status !== 'requires_payment' && row.status !== 'canceled') throw notCancelable(row);
        // The row counts authorizations: if one is signed after this, the cancel fails and is tried again.
        const signed = row.status === 'canceled' ? undefined : await signedFor(row);
        if (signed !== undefined) throw stillPayable(signed);
        const canceled = row.status === 'canceled' ? row : await cancel(row, context.trace);
        if (canceled !== undefined) return reader.present(canceled, clientSecretKeys);
      }
    },
  };
}

function stillPayable(until: Date): ServiceError {
  return invalidState(
    'The payment intent cannot be canceled: the payer has signed an authorization that can be used until ' +
      `${until.toISOString()}. Try again a few minutes after that, once the chain has confirmed that it was not used.`,
  );
}

/** Throws if the row has a value that only a newer version knows. */
function notCancelable(row: PaymentIntentRow): ServiceError {
  presentPaymentIntent(row, []);
  const why = {
    processing: 'is being paid: its payment is on the chain and can no longer be declined',
    succeeded: 'has succeeded: return the money if the order is not to be fulfilled',
    expired: 'has expired already',
  }[row.status as 'processing' | 'succeeded' | 'expired'];
  return invalidState(`The payment intent cannot be canceled. It ${why}.`);
}

/**
 * `CreatePaymentIntent`: stores a new intent, or returns the existing one for its idempotency key. Throws
 * `chain_unwatched` instead of storing one on a chain that is not allowed.
 */
export function createPaymentIntent(
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
  watchedChains: Pick<WatchedChains, 'allows'>,
): MethodsOf<typeof PaymentIntentService>['createPaymentIntent'] {
  return {
    ratePolicy: 'creates',
    isSelfChecking: true,
    violations(request, identity) {
      const parsed = parseCreatePaymentIntentRequest(request, identity);
      return 'violations' in parsed ? parsed.violations : [];
    },
    async run(request, identity, { context, header, signal }) {
      const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
      const parsed = parseCreatePaymentIntentRequest(request, identity);
      if ('violations' in parsed) throw invalidBody(parsed.violations);

      const row = buildPaymentIntent(parsed.value, identity, idempotencyKey, clientSecretKeys.newestVersion);
      const { chain } = parsed.value;
      const stored = watchedChains.allows(identity.mode, chain)
        ? await store.create(row, { trace: context.trace, signal })
        : await store.findReplay(row);
      if (stored === undefined) throw chainUnwatched(identity.mode, chain);
      const { intent, replayed } = stored;
      if (replayed) context.replayed = true;
      const created = createdPaymentIntent(intent, clientSecretKeys);
      context.paymentIntent = created.id;
      return created;
    },
  };
}
