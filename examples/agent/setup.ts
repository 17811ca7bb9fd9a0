// What the agent needs from `npm start`: an order to pay, and an account with test money.

import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { createPaymentIntentsClient } from '../../client/json.ts';
import { readDemoMerchant } from '../shop/setup.ts';

const repository = resolve(import.meta.dirname, '../..');
const { DATA_DIR = '.data', PAYMENTS_URL: baseUrl = 'http://127.0.0.1:8080' } = process.env;
const amountUnits = 12_500_000;

/** Returns the link of a checkout of 12.50 USDC, and the key of a new account that has exactly that amount. */
export async function orderOfDemoMerchant(): Promise<{ link: string; key: `0x${string}` }> {
  const apiKey = readDemoMerchant(resolve(DATA_DIR)).testnet_key;
  const payments = createPaymentIntentsClient({ baseUrl, apiKey });
  const key = generatePrivateKey();
  // The test wallet can only pay intents, so it gives the account its money by paying one to its address.
  const gift = await payments.createPaymentIntent({
    amountUnits,
    walletAddress: privateKeyToAccount(key).address,
  });
  await promisify(execFile)('npm', ['run', '-s', 'admin', '--', 'test-pay', '--intent', gift.id], {
    cwd: repository,
  });
  while ((await payments.retrievePaymentIntent(gift.id)).status === 'requires_payment') await sleep(500);
  const order = await payments.createPaymentIntent({ amountUnits });
  return { link: `${baseUrl}/checkout#${order.clientSecret}`, key };
}
