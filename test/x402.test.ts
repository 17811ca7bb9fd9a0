// Unmodified x402 clients, with the chains of the embedded mode and their facilitator.

import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import { promisify } from 'node:util';
import { x402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { decodePaymentResponseHeader, wrapFetchWithPayment } from '@x402/fetch';
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { afterAll, describe, expect, test } from 'vitest';
import type { Checkout } from '../checkout/sdk/gen/checkout.ts';
import { verifyWebhook } from '../client/webhook.ts';
import { networkFor } from '../src/contract/chains.ts';
import { listenInTest } from './support/listen.ts';
import { startLocalX402 } from './support/local-x402.ts';
import { httpRequest } from './support/service.ts';

const chains = ['base', 'polygon'] as const;
const { service, receiver, webhookSecret, url, createIntent, newPayer, close } = await startLocalX402(chains);
afterAll(close);

const post = (secret: string, headers: Record<string, string> = {}) =>
  httpRequest(url, { method: 'POST', headers: { authorization: `Bearer ${secret}`, ...headers } });

/** A client as in its documentation, with a limit of what it may spend. */
function clientOf(account: PrivateKeyAccount): x402Client {
  const allowedAssets = chains.map((chain) => {
    const { chainId, tokenAddress } = networkFor('testnet', chain);
    return { network: `eip155:${chainId}`, asset: tokenAddress, maxAmountPerPayment: '5000000' } as const;
  });
  return new x402Client()
    .register('eip155:*', new ExactEvmScheme(account))
    .setSpendControls({ allowedAssets });
}

/** Resolves when the webhook of the intent's success has arrived and is verified. */
async function succeeded(intent: string): Promise<void> {
  for (let count = 1; ; count++) {
    const { body, headers } = (await receiver.arrived(count))[count - 1] ?? { body: '', headers: {} };
    const event = verifyWebhook({ body, headers, secret: webhookSecret });
    if (event.type === 'payment_intent.succeeded' && event.data.paymentIntent?.id === intent) return;
  }
}

test('a request without a signature gets the payment requirements in a header and in the body', async () => {
  const intent = await createIntent();
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

describe.each(chains)('@x402/fetch on %s', (chain) => {
  test('pays an intent from an account without gas', async () => {
    const intent = await createIntent({ chain });
    const account = privateKeyToAccount(await newPayer(chain));
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

test('the example agent pays a checkout link and waits until the payment is final, and the webhook arrives', async () => {
  const intent = await createIntent();
  const link = `${service.publicUrl}/checkout#${intent.client_secret}`;
  const env = { ...process.env, AGENT_KEY: await newPayer('base') };
  const { stdout } = await promisify(execFile)(process.execPath, ['examples/agent/agent.ts', link], { env });
  expect(stdout).toMatch(/^processing 0x[0-9a-f]{64}\n(?:processing .*\n)*succeeded 0x[0-9a-f]{64}\n$/);
  await succeeded(intent.id);
});

test('the example agent signs nothing but USDC, whatever the link asks for', async () => {
  const hostile = createServer((_, response) => {
    const token_address = '0xcbB7C0000aB88B473b1f5aFd9ef808440eed33Bf';
    response.end(JSON.stringify({ chain_id: 8453, token_address, amount_units: 20_000_000 }));
  });
  const link = `${await listenInTest(hostile)}/checkout#pi_x`;
  const env = { ...process.env, AGENT_KEY: `0x${'11'.repeat(32)}` };
  const run = promisify(execFile)(process.execPath, ['examples/agent/agent.ts', link], { env });
  await expect(run).rejects.toThrow(/is not USDC on chain 8453/);
});

test('the example agent does not pay a checkout that asks for more than it may spend', async () => {
  const intent = await createIntent({ amount_units: 20_000_001 });
  const link = `${service.publicUrl}/checkout#${intent.client_secret}`;
  const env = { ...process.env, AGENT_KEY: `0x${'11'.repeat(32)}` };
  const run = promisify(execFile)(process.execPath, ['examples/agent/agent.ts', link], { env });
  await expect(run).rejects.toThrow(/too much/);
});
