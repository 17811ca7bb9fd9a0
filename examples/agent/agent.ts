// A program that pays: it takes the link of a checkout, pays by x402 from an account that needs no coin for fees,
// and waits until the payment is final.
//
//   AGENT_KEY=0x… node examples/agent/agent.ts 'https://pay.example/checkout#pi_…'
//   npm run -s agent      without a link, while npm start runs: pays an order of the demo merchant with test money
//
// Needs Node.js 24, viem, and x402's published packages: @x402/fetch, @x402/evm.

import { setTimeout as sleep } from 'node:timers/promises';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';
// In a program of your own: 'payment-intents-checkout'.
import type { Checkout } from '../../checkout/sdk/gen/checkout.ts';
import { orderOfDemoMerchant } from './setup.ts';

const { link, key } = process.argv[2]
  ? { link: process.argv[2], key: process.env.AGENT_KEY as `0x${string}` | undefined }
  : await orderOfDemoMerchant();
if (key === undefined) throw new Error('set AGENT_KEY to the private key of the account that pays');
const { origin, hash } = new URL(link);
// The secret opens this one checkout and nothing else.
const [clientSecret = ''] = hash.slice(1).split('&');
const headers = { Authorization: `Bearer ${clientSecret}` };
const readCheckout = async () => {
  const answer = await fetch(`${origin}/v1/checkout`, { headers, signal: AbortSignal.timeout(10_000) });
  if (!answer.ok) throw new Error(`no checkout: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as Checkout;
};

// What the agent may spend. By default the client refuses more than $1, and USDC on Polygon Amoy. Anybody may have
// made the link, so it must not choose which token counts as a dollar.
const usdc: Readonly<Record<number, string>> = {
  8453: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  84532: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  137: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
  80002: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
};
const { chain_id, token_address, amount_units, merchant_name } = await readCheckout();
const maxUnits = 20_000_000;
if (token_address !== usdc[chain_id]) throw new Error(`${token_address} is not USDC on chain ${chain_id}`);
if (amount_units > maxUnits) throw new Error(`${merchant_name} asks for ${amount_units} units: too much`);
const allowed = {
  network: `eip155:${chain_id}`,
  asset: token_address,
  maxAmountPerPayment: `${maxUnits}`,
} as const;
const client = new x402Client()
  .register('eip155:*', new ExactEvmScheme(privateKeyToAccount(key)))
  .setSpendControls({ allowedAssets: [allowed] });
const pay = wrapFetchWithPayment(fetch, client);

// If this fails without an answer, the payment may still arrive: run the agent again, but do not pay another way.
const answer = await pay(`${origin}/v1/checkout/pay`, {
  ...{ method: 'POST', headers },
  signal: AbortSignal.timeout(60_000),
});
// 200: it is on the chain. 202: not seen yet. The service refuses a second payment while this one can still arrive.
if (![200, 202].includes(answer.status)) throw new Error(`not paid: ${answer.status} ${await answer.text()}`);
for (;;) {
  // The payment was sent, so a failed request is repeated from here on.
  const { status, payments = [] } = await readCheckout().catch(
    ({ message }) => ({ status: message }) as Checkout,
  );
  console.log(status, payments[0]?.transaction_hash ?? '');
  if (['succeeded', 'expired', 'canceled'].includes(status)) {
    process.exitCode = status === 'succeeded' ? 0 : 1;
    break;
  }
  await sleep(2_000);
}
