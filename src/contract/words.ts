// The words of the contract's enums, as the database, JSON and the command line write them. On the server,
// `Chain` is the number in a message, and `ChainName` is its word.

import {
  chainWords,
  laneWords,
  modeWords,
  paymentIntentStatusWords,
  refundStatusWords,
  webhookDeliveryStatusWords,
} from './gen/words.ts';

export type {
  Chain as ChainName,
  Lane as LaneName,
  Mode as ModeName,
  PaymentIntentStatus as StatusName,
  RefundStatus as RefundStatusName,
  WebhookDeliveryStatus as DeliveryStatusName,
} from './gen/words.ts';

type Words<Word extends string> = Readonly<Record<Word, number>>;

const namesIn = <Word extends string>(words: Words<Word>) => Object.keys(words) as Word[];

export const chainNames = namesIn(chainWords);
export const deliveryStatusNames = namesIn(webhookDeliveryStatusWords);
export const laneNames = namesIn(laneWords);
export const modeNames = namesIn(modeWords);
export const refundStatusNames = namesIn(refundStatusWords);
export const statusNames = namesIn(paymentIntentStatusWords);

export const labelNames: readonly string[] = [
  ...['underpaid', 'overpaid', 'late', 'after_cancel', 'found_late', 'wrong_token', 'reorged'],
];

/** The contract's number for a word in the database. Throws for a word that only newer processes know. */
export function numberOf<Word extends string, Table extends Words<Word>>(
  words: Table,
  word: Word,
): Table[Word] {
  return words[word] ?? throwNewer(word);
}

/** The word for the contract's number, or undefined if there is none. */
export function nameOf<Word extends string>(words: Words<Word>, number: number): Word | undefined {
  return namesIn(words).find((word) => words[word] === number);
}

/** The fault of a value that is none of the words, to follow the name of its field. */
export function mustBe(words: Words<string>): string {
  return `must be "${namesIn(words).join('" or "')}"`;
}

/** The database holds a value that only a newer process knows. */
export class NewerThanProcess extends Error {}

export function throwNewer(what: string): never {
  throw new NewerThanProcess(`the database holds ${what}, which is newer than this process`);
}
