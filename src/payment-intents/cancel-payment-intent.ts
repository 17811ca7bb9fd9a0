import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { PaymentIntent } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { CancelPaymentIntentRequest } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { createPreparedStatements } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import { identityOf, requestContextOf } from '../requests/request-context.ts';
import { type Trace, traceparentOf } from '../requests/trace.ts';
import { changeOf, endOf, storeChanges } from './change-payment-intents.ts';
import { findPaymentIntent, paymentsOf } from './get-payment-intent.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import type { PaymentIntentReader } from './reader.ts';

/**
 * `CancelPaymentIntent`: ends an intent that requires payment, once, however many calls there are and wherever they come
 * from. Calls `onEvent` when the event is durable.
 */
export function cancelPaymentIntent(
  em: EntityManager,
  reader: PaymentIntentReader,
  clientSecretKeys: KeyRing,
  onEvent: () => void,
): Method<CancelPaymentIntentRequest, PaymentIntent> {
  const { run } = createPreparedStatements(em);

  /** Undefined if the row has changed since it was read. */
  const cancel = async (
    row: PaymentIntentRow,
    trace: Trace | undefined,
  ): Promise<PaymentIntentRow | undefined> => {
    const at = new Date();
    const payments = await paymentsOf(reader, row);
    const canceled = changeOf(row, [endOf(row, 'canceled', at)], payments, traceparentOf(trace));
    const ids = await orUnavailable(() => storeChanges(run, [canceled], at));
    if (!ids.has(row.id)) return undefined;
    onEvent();
    return canceled.row;
  };

  return {
    ratePolicy: 'changes',
    async run(request, { values }) {
      // Each turn sees a later state of the row, and a row has few changes before it has ended.
      for (;;) {
        const row = await findPaymentIntent(reader, request.id, identityOf(values));
        if (row.status !== 'requires_payment' && row.status !== 'canceled') throw notCancelable(row);
        const canceled = row.status === 'canceled' ? row : await cancel(row, requestContextOf(values).trace);
        if (canceled !== undefined) {
          return presentPaymentIntent(canceled, await paymentsOf(reader, canceled), clientSecretKeys);
        }
      }
    },
  };
}

/** Throws if the row has a value that only a newer version knows. */
function notCancelable(row: PaymentIntentRow): ServiceError {
  presentPaymentIntent(row, []);
  const why = {
    processing: 'is being paid: its payment is on the chain and can no longer be declined',
    succeeded: 'has succeeded: return the money if the order is not to be fulfilled',
    expired: 'has expired already',
  }[row.status as 'processing' | 'succeeded' | 'expired'];
  return new ServiceError('invalid_state', { message: `The payment intent cannot be canceled. It ${why}.` });
}
