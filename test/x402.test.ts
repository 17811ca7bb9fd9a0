// Programs that speak x402, unmodified, beside the chains of the embedded mode with their facilitator.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { x402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { decodePaymentResponseHeader, wrapFetchWithPayment } from '@x402/fetch';
import { pino } from 'pino';
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { Checkout } from '../checkout/sdk/gen/checkout.ts';
import { loadConfig } from '../src/config/config.ts';
import { networkFor } from '../src/contract/chains.ts';
import type { ChainName } from '../src/contract/words.ts';
import { findLocalChain } from '../src/embedded/find-local-chain.ts';
import { createPayer } from '../src/embedded/payer.ts';
import { runLocalChains } from '../src/embedded/run-local-chains.ts';
import { httpRequest } from './support/http-request.ts';
import { startService } from './support/service.ts';
import { gaslessLine } from './support/x402.ts';

const dataDir = await mkdtemp(join(tmpdir(), 'pi-x402-'));
const env = { DATA_DIR: dataDir, RATE_LIMIT_CHECKOUT: '0' };
const localChains = ['base', 'polygon'] as const;
const service = await startService(env, { localChains });
const stopChains = runLocalChains(
  { chains: localChains, missing: undefined },
  loadConfig(env),
  service.database.orm.em,
  service.server,
  pino({ level: 'silent' }),
);
beforeAll(() =>
  vi.waitUntil(() => service.log.filter(({ message }) => message === gaslessLine).length === 2, 60_000),
);
afterAll(async () => {
  await service.close();
  await stopChains();
  await rm(dataDir, { recursive: true, force: true });
});

const url = `${service.publicUrl}/v1/checkout/pay`;
const create = async (fields: object = {}) =>
  (await service.call('createPaymentIntent', { amount_units: 2_500_000, ...fields })).json;
const post = (secret: string, headers: Record<string, string> = {}) =>
  httpRequest(url, { method: 'POST', headers: { authorization: `Bearer ${secret}`, ...headers } });

/** An account with USDC, and without the coin for fees. */
async function newPayer(chain: ChainName, amountUnits = 10_000_000n): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(generatePrivateKey());
  const local = await findLocalChain(dataDir, chain);
  if (local === undefined) throw new Error('no chain');
  const hash = await createPayer(local.client, networkFor('testnet', chain)).mint(
    account.address,
    amountUnits,
  );
  await local.client.waitForTransactionReceipt({ hash });
  expect(await local.client.getBalance(account)).toBe(0n);
  return account;
}

/** A client as its documentation has it, with what it may spend. */
function clientOf(account: PrivateKeyAccount): x402Client {
  const allowedAssets = localChains.map((chain) => {
    const { chainId, tokenAddress } = networkFor('testnet', chain);
    return { network: `eip155:${chainId}`, asset: tokenAddress, maxAmountPerPayment: '5000000' } as const;
  });
  return new x402Client()
    .register('eip155:*', new ExactEvmScheme(account))
    .setSpendControls({ allowedAssets });
}

test('without a signature, what to pay is asked for in a header and in the body', async () => {
  const intent = await create();
  const answer = await post(intent.client_secret);
  expect(answer.status).toBe(402);
  const required = JSON.parse(answer.body);
  expect(JSON.parse(Buffer.from(String(answer.headers['payment-required']), 'base64').toString())).toEqual(
    required,
  );
  expect(required).toMatchObject({
    x402Version: 2,
    resource: { url },
    accepts: [
      {
        scheme: 'exact',
        network: 'eip155:84532',
        amount: '2500000',
        asset: intent.token_address,
        payTo: intent.expected_wallet,
        maxTimeoutSeconds: 300,
        extra: { name: 'USDC', version: '2', assetTransferMethod: 'eip3009' },
      },
    ],
  });
  expect(answer.body).not.toContain(intent.id);
});

describe.each(localChains)('@x402/fetch on %s', (chain) => {
  test('pays an intent from an account without gas', async () => {
    const intent = await create({ chain });
    const account = await newPayer(chain);
    const pay = wrapFetchWithPayment(fetch, clientOf(account));
    const answer = await pay(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${intent.client_secret}` },
    });
    const checkout = (await answer.json()) as Checkout;
    expect([answer.status, checkout.status]).toEqual([200, 'processing']);
    const response = decodePaymentResponseHeader(String(answer.headers.get('payment-response')));
    expect(response).toMatchObject({
      success: true,
      payer: account.address,
      transaction: checkout.payments?.[0]?.transaction_hash,
    });
    expect(checkout.payments?.[0]).toMatchObject({ amount_units: 2_500_000, from_address: account.address });
  });
});
