// What the shop tells the payment service once, at its start.

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { PaymentIntentsClient } from '../../client/json.ts';
import type { Event } from '../../client/webhook.ts';

const repository = resolve(import.meta.dirname, '../..');

interface DemoMerchant {
  merchant_id: string;
  testnet_key: string;
}

/** Returns the demo merchant that `npm start` has made in this folder. */
export function readDemoMerchant(dataDir: string): DemoMerchant {
  const file = join(dataDir, 'demo.json');
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    throw new Error(
      `there is no ${file}: run "npm start" in another terminal first, or set PAYMENTS_API_KEY`,
    );
  }
}

/**
 * Creates the shop's webhook endpoint, unless its secret is known. The idempotency key makes a repeated call
 * return the same endpoint with its first secret. Your own shop stores the secret, because a rotation
 * replaces it. Events that the service has not sent are handled here.
 */
export async function registerWebhook(
  payments: PaymentIntentsClient,
  url: string,
  handle: (event: Event) => void,
  known: string | undefined,
): Promise<string> {
  const options = { idempotencyKey: `examples/shop/${url}` };
  const create = () => payments.createWebhookEndpoint({ url, description: 'examples/shop' }, options);
  const secret = known ?? (await create()).secret;
  // The service gives up on events that fail for three days, and in the end on the endpoint. A shop with many
  // events a month starts after the last one that it has stored.
  let isThere = false;
  for await (const endpoint of payments.listWebhookEndpoints()) {
    if (endpoint.url !== url) continue;
    await payments.updateWebhookEndpoint(endpoint.id, { enabled: true });
    isThere = true;
  }
  if (!isThere && known === undefined) {
    throw new Error(`the webhook endpoint of ${url} was deleted: create another, and set WEBHOOK_SECRET`);
  }
  for await (const event of payments.listEvents()) handle(event);
  return secret;
}

/**
 * Lets the checkout return to these origins and message them. Replaces the merchant's earlier origins. Only
 * the service's operator can run this command: without the demo merchant, the shop prints it instead.
 */
export async function registerOrigins(merchantId: string | undefined, origins: string[]): Promise<void> {
  const options = ['--mode', 'testnet', '--origins', origins.join(',')];
  const command = ['merchant', 'set-origins', '--merchant', merchantId ?? 'mer_…', ...options];
  if (merchantId === undefined) {
    console.log(`let the checkout come back to this shop, once: npm run -s admin -- ${command.join(' ')}`);
    return;
  }
  await admin(...command);
}

/**
 * Sends a refund from the test wallet of the local chain. In your own shop, the wallet that receives the
 * payments signs `refund.transaction` instead.
 */
export const sendRefund = (refundId: string) => admin('test-refund', '--refund', refundId);

const admin = (...command: string[]) =>
  promisify(execFile)(process.execPath, ['src/admin.ts', ...command], { cwd: repository });
