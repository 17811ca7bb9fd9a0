// The test wallet of the checkout page: it pays an intent with the test money of a local chain.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Hex } from 'viem';
import type { PayAnswer } from '../authorizations/pay-answers.ts';
import type { PayRequest } from '../authorizations/pay-checkout.ts';
import { type Network, networkOf } from '../contract/chains.ts';
import type { ChainName } from '../contract/words.ts';
import { PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { ServiceError } from '../requests/errors.ts';
import type { OpenedIntent, RequestContext } from '../requests/request-context.ts';
import { orUnavailable } from '../requests/unavailable.ts';
import { findLocalChain } from './local-chain.ts';
import { payIntent, TransferRefused } from './pay-intent.ts';
import { signIntent } from './sign-intent.ts';
import { type TestPaymentKind, testAmountUnits } from './test-amounts.ts';

interface TestWalletSettings {
  dataDir: string;
  /** The chains of this machine. */
  chains: readonly ChainName[];
  /** Pays by a signature, as the public door does. */
  payCheckout(request: PayRequest): Promise<PayAnswer>;
}

/**
 * Pays an open testnet intent of one of the chains. Returns the hash of the transaction, or nothing for a payment by a
 * signature, which somebody else sends. Throws `invalid_state` for any other intent and if the token refuses the
 * transfer, and `unavailable` while the chain does not run.
 */
export async function payFromTestWallet(
  em: EntityManager,
  { dataDir, chains, payCheckout }: TestWalletSettings,
  opened: OpenedIntent,
  amount: TestPaymentKind,
  context: RequestContext,
): Promise<Hex | undefined> {
  const { id, typeId } = opened;
  const intent = await orUnavailable(() => em.fork().findOne(PaymentIntentEntity, { id }));
  // A secret that we have made, of an intent that was never stored.
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
    const answer = await signIntent(local.client, network, (signature) =>
      payCheckout({ opened, signature, resourceUrl: '', context }),
    );
    if (answer.status === 402) throw invalidState(JSON.parse(answer.body).errorMessage);
    return undefined;
  }
  const payment = {
    chain: network.chain,
    wallet: intent.expectedWallet,
    amountUnits: testAmountUnits(amount, missing),
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

function invalidState(message: string): ServiceError {
  return new ServiceError('invalid_state', { message });
}
