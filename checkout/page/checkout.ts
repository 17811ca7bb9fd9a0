import { type ChainSettings, chains } from '../../src/contract/chains.ts';
import {
  type Chain,
  type Lane,
  type Mode,
  type PaymentIntentStatus,
  type PaymentStatus,
  paymentIntentStatusWords,
} from '../../src/contract/gen/words.ts';
import type { Checkout as AnyCheckout, CheckoutPayment } from '../sdk/gen/checkout.ts';

/** The answer of `GET /v1/checkout`, with the words that this page knows: see `isKnown`. */
export interface Checkout extends AnyCheckout {
  status: PaymentIntentStatus;
  mode: Mode;
  lane: Lane;
  chain: Chain;
  token_address: `0x${string}`;
  expected_wallet: `0x${string}`;
  payments?: (CheckoutPayment & { status: PaymentStatus })[];
}

/** False if the answer has a status or a chain newer than the page, which was opened before an update. */
export function isKnown({ status, chain_id }: Checkout): boolean {
  return Object.hasOwn(paymentIntentStatusWords, status) && findChain(chain_id) !== undefined;
}

/** What is still missing, in the token's smallest unit. */
export function missingUnits({ amount_units, amount_received_units }: Checkout): number {
  return Math.max(0, amount_units - amount_received_units);
}

/** The facts of a chain by its EIP-155 id, if this page knows it. */
export const findChain = (id: number): ChainSettings | undefined =>
  chains.find(({ chainId }) => chainId === id);

/** The facts of a chain that this page knows. */
export function chainFacts(id: number): ChainSettings {
  const facts = findChain(id);
  if (facts === undefined) throw new Error(`no facts about chain ${id}`);
  return facts;
}
