// What `POST /v1/checkout/pay` reads and answers besides the checkout.

import type { Network } from '../contract/chains.ts';
import {
  encodeHeader,
  networkName,
  type PaymentRequired,
  readPayment,
  type SettleResponse,
  type SignedPayment,
  x402Version,
} from '../contract/x402.ts';
import type { AuthorizationRow } from '../database/entities/authorization.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { invalidBody, invalidState, type ServiceError } from '../requests/errors.ts';
import { isOffered, offerOf, type PaymentRefusal, refused, type TokenDomain } from './offer.ts';

export interface PayAnswer {
  status: number;
  body: string;
  headers: [string, string][];
}

/** Most bytes of the header. */
const maxSignatureBytes = 8 * 1024;

/** Reads the header `PAYMENT-SIGNATURE`. Throws `invalid_body`. */
export function paymentIn(signature: string): SignedPayment {
  if (signature.length > maxSignatureBytes) {
    throw invalidBody([
      { field: 'PAYMENT-SIGNATURE', message: `must have at most ${maxSignatureBytes} bytes` },
    ]);
  }
  const payment = readPayment(signature);
  if ('violations' in payment) throw invalidBody(payment.violations);
  return payment;
}

export const unsent = refused(
  'facilitator_unreachable',
  'The payment was not sent: the facilitator could not be reached. Sign a new one, or pay by a transfer.',
);
export const lapsed = refused(
  'authorization_released',
  'The chain will no longer take this authorization. Sign a new one.',
);

export function refusalAnswer(
  { chainId }: Network,
  payer: string,
  { reason, message }: PaymentRefusal,
): PayAnswer {
  const response: SettleResponse = {
    success: false,
    errorReason: reason,
    errorMessage: message,
    payer,
    transaction: '',
    network: networkName(chainId),
  };
  return { status: 402, body: JSON.stringify(response), headers: [responseHeader(response)] };
}

/** `PAYMENT-RESPONSE` of a transfer that the watcher has recorded. */
export function settledHeader(
  { fromAddress, amountUnits }: AuthorizationRow,
  { chainId }: Network,
  hash: string,
): [string, string] {
  return responseHeader({
    success: true,
    transaction: hash,
    network: networkName(chainId),
    payer: fromAddress,
    amount: String(amountUnits),
  });
}

const responseHeader = (response: SettleResponse): [string, string] => [
  'PAYMENT-RESPONSE',
  encodeHeader(response),
];

/** What the payer may sign. Throws `invalid_state` if there is no time for it. */
export function offerAnswer(
  resourceUrl: string,
  intent: PaymentIntentRow,
  network: Network,
  domain: TokenDomain,
  nowMs: number,
): PayAnswer {
  if (!isOffered(intent, nowMs)) {
    throw invalidState('The payment intent expires too soon to be paid by a signature.');
  }
  const required: PaymentRequired = {
    x402Version,
    error: 'PAYMENT-SIGNATURE header is required',
    resource: { url: resourceUrl, description: 'Payment of an order', mimeType: 'application/json' },
    accepts: [offerOf(intent, network, domain, nowMs)],
  };
  return {
    status: 402,
    body: JSON.stringify(required),
    headers: [['PAYMENT-REQUIRED', encodeHeader(required)]],
  };
}

export function ended(status: 'expired' | 'canceled'): ServiceError {
  const how = status === 'expired' ? 'has expired' : 'is canceled';
  return invalidState(`The payment intent ${how}. It can no longer be paid.`);
}

/** There is one that can still be used. */
export function occupied({ validBefore }: Pick<AuthorizationRow, 'validBefore'>): ServiceError {
  return invalidState(
    `A signed payment for this payment intent can still arrive until ${validBefore.toISOString()}, and some minutes later ` +
      'it is known whether it has. Wait: a second payment could be charged too.',
  );
}
