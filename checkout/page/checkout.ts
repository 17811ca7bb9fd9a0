import { type ChainSettings, chains } from '../../src/contract/chains.ts';
import type { Chain, Lane, Mode, PaymentIntentStatus, PaymentStatus } from '../../src/contract/gen/words.ts';
import type { Checkout as AnyCheckout, CheckoutPayment } from '../sdk/gen/checkout.ts';

/** The answer of `GET /v1/checkout`. The page is released with the service, so it knows every word. */
export interface Checkout extends AnyCheckout {
  status: PaymentIntentStatus;
  mode: Mode;
  lane: Lane;
  chain: Chain;
  token_address: `0x${string}`;
  expected_wallet: `0x${string}`;
  payments?: (CheckoutPayment & { status: PaymentStatus })[];
}

/** What is still missing, in the token's smallest unit. */
export function missingUnits({ amount_units, amount_received_units }: Checkout): number {
  return Math.max(0, amount_units - amount_received_units);
}

/** The facts of a chain by its EIP-155 id. */
export function chainFacts(id: number): ChainSettings {
  const facts = chains.find(({ chainId }) => chainId === id);
  if (facts === undefined) throw new Error(`no facts about chain ${id}`);
  return facts;
}
