import { create } from '@bufbuild/protobuf';
import type { ContextValues } from '@connectrpc/connect';
import type { KeyRing } from '../config/key-ring.ts';
import { type PaymentIntent, PaymentIntentSchema } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { GetPaymentIntentRequest } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { encodedAs } from '../contract/json/json-codec.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { plainRefusal } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import { identityOf, requestContextOf } from '../requests/request-context.ts';
import { clientSecret } from './client-secret.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import { paymentIntentText } from './payment-intent-text.ts';
import type { IntentKey, PaymentIntentReader } from './reader.ts';

/** `GetPaymentIntent`: the current state of the intent. */
export function getPaymentIntent(
  reader: PaymentIntentReader,
  clientSecretKeys: KeyRing,
): Method<GetPaymentIntentRequest, PaymentIntent> {
  return {
    ratePolicy: 'reads',
    async run(request, { values }) {
      const shown = await find(reader.findShown, request.id, values);
      if (requestContextOf(values).door === 'public') {
        const secret = clientSecret(clientSecretKeys, Number(shown.client_secret_version), request.id);
        const text = paymentIntentText(shown, secret);
        if (text !== undefined) return encodedAs(create(PaymentIntentSchema), text);
      }
      const row = reader.rowOf(shown);
      return presentPaymentIntent(row, await paymentsOf(reader, row), clientSecretKeys);
    },
  };
}

/** The payments of one intent. */
export async function paymentsOf(reader: PaymentIntentReader, row: PaymentIntentRow): Promise<Payment[]> {
  // Most retrieved intents have no payments, and nothing is awaited for them.
  return row.paymentsCount === 0 ? [] : ((await reader.paymentsOf([row])).get(row.id) ?? []);
}

/** Returns the intent with that id. Throws `resource_missing`. */
export function findPaymentIntent(
  reader: PaymentIntentReader,
  publicId: string,
  values: ContextValues,
): Promise<PaymentIntentRow> {
  return find(reader.find, publicId, values);
}

/**
 * Records the id for the log. Throws `resource_missing`: the same for a malformed id, an unknown one, and one of
 * another merchant or mode.
 */
async function find<Found>(
  findByKey: (key: IntentKey) => Promise<Found | undefined>,
  publicId: string,
  values: ContextValues,
): Promise<Found> {
  const { merchantId, mode } = identityOf(values);
  const id = parseIdentifier('pi', publicId);
  if (id !== undefined) requestContextOf(values).paymentIntent = publicId;
  const found = id === undefined ? undefined : await findByKey({ id, merchantId, mode });
  if (found === undefined) throw plainRefusal('resource_missing');
  return found;
}
