import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { Batcher } from '../database/batcher.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { invalidState, type ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import { type Trace, traceparentOf } from '../requests/trace.ts';
import { changeOf, endOf, type PaymentIntentChange, storeChanges } from './change-payment-intents.ts';
import type { PaymentIntentReader } from './get-payment-intent.ts';
import { presentPaymentIntent } from './payment-intent.ts';

/** Concurrent cancels share a statement, as creates do. */
const slots = 2;
const maxBatchSize = 64;

const findSubmitted = preparedStatement(
  'find_submitted_authorization',
  `select valid_before from authorizations where payment_intent = $1 and status = 'submitted' limit 1`,
);

/** `CancelPaymentIntent`: cancels an intent that requires payment, once for all calls. Calls `onEvent` after the commit. */
export function cancelPaymentIntent(
  em: EntityManager,
  reader: PaymentIntentReader,
  clientSecretKeys: KeyRing,
  onEvent: () => void,
): MethodsOf<typeof PaymentIntentService>['cancelPaymentIntent'] {
  const { run } = createPreparedStatements(em);

  /** Resolves with whether the row was still as it was read. */
  const batcher = new Batcher<PaymentIntentChange, boolean>({
    slots,
    maxBatchSize,
    async run(changes) {
      // Of two concurrent calls for one intent, the second reads it again.
      const byId = new Map(changes.toReversed().map((change) => [change.row.id, change]));
      const ids = await storeChanges(run, [...byId.values()]);
      return changes.map((change) => byId.get(change.row.id) === change && ids.has(change.row.id));
    },
  });

  /** When the authorization ends that the payer has signed and that can still be used. */
  const signedFor = async ({ id, authorizationsCount }: PaymentIntentRow): Promise<Date | undefined> => {
    if (authorizationsCount == null) return undefined;
    const { rows } = await run(findSubmitted, [id]);
    return rows[0] && new Date(rows[0].valid_before);
  };

  /** Undefined if the row has changed since it was read. */
  const cancel = async (
    row: PaymentIntentRow,
    trace: Trace | undefined,
  ): Promise<PaymentIntentRow | undefined> => {
    const at = new Date();
    const payments = await reader.paymentsOf(row);
    const change = changeOf(row, [endOf(row, 'canceled', at)], payments, at, traceparentOf(trace));
    if (!(await batcher.add(change))) return undefined;
    onEvent();
    return change.row;
  };

  return {
    ratePolicy: 'changes',
    async run(request, identity, { context }) {
      // Each attempt sees a later state of the row, which changes only a few times before it ends.
      for (;;) {
        const row = await reader.find(request.id, identity, context);
        if (row.status !== 'requires_payment' && row.status !== 'canceled') throw notCancelable(row);
        // Counted in the row: one that is signed after this has changed it.
        const signed = row.status === 'canceled' ? undefined : await signedFor(row);
        if (signed !== undefined) throw stillPayable(signed);
        const canceled = row.status === 'canceled' ? row : await cancel(row, context.trace);
        if (canceled !== undefined) {
          return presentPaymentIntent(canceled, await reader.paymentsOf(canceled), clientSecretKeys);
        }
      }
    },
  };
}

function stillPayable(until: Date): ServiceError {
  return invalidState(
    'The payment intent cannot be canceled. The payer has signed an authorization for it, which can be used until ' +
      `${until.toISOString()}. Cancel it some minutes later, once the chain has confirmed that it was not.`,
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
