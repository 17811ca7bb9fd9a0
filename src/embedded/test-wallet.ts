// The checkout page's test wallet. Pays an intent with the test money of a local chain, or by a signature
// with x402's own client, which is a development dependency, like the local facilitator.

import type { EntityManager } from '@mikro-orm/postgresql';
import { erc20Abi, type Hex } from 'viem';
import { mnemonicToAccount } from 'viem/accounts';
import type { PayAnswer, PayRequest } from '../authorizations/pay-checkout.ts';
import { type Network, networkOf } from '../contract/chains.ts';
import type { ChainName } from '../contract/words.ts';
import { encodeHeader, type PaymentRequired } from '../contract/x402.ts';
import { PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { invalidState, ServiceError } from '../requests/errors.ts';
import type { OpenedIntent, RequestContext } from '../requests/request-context.ts';
import { orUnavailable } from '../requests/unavailable.ts';
import { findLocalChain, type LocalChain, payIntent, TransferRefused } from './local-chain.ts';

export interface TestWalletSettings {
  em: EntityManager;
  dataDir: string;
  /** The local chains. */
  chains: readonly ChainName[];
  /** Pays by a signature, as the public door does. */
  payCheckout(request: PayRequest): Promise<PayAnswer>;
}

/** The amounts that it can pay, calculated from what is missing. */
const amounts = {
  exact: (missing: bigint) => missing,
  too_little: (missing: bigint) => atLeastOne(missing / 2n),
  too_much: (missing: bigint) => missing + atLeastOne(missing / 10n),
};

/** How the checkout page pays an intent: by a transfer of an amount, or by a signature. */
export type TestPaymentKind = keyof typeof amounts | 'signed';

const atLeastOne = (units: bigint) => (units > 0n ? units : 1n);

/**
 * Pays an open testnet intent of one of the chains. Returns the hash of the transaction, or nothing for a
 * payment by a signature, which a facilitator sends. Throws `invalid_state` for any other intent and if the
 * token refuses the transfer, and `unavailable` while the chain does not run.
 */
export async function payFromTestWallet(
  { em, dataDir, chains, payCheckout }: TestWalletSettings,
  opened: OpenedIntent,
  amount: TestPaymentKind,
  context: RequestContext,
): Promise<Hex | undefined> {
  const { id, typeId } = opened;
  const intent = await orUnavailable(() => em.fork().findOne(PaymentIntentEntity, { id }));
  // The secret is genuine, but its intent was never stored.
  if (intent === null) throw new ServiceError('client_secret_invalid');
  const network = networkOf(intent.network);
  if (network?.mode !== 'testnet' || !chains.includes(network.chain)) {
    throw invalidState(`The test wallet pays only testnet intents on ${chains.join(' and ')}.`);
  }
  const missing = BigInt(intent.amountUnits) - BigInt(intent.amountReceivedUnits);
  if (intent.status !== 'requires_payment' || missing <= 0n) {
    throw invalidState('The test wallet pays only an intent that requires payment.');
  }
  if (amount === 'signed') {
    const local = await findLocalChain(dataDir, network.chain);
    if (local === undefined) throw notRunning(network);
    const answer = await signIntent(local, (signature) =>
      payCheckout({ opened, signature, resourceUrl: '', context }),
    );
    if (answer.status === 402) throw invalidState(JSON.parse(answer.body).errorMessage);
    return undefined;
  }
  const payment = {
    chain: network.chain,
    wallet: intent.expectedWallet,
    amountUnits: amounts[amount](missing),
    id: typeId,
  };
  const hash = await payIntent(dataDir, payment).catch((reason) => {
    throw reason instanceof TransferRefused
      ? invalidState(`The token refused the transfer: ${reason.message}`)
      : reason;
  });
  if (hash === undefined) throw notRunning(network);
  return hash;
}

function notRunning({ chain }: Network): ServiceError {
  return new ServiceError('unavailable', {
    message: `The local chain for ${chain} does not run yet. Retry in a moment.`,
  });
}

/** One of anvil's well-known accounts, without coins: anvil gives them only to the first three. */
const signer = mnemonicToAccount('test test test test test test test test test test test junk', {
  addressIndex: 9,
});

/** Signs the offer of `ask` and sends it. Resolves with the last answer: the first one if it was no offer. */
async function signIntent(local: LocalChain, ask: (signature: string | null) => Promise<PayAnswer>) {
  const offered = await ask(null);
  if (offered.status !== 402) return offered;
  const { x402Version, accepts } = JSON.parse(offered.body) as PaymentRequired;
  const [offer] = accepts;
  if (offer === undefined) throw new Error('nothing is offered');
  await ensureBalance(local, BigInt(offer.amount));
  const { ExactEvmScheme } = await import('@x402/evm/exact/client');
  const { payload } = await new ExactEvmScheme(signer).createPaymentPayload(x402Version, offer as never);
  return ask(encodeHeader({ x402Version, accepted: offer, payload }));
}

/** Mints the amount if the account has less, and waits for the block. */
async function ensureBalance({ client, network, payer }: LocalChain, units: bigint): Promise<void> {
  const call = { abi: erc20Abi, functionName: 'balanceOf', args: [signer.address] } as const;
  const balance = await client.readContract({ address: network.tokenAddress, ...call });
  if (balance >= units) return;
  const hash = await payer.mint(signer.address, units);
  await client.waitForTransactionReceipt({ hash });
}
