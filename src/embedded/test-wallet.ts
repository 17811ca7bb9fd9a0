// The test wallet of the checkout page: it pays an intent with the test money of a local chain.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Hex } from 'viem';
import { networkOf } from '../contract/chains.ts';
import type { ChainName } from '../contract/words.ts';
import { PaymentIntentEntity } from '../database/entities/payment-intent.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { plainRefusal, ServiceError } from '../requests/errors.ts';
import type { OpenedIntent } from '../requests/request-context.ts';
import { payIntent, TransferRefused } from './pay-intent.ts';
import { type TestAmount, testAmountUnits } from './test-amounts.ts';

export interface TestWalletSettings {
  dataDir: string;
  /** The chains of this machine. */
  chains: readonly ChainName[];
}

/**
 * Pays an open testnet intent of one of the chains. Returns the hash of the transaction. Throws `invalid_state` for any
 * other intent and if the token refuses the transfer, and `unavailable` while the chain does not run.
 */
export async function payFromTestWallet(
  em: EntityManager,
  { dataDir, chains }: TestWalletSettings,
  { id, typeId }: OpenedIntent,
  amount: TestAmount,
): Promise<Hex> {
  const intent = await orUnavailable(() => em.fork().findOne(PaymentIntentEntity, { id }));
  // A secret that we have made, of an intent that was never stored.
  if (intent === null) throw plainRefusal('client_secret_invalid');
  const network = networkOf(intent.network);
  if (network?.mode !== 'testnet' || !chains.includes(network.chain)) {
    throw invalidState(`The test wallet pays only testnet intents on ${chains.join(' and ')}.`);
  }
  const missing = BigInt(intent.amountUnits) - BigInt(intent.amountReceivedUnits);
  if (intent.status !== 'requires_payment' || missing <= 0n) {
    throw invalidState('The test wallet pays only an intent that requires payment.');
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
  if (hash === undefined) {
    throw new ServiceError('unavailable', {
      message: `The local chain for ${network.chain} does not run yet. Retry in a moment.`,
    });
  }
  return hash;
}

function invalidState(message: string): ServiceError {
  return new ServiceError('invalid_state', { message });
}
