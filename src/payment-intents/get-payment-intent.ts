import type { KeyRing } from '../config/key-ring.ts';
import type { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import type { PaymentIntentReader } from './reader.ts';

/** `GetPaymentIntent`: the current state of the intent. */
export function getPaymentIntent(
  reader: PaymentIntentReader,
  clientSecretKeys: KeyRing,
): MethodsOf<typeof PaymentIntentService>['getPaymentIntent'] {
  return {
    ratePolicy: 'reads',
    async run(request, identity, { context }) {
      const row = await findPaymentIntent(reader, request.id, identity, context);
      return presentPaymentIntent(row, await paymentsOf(reader, row), clientSecretKeys);
    },
  };
}

/** The payments of one intent. */
export async function paymentsOf(reader: PaymentIntentReader, row: PaymentIntentRow): Promise<Payment[]> {
  // Most retrieved intents have no payments, and nothing is awaited for them.
  return row.paymentsCount === 0 ? [] : ((await reader.paymentsOf([row])).get(row.id) ?? []);
}

/**
 * Returns the intent and records its id for the log. Throws `resource_missing`: the same for a malformed id, an unknown
 * one, and one of another merchant or mode.
 */
export async function findPaymentIntent(
  reader: PaymentIntentReader,
  publicId: string,
  { merchantId, mode }: Identity,
  context: RequestContext,
): Promise<PaymentIntentRow> {
  const id = parseIdentifier('pi', publicId);
  if (id !== undefined) context.paymentIntent = publicId;
  const found = id === undefined ? undefined : await reader.find({ id, merchantId, mode });
  if (found === undefined) throw new ServiceError('resource_missing');
  return found;
}
