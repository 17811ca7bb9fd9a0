// What the shop registers with the payment service when it starts.

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

/** Returns the demo merchant that `npm start` has created in this folder. */
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
 * Creates the shop's webhook endpoint, unless its secret is known, and enables it. The idempotency key makes a
 * repeated call return the same endpoint with its first secret. Your own shop should store the secret, because
 * a rotation replaces it. This also handles events that the service could not deliver.
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
  // The service stops sending an event after three days of failures, and disables an endpoint that keeps failing.
  let isThere = false;
  for await (const endpoint of payments.listWebhookEndpoints()) {
    if (endpoint.url !== url) continue;
    await payments.updateWebhookEndpoint(endpoint.id, { enabled: true });
    isThere = true;
  }
  if (!isThere && known === undefined) {
    throw new Error(`the webhook endpoint of ${url} was deleted: create another, and set WEBHOOK_SECRET`);
  }
  // With many events a month, begin with `after`, the id of an event from before the outage.
  for await (const event of payments.listEvents({ pageSize: 100 })) handle(event);
  return secret;
}

/**
 * Allows the checkout to return to these origins and to send them messages. Replaces the merchant's earlier
 * origins. Only the service's operator can run this command: without the demo merchant, the shop prints it instead.
 */
export async function registerOrigins(merchantId: string | undefined, origins: string[]): Promise<void> {
  const options = ['--mode', 'testnet', '--origins', origins.join(',')];
  const command = ['merchant', 'set-origins', '--merchant', merchantId ?? 'mer_…', ...options];
  if (merchantId === undefined) {
    console.log(`allow the checkout to return to this shop, once: npm run -s admin -- ${command.join(' ')}`);
    return;
  }
  await admin(...command);
}

/**
 * Sends a refund from the test wallet of the local chain. In your own shop, the wallet that receives the
 * payments signs and sends `refund.transaction` instead.
 */
export const sendRefund = (refundId: string) => admin('test-refund', '--refund', refundId);

const admin = (...command: string[]) =>
  promisify(execFile)(process.execPath, ['src/admin.ts', ...command], { cwd: repository });
