import { notAName } from '../src/contract/nearest-name.ts';
import { type Chain, chains, type Lane, lanes, type Token, tokens } from './enums.ts';
import { PaymentIntentsError } from './error.ts';
import { copyMetadata, describe, type Violate } from './metadata.ts';
import type { CreatePaymentIntent, JsonObject } from './payment-intent.ts';

/** A create whose values have types that both protocols can send. The server checks the values. */
export interface CreateRequest {
  amountUnits: bigint;
  chain: Chain | undefined;
  walletAddress: string | undefined;
  expiresInMinutes: number | undefined;
  lane: Lane | undefined;
  metadata: JsonObject | undefined;
  token: Token | undefined;
}

const fields = [
  'amountUnits',
  'chain',
  'walletAddress',
  'expiresInMinutes',
  'lane',
  'metadata',
  'token',
] as const satisfies (keyof CreatePaymentIntent)[];

const maxFaults = 20;

/**
 * Reads the create once, so that every try sends the same. Throws `invalid_body` with every fault: unknown fields, and
 * values that one of the protocols would drop, change or fail to send.
 */
export function readCreate(create: unknown): CreateRequest {
  const details: { field: string; message: string }[] = [];
  const violate: Violate = (field, message) => void details.push({ field, message });
  if (typeof create !== 'object' || create === null) {
    throw invalidBody([{ field: 'body', message: `must be an object, not ${describe(create)}` }]);
  }
  for (const name of Object.keys(create)) {
    if (!(fields as readonly string[]).includes(name)) violate(name, notAName('a field', name, fields));
  }
  const given = create as Record<(typeof fields)[number], unknown>;
  const request: CreateRequest = {
    amountUnits: readAmount(given.amountUnits, violate),
    chain: readEnumValue('chain', chains, given.chain, violate),
    walletAddress: readText('wallet_address', given.walletAddress, violate),
    expiresInMinutes: readMinutes(given.expiresInMinutes, violate),
    lane: readEnumValue('lane', lanes, given.lane, violate),
    metadata: given.metadata == null ? undefined : copyMetadata(given.metadata, violate),
    token: readEnumValue('token', tokens, given.token, violate),
  };
  if (details.length > 0) throw invalidBody(details);
  return request;
}

/** Returns the exact amount. It is never rounded. */
function readAmount(units: unknown, violate: Violate): bigint {
  if (typeof units === 'bigint' && BigInt.asIntN(54, units) === units) return units;
  if (typeof units === 'number' && Number.isSafeInteger(units)) return BigInt(units);
  violate(
    'amount_units',
    `must be an integer from 1 to ${Number.MAX_SAFE_INTEGER}, as a number or bigint, not ${describe(units)}`,
  );
  return 0n;
}

function readEnumValue<Word extends string>(
  field: string,
  words: Readonly<Record<Word, number>>,
  word: unknown,
  violate: Violate,
): Word | undefined {
  if (word == null) return undefined;
  if (typeof word === 'string' && Object.hasOwn(words, word)) return word as Word;
  const known = Object.keys(words).map((name) => `"${name}"`);
  violate(field, `must be ${known.join(' or ')}, not ${describe(word)}`);
  return undefined;
}

function readText(field: string, text: unknown, violate: Violate): string | undefined {
  if (text == null) return undefined;
  if (typeof text === 'string' && text.isWellFormed()) return text;
  violate(field, `must be text, not ${describe(text)}`);
  return undefined;
}

function readMinutes(minutes: unknown, violate: Violate): number | undefined {
  if (minutes == null) return undefined;
  if (typeof minutes === 'number' && Number.isSafeInteger(minutes)) return minutes;
  violate('expires_in_minutes', `must be an integer, as a number, not ${describe(minutes)}`);
  return undefined;
}

function invalidBody(details: readonly { field: string; message: string }[]): PaymentIntentsError {
  const [first, ...others] = details;
  const more = others.length > 0 ? `; and ${others.length} more` : '';
  return new PaymentIntentsError('invalid_body', `${first?.field} ${first?.message}${more}`, {
    details: details.slice(0, maxFaults),
  });
}
