// The chains of the embedded mode, each with its facilitator, and payers without gas.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { expect, vi } from 'vitest';
import { loadConfig } from '../../src/config/config.ts';
import { networkFor } from '../../src/contract/chains.ts';
import type { ChainName } from '../../src/contract/words.ts';
import { createPayer } from '../../src/embedded/contracts.ts';
import { findLocalChain } from '../../src/embedded/local-chain.ts';
import { runLocalChains } from '../../src/embedded/run-local-chains.ts';
import { startReceiver } from './receiver.ts';
import { startService } from './service.ts';
import { gaslessLine } from './x402.ts';

/** Starts everything, with a receiver of the merchant's webhooks. The caller closes it. */
export async function startLocalX402(chains: readonly ChainName[]) {
  const dataDir = await mkdtemp(join(tmpdir(), 'pi-x402-'));
  const env = { DATA_DIR: dataDir, RATE_LIMIT_CHECKOUT: '0' };
  const service = await startService(env, { localChains: chains });
  const stopChains = runLocalChains(
    { chains, missing: undefined },
    loadConfig(env),
    service.database.orm.em,
    service.server,
    pino({ level: 'silent' }),
  );
  const isPossible = () => service.log.filter(({ message }) => message === gaslessLine).length;
  await vi.waitUntil(() => isPossible() === chains.length, 60_000);
  const receiver = await startReceiver();
  const { json: endpoint } = await service.call('createWebhookEndpoint', { url: receiver.url });
  return {
    service,
    receiver,
    webhookSecret: endpoint.secret as string,
    url: `${service.publicUrl}/v1/checkout/pay`,
    createIntent: async (fields: object = {}) =>
      (await service.call('createPaymentIntent', { amount_units: 2_500_000, ...fields })).json,
    /** Creates a key whose account has 10 USDC on the chain, and nothing else. */
    async newPayer(chain: ChainName): Promise<`0x${string}`> {
      const key = generatePrivateKey();
      const { address } = privateKeyToAccount(key);
      const local = await findLocalChain(dataDir, chain);
      if (local === undefined) throw new Error('no chain');
      const payer = createPayer(local.client, networkFor('testnet', chain));
      await local.client.waitForTransactionReceipt({ hash: await payer.mint(address, 10_000_000n) });
      expect(await local.client.getBalance({ address })).toBe(0n);
      return key;
    },
    async close() {
      await receiver.close();
      await service.close();
      await stopChains();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
