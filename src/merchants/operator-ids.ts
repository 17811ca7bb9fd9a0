// The ids and names that an operator gives. Checking them needs no database.

import { invisibleProblem } from '../contract/visible-text.ts';
import { type IdentifierPrefix, identifierProblem, parseIdentifier } from '../database/identifiers.ts';

/** The operator asked for something that cannot be done; the message says what to do. */
export class AdministrationError extends Error {}

/** What an operator names, and the command that shows all of them. */
const kinds = {
  mer: ['a merchant', 'merchant list'],
  key: ['a key', 'key list'],
  pi: ['a payment intent', 'intent list'],
  tr: ['a transfer', 'transfer list'],
  rf: ['a refund', 'refund list'],
  evt: ['an event', 'event list'],
  we: ['an endpoint', 'delivery list'],
  cs: ['a session', 'console list'],
} as const satisfies Partial<Record<IdentifierPrefix, readonly [what: string, list: string]>>;

export type NamedKind = keyof typeof kinds;

/** Returns the UUID of an id. Throws AdministrationError if the text is not one. */
export function uuidOf(kind: NamedKind, text: string): string {
  const id = parseIdentifier(kind, text);
  if (id !== undefined) return id;
  const [what, list] = kinds[kind];
  // The text may be a key or a client secret, which must not be printed.
  const isSecret = kind === 'key' || /^sk_|_secret_/.test(text);
  const isNot = isSecret ? `that is not the id of ${what}` : `"${text}" is not ${what}'s id`;
  const problem = text.startsWith('sk_') ? 'is a secret key itself' : identifierProblem(kind, text);
  throw new AdministrationError(`${isNot}: it ${problem}; "${list}" shows them`);
}

/** Throws AdministrationError if the text is not a name of one line. `maxLength` is in characters. */
export function assertName(of: 'merchant' | 'session', name: string, maxLength: number): void {
  const hasLength = name.trim() !== '' && [...name].length <= maxLength;
  const problem = hasLength ? invisibleProblem(name) : `has 1 to ${maxLength} characters`;
  if (problem !== undefined) throw new AdministrationError(`a ${of}'s name ${problem}`);
}

export function noneWith(kind: NamedKind, id: string): AdministrationError {
  const [what, list] = kinds[kind];
  return new AdministrationError(`there is no ${what.replace(/^an? /, '')} ${id}: "${list}" shows them`);
}
