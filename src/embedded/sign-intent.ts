// The test wallet's account without coins for fees: it pays by a signature, with x402's own client, which is a development
// dependency, as the local facilitator is.

import { erc20Abi } from 'viem';
import { mnemonicToAccount } from 'viem/accounts';
import type { PayAnswer } from '../authorizations/pay-answers.ts';
import type { Network } from '../contract/chains.ts';
import { encodeHeader, type PaymentRequired } from '../contract/x402.ts';
import type { ChainClient } from './chain-client.ts';
import { createPayer } from './payer.ts';

/** Anvil's own, known to everybody. The chain gives coins to the first three of its accounts. */
const signer = mnemonicToAccount('test test test test test test test test test test test junk', {
  addressIndex: 9,
});

/** Signs what `ask` offers, and sends it. Resolves with the last answer, which is a refusal if nothing is offered. */
export async function signIntent(
  client: ChainClient,
  network: Network,
  ask: (signature: string | null) => Promise<PayAnswer>,
): Promise<PayAnswer> {
  const offered = await ask(null);
  if (offered.status !== 402) return offered;
  const { x402Version, accepts } = JSON.parse(offered.body) as PaymentRequired;
  const [offer] = accepts;
  if (offer === undefined) throw new Error('nothing is offered');
  await give(client, network, BigInt(offer.amount));
  const { ExactEvmScheme } = await import('@x402/evm/exact/client');
  const { payload } = await new ExactEvmScheme(signer).createPaymentPayload(x402Version, offer as never);
  return ask(encodeHeader({ x402Version, accepted: offer, payload }));
}

/** Mints what the account lacks, and waits for its block. */
async function give(client: ChainClient, network: Network, units: bigint): Promise<void> {
  const balance = await client.readContract({
    address: network.tokenAddress,
    abi: erc20Abi,
    functionName: 'balanceOf',
    args: [signer.address],
  });
  if (balance >= units) return;
  const hash = await createPayer(client, network).mint(signer.address, units);
  await client.waitForTransactionReceipt({ hash });
}
