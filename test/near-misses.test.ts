// Nearly correct keys. All are refused, and no answer reveals how close a key was.

import grpc from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { grpcCall, refusalOf, requestBytes } from './support/call.ts';
import { withCrc32 } from './support/crc32-key.ts';
import { httpRequest } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

const otherCase = (text: string) =>
  [...text].map((c) => (c === c.toLowerCase() ? c.toUpperCase() : c.toLowerCase())).join('');
const nextDigit = (digit: string) => base62.charAt((base62.indexOf(digit) + 1) % 62);
const replaceAt = (text: string, at: number, by: (digit: string) => string) =>
  text.slice(0, at) + by(text.charAt(at)) + text.slice(at + 1);

const prefixLength = 'sk_testnet_'.length;

/** Changes to a valid key. */
const nearMisses: [name: string, make: (key: string) => string][] = [
  [
    'the first character of the secret changed',
    (key) => withCrc32(replaceAt(key.slice(0, -6), prefixLength, nextDigit)),
  ],
  [
    'the last character of the secret changed',
    (key) => withCrc32(replaceAt(key.slice(0, -6), key.length - 7, nextDigit)),
  ],
  ['one character off, with the old check characters', (key) => replaceAt(key, 20, nextDigit)],
  ['the check characters off by one', (key) => replaceAt(key, key.length - 1, nextDigit)],
  [
    'the secret with upper and lower case swapped',
    (key) => withCrc32(key.slice(0, prefixLength) + otherCase(key.slice(prefixLength, -6))),
  ],
  ['the whole key with upper and lower case swapped', otherCase],
  ['without its last character', (key) => key.slice(0, -1)],
  ['without its check characters', (key) => key.slice(0, -6)],
  ['the prefix alone', (key) => key.slice(0, prefixLength)],
  ['the secret alone', (key) => key.slice(prefixLength)],
  ['one more character at the end', (key) => `${key}0`],
  ['one more character at the beginning', (key) => `x${key}`],
  ['the same key twice', (key) => `${key}${key}`],
  ['the prefix of the other mode', (key) => withCrc32(key.slice(0, -6).replace('testnet', 'mainnet'))],
  ['the prefix of the other mode, with the old check characters', (key) => key.replace('testnet', 'mainnet')],
  ['ten thousand characters', (key) => key.padEnd(10_000, 'x')],
  ['a secret of zeros', () => withCrc32(`sk_testnet_${'0'.repeat(43)}`)],
  ['a valid secret with the CRC-32 of the first release', (key) => withCrc32(key.slice(0, -6))],
  ['an SQL wildcard', (key) => `${key.slice(0, -1)}%`],
  ['text that looks like the stored hash', () => 'a'.repeat(64)],
];

/** The answer without the parts that differ from request to request. */
async function overHttp(key: string) {
  const { status, headers, body } = await httpRequest(
    `${service.publicUrl}/v1/payment_intents`,
    { headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' } },
    '{"amount_units":1}',
  );
  const { date, 'x-request-id': requestId = '', ...others } = headers;
  return { status, headers: others, body: body.replace(String(requestId), '<request id>') };
}

async function overGrpc(key: string) {
  const client = new grpc.Client(`127.0.0.1:${service.server.ports.grpc}`, grpc.credentials.createInsecure());
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${key}`);
  const { error } = await grpcCall(
    client,
    requestBytes('createPaymentIntent', { amount_units: 1 }),
    metadata,
  );
  client.close();
  if (error === undefined) return { code: 'OK' };
  const { status, docUrl, ...refusal } = refusalOf(error);
  const names = Object.keys(error.metadata.getMap()).sort();
  return { ...refusal, status, docUrl, names };
}

describe.each([
  ['public', overHttp, { status: 401, body: expect.stringContaining('"code":"api_key_invalid"') }],
  ['internal', overGrpc, { code: 'api_key_invalid', status: grpc.status.UNAUTHENTICATED }],
] as const)('the %s door', (_, ask, refusal) => {
  test.each(nearMisses)('%s', async (_, make) => {
    const { apiKey } = service.merchant.keys.testnet;
    const nearMiss = make(apiKey);
    expect(nearMiss).not.toBe(apiKey);
    const ofNobody = withCrc32(`sk_testnet_${'Z'.repeat(43)}`);
    const [answer, reference] = [await ask(nearMiss), await ask(ofNobody)];
    expect(answer).toEqual(reference);
    expect(answer).toMatchObject(refusal);
  });
});

test("another merchant's key creates an intent with that merchant's wallet", async () => {
  const other = await service.newMerchant();
  const wallets = { base: `0x${'7'.repeat(40)}` } as const;
  await service.query('update payout_wallets set address = $1 where merchant_id = $2 and chain = $3', [
    wallets.base,
    other.id,
    'base',
  ]);
  await service.keyChangesHeard();
  const { body } = await httpRequest(
    `${service.publicUrl}/v1/payment_intents`,
    {
      headers: { authorization: `Bearer ${other.keys.testnet.apiKey}`, 'content-type': 'application/json' },
    },
    '{"amount_units":1}',
  );
  expect(JSON.parse(body).expected_wallet).toBe(wallets.base);
  const [row] = await service.query<{ merchant_id: string }>(
    'select merchant_id from payment_intents order by id desc limit 1',
  );
  expect(row?.merchant_id).toBe(other.id);
});
