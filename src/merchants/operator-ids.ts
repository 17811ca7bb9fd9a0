// The ids that an operator names. Checking them needs no database.

import { type IdentifierPrefix, identifierProblem, parseIdentifier } from '../database/identifiers.ts';

/** The operator asked for something that cannot be done; the message says what to do. */
export class AdministrationError extends Error {}

/** Returns the function that returns the UUID of an id. It throws AdministrationError if the text is not one. */
const uuidOf = (prefix: IdentifierPrefix, whose: string, list: string) => (text: string) => {
  const id = parseIdentifier(prefix, text);
  if (id !== undefined) return id;
  throw new AdministrationError(
    `"${text}" is not ${whose} id: it ${identifierProblem(prefix, text)}; "${list}" shows them`,
  );
};

export const merchantUuidOf = uuidOf('mer', "a merchant's", 'merchant list');
export const intentUuidOf = uuidOf('pi', "a payment intent's", 'intent list');
export const transferUuidOf = uuidOf('tr', "a transfer's", 'transfer list');
export const refundUuidOf = uuidOf('rf', "a refund's", 'refund list');
export const endpointUuidOf = uuidOf('we', "an endpoint's", 'delivery list');
export const sessionUuidOf = uuidOf('cs', "a session's", 'console list');

/** Returns the UUID of a key's id. Throws AdministrationError without the text, which may be the key itself. */
export function keyUuidOf(keyId: string): string {
  const id = parseIdentifier('key', keyId);
  if (id !== undefined) return id;
  const problem = keyId.startsWith('sk_') ? 'is the key itself' : identifierProblem('key', keyId);
  throw new AdministrationError(`that is not the id of a key: it ${problem}; "key list" shows them`);
}
