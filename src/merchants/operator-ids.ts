// The ids that an operator names. Checking them needs no database.

import { identifierProblem, parseIdentifier } from '../database/identifiers.ts';
import { AdministrationError } from './administration-error.ts';

/** Returns the UUID of a merchant's id. Throws AdministrationError if the text is not one. */
export function merchantUuidOf(merchantId: string): string {
  const id = parseIdentifier('mer', merchantId);
  if (id !== undefined) return id;
  throw new AdministrationError(
    `"${merchantId}" is not a merchant's id: it ${identifierProblem('mer', merchantId)}; "merchant list" shows them`,
  );
}

/** Returns the UUID of a key's id. Throws AdministrationError without the text, which may be the key itself. */
export function keyUuidOf(keyId: string): string {
  const id = parseIdentifier('key', keyId);
  if (id !== undefined) return id;
  const problem = keyId.startsWith('sk_') ? 'is the key itself' : identifierProblem('key', keyId);
  throw new AdministrationError(`that is not the id of a key: it ${problem}; "key list" shows them`);
}

/** Returns the UUID of a webhook endpoint's id. Throws AdministrationError if the text is not one. */
export function endpointUuidOf(endpointId: string): string {
  const id = parseIdentifier('we', endpointId);
  if (id !== undefined) return id;
  throw new AdministrationError(
    `"${endpointId}" is not an endpoint's id: it ${identifierProblem('we', endpointId)}; "webhook list" shows them`,
  );
}

/** Returns the UUID of a payment intent's id. Throws AdministrationError if the text is not one. */
export function intentUuidOf(paymentIntentId: string): string {
  const id = parseIdentifier('pi', paymentIntentId);
  if (id !== undefined) return id;
  throw new AdministrationError(
    `"${paymentIntentId}" is not a payment intent's id: it ${identifierProblem('pi', paymentIntentId)}; "intent list" shows them`,
  );
}

/** Returns the UUID of a refund's id. Throws AdministrationError if the text is not one. */
export function refundUuidOf(refundId: string): string {
  const id = parseIdentifier('rf', refundId);
  if (id !== undefined) return id;
  throw new AdministrationError(
    `"${refundId}" is not a refund's id: it ${identifierProblem('rf', refundId)}; "refund list" shows them`,
  );
}

/** Returns the UUID of a transfer's id. Throws AdministrationError if the text is not one. */
export function transferUuidOf(transferId: string): string {
  const id = parseIdentifier('tr', transferId);
  if (id !== undefined) return id;
  throw new AdministrationError(
    `"${transferId}" is not a transfer's id: it ${identifierProblem('tr', transferId)}; "transfer list" shows them`,
  );
}
