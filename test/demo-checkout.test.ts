// The payment intent whose checkout `npm start` prints.

import { expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { demoClientSecret, ensureDemo } from '../src/embedded/demo.ts';
import { useFolder } from './support/folder.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });

const dataDir = await useFolder();
const demo = await ensureDemo(service.database, dataDir);

const ask = () => demoClientSecret(service.database, loadConfig({}), demo);
const idIn = (secret: string) => secret.slice(0, secret.indexOf('_secret_'));
const change = (secret: string, columns: string) =>
  service.query(`update payment_intents set ${columns} where id = $1`, [parseIdentifier('pi', idIn(secret))]);

test('is open for an hour, and pays the demo merchant', async () => {
  const secret = await ask();
  const answer = await fetch(`${service.publicUrl}/v1/checkout`, {
    headers: { authorization: `Bearer ${secret}` },
  });
  const checkout = (await answer.json()) as { expires_at: string };
  expect(checkout).toMatchObject({
    id: idIn(secret),
    status: 'requires_payment',
    mode: 'testnet',
    chain: 'base',
    amount_units: 12_500_000,
    expected_wallet: demo.wallet_address,
    merchant_name: 'Demo merchant',
  });
  const minutesLeft = (Date.parse(checkout.expires_at) - Date.now()) / 60_000;
  expect(minutesLeft).toBeGreaterThan(55);
  expect(minutesLeft).toBeLessThanOrEqual(60);
});

test('stays the same while it is open, also for concurrent requests', async () => {
  const secret = await ask();
  await change(secret, 'amount_received_units = 1');
  expect(await Promise.all([ask(), ask()])).toEqual([secret, secret]);
});

test.each([
  ['is canceled', `status = 'canceled', canceled_at = now()`],
  ['is expired', `status = 'expired', expired_at = now()`],
  ['is being paid', `status = 'processing'`],
  ['is paid', `status = 'succeeded', succeeded_at = now()`],
  ['is about to expire', `expires_at = expires_at - interval '51 minutes'`],
])('is a new one after the last one %s', async (_, columns) => {
  const before = await ask();
  await change(before, columns);
  const after = await ask();
  expect(after).not.toBe(before);
  expect(await ask()).toBe(after);
});

test('is never an intent that the developer created', async () => {
  const before = await ask();
  const created = await fetch(`${service.publicUrl}/v1/payment_intents`, {
    method: 'POST',
    headers: { authorization: `Bearer ${demo.testnet_key}`, 'content-type': 'application/json' },
    body: '{"amount_units":7}',
  });
  const { id } = (await created.json()) as { id: string };
  await service.query(`update payment_intents set status = 'canceled', canceled_at = now() where id = $1`, [
    parseIdentifier('pi', id),
  ]);
  expect(await ask()).toBe(before);
});
