// The test wallet's account without coins for fees: it pays by a signature, as a payer's wallet would.

import { randomBytes } from 'node:crypto';
import { erc20Abi, toHex } from 'viem';
import { mnemonicToAccount } from 'viem/accounts';
import type { PayAnswer } from '../authorizations/pay-answers.ts';
import type { Network } from '../contract/chains.ts';
import { authorizationTypes } from '../contract/eip-3009.ts';
import { encodeHeader, type PaymentRequired, x402Version } from '../contract/x402.ts';
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
  const { accepts } = JSON.parse(offered.body) as PaymentRequired;
  const [offer] = accepts;
  if (offer === undefined) throw new Error('nothing is offered');
  await give(client, network, BigInt(offer.amount));
  const message = {
    from: signer.address,
    to: offer.payTo as `0x${string}`,
    value: BigInt(offer.amount),
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1_000) + offer.maxTimeoutSeconds),
    nonce: toHex(randomBytes(32)),
  };
  const signature = await signer.signTypedData({
    domain: {
      ...(offer.extra as { name: string; version: string }),
      chainId: network.chainId,
      verifyingContract: network.tokenAddress,
    },
    types: authorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message,
  });
  const authorization = Object.fromEntries(
    Object.entries(message).map(([name, value]) => [name, String(value)]),
  );
  return ask(encodeHeader({ x402Version, accepted: offer, payload: { signature, authorization } }));
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
