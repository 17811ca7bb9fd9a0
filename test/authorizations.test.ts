// Payments by signature: each check, everything that a facilitator may do, which intent a transfer pays, and
// that nobody pays twice. The chain, the facilitator and the watcher advance only when the test says so.

import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import http2 from 'node:http2';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import type { Hex } from 'viem';
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { createFacilitator } from '../src/authorizations/facilitator.ts';
import { offerGasless } from '../src/authorizations/gasless.ts';
import { isOffered, offerOf, refusalOf } from '../src/authorizations/offer.ts';
import { bridgedUsdcAddresses, chainNamed } from '../src/contract/chains.ts';
import { authorizationUsedTopic, transferWithAuthorization } from '../src/contract/eip-3009.ts';
import type { ChainName } from '../src/contract/words.ts';
import { type PaymentRequirements, readPayment, type SignedPayment } from '../src/contract/x402.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { makeCertificate } from './support/certificates.ts';
import { accounts, deployer, relayer } from './support/chain-contracts.ts';
import { useFolder } from './support/folder.ts';
import { amount, type Json, type Order, type PayAnswer, useGasless } from './support/gasless.ts';
import { listenInTest } from './support/listen.ts';
import { startLyingNode } from './support/lying-node.ts';
import { createSigningSafe } from './support/safe.ts';
import { httpRequest, startService } from './support/service.ts';
import { createTestWatcher, idBytes } from './support/settlement.ts';
import {
  type Behaviour,
  callOf,
  cancelCall,
  gaslessLine,
  nonceOf,
  paymentHeader,
  randomNonce,
  type Signed,
  type SignedFields,
  sign,
  startTestFacilitator,
} from './support/x402.ts';

const gasless = await useGasless('api,expiry');
const { chain, facilitator, node, service, watcher, start, pay } = gasless;
const { newAccount, createIntent, newOrder, statusesOf, readBlock } = gasless;
const { confirmationsRequired } = chain.network;

const statusOf = async (id: string) => (await service.call('getPaymentIntent', { id })).json;
const checkoutOf = async ({ secret }: { secret: string }): Promise<Json> =>
  (await service.call('getCheckout', {}, { apiKey: secret })).json;

/** The payment header of the account's signature for the offer. */
const headerOf = async ({ account, offer }: Pick<Order, 'account' | 'offer'>) =>
  paymentHeader(await sign(account, offer), offer);

/** Sends a payment, and mines its block as soon as the facilitator has sent it. */
async function payAndMine({ secret, offer }: Order, signed: Signed): Promise<PayAnswer> {
  const sent = facilitator.nextSent();
  const answer = pay(secret, paymentHeader(signed, offer));
  await sent;
  await readBlock();
  return answer;
}

/** Resolves when a transaction waits for the next block. */
async function pooled(): Promise<void> {
  while ((await chain.client.getTxpoolStatus()).pending === 0) await sleep(5);
}

/** The code of a contract that makes this call when it is created, and does not contain its selector. */
function hiddenCall(to: Hex, data: Hex): Hex {
  const word = (value: number | bigint, bytes: number) => value.toString(16).padStart(2 * bytes, '0');
  const length = `61${word(data.length / 2 - 1, 2)}`;
  const inverted = word(~BigInt(data.slice(0, 10)) & 0xffffffffn, 4);
  const codeAt = (offset: number) =>
    [
      `${length}61${word(offset, 2)}600039`, // Copies the data to memory,
      `63${inverted}1960e01b60005117600052`, // puts the selector in front of it,
      `60006000${length}6000600073${to.slice(2)}5af100`, // and calls.
    ].join('');
  return `0x${codeAt(codeAt(0).length / 2)}00000000${data.slice(10)}`;
}

/** The URL of a node whose results are changed. */
async function nodeWith(change: (method: string, result: Json) => Json): Promise<string> {
  const liar = await startLyingNode(chain.url);
  onTestFinished(liar.close);
  liar.rewrite(({ method }, { result }) => (result ? { result: change(method, result) } : undefined));
  return liar.url;
}

/** A submitted authorization that nobody has sent, valid for 20 s more. */
async function submitted(fields: object = {}) {
  const order = await newOrder(fields);
  const head = await chain.client.getBlock();
  const now = Math.max(Number(head.timestamp), Math.floor(Date.now() / 1_000));
  const validBefore = BigInt(now + 20);
  const signed = await sign(order.account, order.offer, { validBefore });
  facilitator.behaviour = { '/verify': () => ({ isValid: false }) };
  const header = paymentHeader(signed, order.offer);
  expect((await pay(order.secret, header)).status).toBe(202);
  return { order, signed, header, validBefore: Number(validBefore) };
}

test('a payment lands, is attributed by its nonce, and is answered with its transaction', async () => {
  const order = await newOrder();
  const signed = await sign(order.account, order.offer);
  const timeout = vi.spyOn(AbortSignal, 'timeout');
  const answer = await payAndMine(order, signed);
  // The payer waits 25 s at most, and the facilitator may take 30 s.
  expect(timeout.mock.calls.flat()).toEqual(expect.arrayContaining([25_000, 30_000]));
  timeout.mockRestore();
  expect(answer).toMatchObject({
    status: 200,
    json: { status: 'processing', gasless: false },
    settled: { success: true, network: 'eip155:84532', payer: order.account.address },
  });
  expect(answer.settled?.transaction).toBe(answer.json.payments[0].transaction_hash);
  expect(await statusesOf(order.id)).toEqual(['landed']);
  await readBlock(10);
  expect((await statusOf(order.id)).status).toBe('succeeded');
  // The same request again, and one without a signature, return the outcome.
  expect(await pay(order.secret, paymentHeader(signed, order.offer))).toMatchObject({
    status: 200,
    settled: { success: true },
  });
  expect(await pay(order.secret)).toMatchObject({
    status: 200,
    json: { status: 'succeeded' },
    settled: undefined,
  });
});

describe('a payment is refused before the facilitator is asked', () => {
  const now = () => BigInt(Math.floor(Date.now() / 1_000));
  const other = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
  test.each<[string, Partial<SignedFields>, Partial<PaymentRequirements>, string]>([
    ['another scheme', {}, { scheme: 'upto' }, 'invalid_scheme'],
    [
      'Permit2',
      {},
      { extra: { name: 'USDC', version: '2', assetTransferMethod: 'permit2' } },
      'invalid_scheme',
    ],
    ['another chain', {}, { network: 'eip155:8453' }, 'invalid_network'],
    ['another token', {}, { asset: other }, 'invalid_payment_requirements'],
    ['another wallet', { to: other }, {}, 'invalid_exact_evm_recipient_mismatch'],
    ['another wallet in the accepted offer', {}, { payTo: other }, 'invalid_exact_evm_recipient_mismatch'],
    [
      'another domain',
      {},
      { extra: { name: 'USD Coin', version: '2' } },
      'invalid_exact_evm_token_name_mismatch',
    ],
    [
      'another value than in the accepted offer',
      { value: 1_000_001n },
      {},
      'invalid_exact_evm_payload_authorization_value_mismatch',
    ],
    [
      'less than the amount due',
      { value: 999_999n },
      { amount: '999999' },
      'invalid_exact_evm_authorization_value',
    ],
    [
      'more than the amount due and a little dust',
      { value: 1_010_001n },
      { amount: '1010001' },
      'invalid_exact_evm_authorization_value',
    ],
    [
      'a start in the future',
      { validAfter: now() + 100n },
      {},
      'invalid_exact_evm_payload_authorization_valid_after',
    ],
    [
      'an end within 15 s',
      { validBefore: now() + 10n },
      {},
      'invalid_exact_evm_payload_authorization_valid_before',
    ],
    [
      "an end after the intent's",
      { validBefore: now() + 86_400n },
      {},
      'invalid_exact_evm_payload_authorization_valid_before',
    ],
  ])('%s', async (_, fields, accepted, reason) => {
    const order = await newOrder();
    const [asked, requests] = [facilitator.asked.length, node.requests.length];
    const answer = await pay(
      order.secret,
      paymentHeader(await sign(order.account, order.offer, fields), { ...order.offer, ...accepted }),
    );
    expect(answer).toMatchObject({
      status: 402,
      settled: { success: false, errorReason: reason, transaction: '' },
    });
    expect(answer.json.errorMessage).toMatch(/\.$/);
    expect([facilitator.asked.length, node.requests.length]).toEqual([asked, requests]);
    expect(await statusesOf(order.id)).toEqual([]);
  });

  test('a signature of another key, and one that is no signature', async () => {
    const order = await newOrder();
    const signed = await sign(order.account, order.offer);
    const stranger = privateKeyToAccount(generatePrivateKey());
    const byStranger = await sign(stranger, order.offer, {
      from: order.account.address,
      nonce: signed.nonce,
    });
    for (const signature of [byStranger.signature, '0x00' as Hex]) {
      const asked = facilitator.asked.length;
      const answer = await pay(order.secret, paymentHeader({ ...signed, signature }, order.offer));
      expect(answer).toMatchObject({ status: 402, settled: { errorReason: 'invalid_exact_evm_signature' } });
      expect(facilitator.asked.length).toBe(asked);
    }
    // The code of an account is asked for once.
    expect(
      node.requests.filter(
        ({ method, params: [address] }) => method === 'eth_getCode' && address === signed.from.toLowerCase(),
      ),
    ).toHaveLength(1);
  });

  test('what the token would refuse: too little money, a used nonce, a blocked account, a pause', async () => {
    const poor = await newOrder();
    const account = await newAccount(1n);
    expect(await pay(poor.secret, await headerOf({ ...poor, account }))).toMatchObject({
      settled: { errorReason: 'invalid_exact_evm_insufficient_balance' },
    });
    const used = await newOrder();
    const signed = await sign(used.account, used.offer);
    await facilitator.send({
      ...(await sign(used.account, { ...used.offer, payTo: other }, { nonce: signed.nonce })),
    });
    await readBlock();
    expect(await pay(used.secret, paymentHeader(signed, used.offer))).toMatchObject({
      settled: { errorReason: 'invalid_exact_evm_nonce_already_used' },
    });
    const blocked = await newOrder();
    await chain.blacklist(blocked.account.address);
    await readBlock();
    expect(await pay(blocked.secret, await headerOf(blocked))).toMatchObject({
      settled: { errorReason: 'invalid_exact_evm_account_blocked' },
    });
    const paused = await newOrder();
    await chain.pause();
    await readBlock();
    const whilePaused = await pay(paused.secret, await headerOf(paused));
    await chain.unpause();
    await readBlock();
    expect(whilePaused).toMatchObject({ settled: { errorReason: 'invalid_exact_evm_token_paused' } });
  });

  test('a malformed header: each faulty field is named', async () => {
    const { secret, offer, account } = await newOrder();
    const fieldsOf = ({ json }: PayAnswer) => json.error.details.map(({ field }: Json) => field);
    const notJson = await pay(secret, 'e30');
    expect([notJson.status, notJson.json.error.code]).toEqual([400, 'invalid_body']);
    expect(fieldsOf(notJson)).toContain('PAYMENT-SIGNATURE.payload.authorization.nonce');
    expect(fieldsOf(await pay(secret, '%%%'))).toEqual(['PAYMENT-SIGNATURE']);
    const wrong = { ...(await sign(account, offer)), nonce: '0x12' as Hex };
    expect(fieldsOf(await pay(secret, paymentHeader(wrong, offer)))).toEqual([
      'PAYMENT-SIGNATURE.payload.authorization.nonce',
    ]);
    const long = Buffer.from(JSON.stringify({ a: 'x'.repeat(8_000) })).toString('base64');
    expect((await pay(secret, long)).json.error.details[0].message).toMatch(/at most 8192/);
  });

  test.each([
    ['from one address', false],
    ['for one intent from throwaway accounts', true],
  ])('more than ten payments %s within a minute', async (_, isAnew) => {
    let order = await newOrder();
    let account = await newAccount(1n);
    const payments: [string, string][] = [];
    for (let i = 0; i < 11; i++) {
      if (isAnew) account = await newAccount(1n);
      else order = await newOrder();
      payments.push([order.secret, await headerOf({ ...order, account })]);
    }
    const answers: number[] = [];
    for (const payment of payments) answers.push((await pay(...payment)).status);
    expect(answers).toEqual([...Array(10).fill(402), 429]);
  });
});

describe('a facilitator', () => {
  /** Pays while the facilitator behaves this way. Returns the pending `answer`. */
  async function payWith(behaviour: Partial<Record<string, Behaviour>>) {
    const order = await newOrder();
    facilitator.behaviour = behaviour;
    const signed = await sign(order.account, order.offer);
    return { order, signed, answer: pay(order.secret, paymentHeader(signed, order.offer)) };
  }
  const sendsAnd =
    (answer: (response: ServerResponse) => void): Behaviour =>
    async (signed, response) => {
      await facilitator.send(signed);
      answer(response);
    };
  const refusesToVerify = { '/verify': () => ({ isValid: false, invalidReason: 'insufficient_funds' }) };

  test('that rejects a payment does not release its authorization, which can still be used', async () => {
    const { order, signed, answer } = await payWith(refusesToVerify);
    expect(await answer).toMatchObject({
      status: 202,
      json: { status: 'requires_payment', gasless: false, authorization: { status: 'submitted' } },
      settled: undefined,
    });
    expect(facilitator.asked.at(-1)).toBe('/verify');
    // No other signature is accepted, nothing is offered, and the intent cannot be canceled.
    const another = await sign(order.account, order.offer);
    for (const header of [paymentHeader(another, order.offer), undefined]) {
      expect(await pay(order.secret, header)).toMatchObject({
        status: 409,
        json: {
          error: { code: 'invalid_state', message: expect.stringMatching(/can still arrive until 20/) },
        },
      });
    }
    const cancel = await service.call('cancelPaymentIntent', { id: order.id });
    expect([cancel.code, cancel.message]).toEqual(['invalid_state', expect.stringMatching(/until 20/)]);
    // Somebody sends a copy of the signature.
    await facilitator.send(signed);
    await readBlock();
    expect(await statusOf(order.id)).toMatchObject({ status: 'processing', amount_received_units: amount });
  });

  test.each<[string, Behaviour]>([
    [
      'rejects and still sends',
      async (signed) => ({ success: !(await facilitator.send(signed)), errorReason: 'no' }),
    ],
    [
      'sends twice',
      async (signed) => {
        const [transaction] = [await facilitator.send(signed), await facilitator.send(signed)];
        return { success: true, transaction, network: '' };
      },
    ],
    [
      'answers without end',
      async (signed, response) => {
        await facilitator.send(signed);
        response.writeHead(200);
        const chunk = Buffer.alloc(65_536, ' ');
        while (!response.destroyed && response.write(chunk)) await sleep(0);
      },
    ],
    [
      'redirects',
      sendsAnd((response) => response.writeHead(307, { location: `${facilitator.url}/elsewhere` }).end()),
    ],
    ['answers with an error', sendsAnd((response) => response.writeHead(500).end('<h1>no</h1>'))],
    ['hangs', async (signed) => void (await facilitator.send(signed))],
    ['breaks the connection', sendsAnd((response) => void response.destroy())],
  ])('that %s pays once', async (_, settle) => {
    const { order, answer } = await payWith({ '/settle': settle });
    await pooled();
    await readBlock();
    expect([200, 202]).toContain((await answer).status);
    expect(await statusOf(order.id)).toMatchObject({ status: 'processing', amount_received_units: amount });
    expect(await statusesOf(order.id)).toEqual(['landed']);
    expect(facilitator.asked).not.toContain('/elsewhere');
  });

  test('that reports success but sends another amount has paid nothing', async () => {
    const claimed = `0x${'ab'.repeat(32)}`;
    const lies = { success: true, transaction: claimed, network: 'eip155:84532' };
    const { order } = await payWith({
      '/settle': async (signed) => {
        await facilitator.send({ ...signed, value: signed.value / 2n });
        return lies;
      },
    });
    await pooled();
    await readBlock();
    while ((await checkoutOf(order)).authorization?.transaction_hash !== claimed) await sleep(20);
    expect(await statusOf(order.id)).toMatchObject({ status: 'requires_payment', amount_received_units: 0 });
    expect(await statusesOf(order.id)).toEqual(['submitted']);
  });

  test('that was never reached does not have the signature: the payer may sign again', async () => {
    const closed = await startTestFacilitator(chain);
    const other = await start(node.url, { beside: service, facilitatorUrl: closed.url });
    onTestFinished(other.close);
    await closed.close();
    const order = await newOrder();
    const header = await headerOf(order);
    expect(await pay(order.secret, header, other)).toMatchObject({
      status: 402,
      settled: { errorReason: 'facilitator_unreachable' },
    });
    expect(await statusesOf(order.id)).toEqual(['failed']);
    expect(await checkoutOf(order)).toMatchObject({ gasless: true, authorization: { status: 'failed' } });
    // The same signature is not sent again. Another one is.
    expect(await pay(order.secret, header)).toMatchObject({ status: 402 });
    expect((await payAndMine(order, await sign(order.account, order.offer))).status).toBe(200);
  });

  /** Gives a facilitator at this address a signed payment. */
  async function sendTo(url: string) {
    const payment = readPayment(await headerOf(await newOrder())) as SignedPayment;
    const { send } = createFacilitator({ url, token: undefined });
    return send(payment, new AbortController().signal);
  }

  test('whose certificate is not trusted was never sent the signature', async () => {
    const url = await listenInTest(createTlsServer(await makeCertificate('other.example')));
    expect(await sendTo(url)).toMatchObject({ isAccepted: false, wasNeverSent: true });
  });

  test('that answers settlement_pending has not refused: the payer waits for the block', async () => {
    const { order, answer } = await payWith({
      '/settle': async (signed, response) => {
        const transaction = await facilitator.send(signed);
        response
          .writeHead(500)
          .end(JSON.stringify({ success: false, errorReason: 'settlement_pending', transaction }));
      },
    });
    await pooled();
    // The service has the facilitator's answer, and keeps waiting.
    while ((await checkoutOf(order)).authorization?.transaction_hash === null) await sleep(20);
    await readBlock();
    expect(await answer).toMatchObject({ status: 200, settled: { success: true } });
  });

  test('that is busy gets the same request again', async () => {
    const asked = facilitator.asked.length;
    const fails = (response: ServerResponse) => void response.writeHead(429).end('slow down');
    const { answer } = await payWith({
      '/verify': (_, response) =>
        facilitator.asked.length === asked + 1 ? fails(response) : { isValid: true },
      '/settle': (signed, response) =>
        facilitator.asked.length === asked + 3 ? fails(response) : facilitator.send(signed),
    });
    const sent = facilitator.nextSent();
    await sent;
    expect(facilitator.asked.slice(asked)).toEqual(['/verify', '/verify', '/settle', '/settle']);
    const requests = facilitator.requests.slice(-4).map((request) => JSON.stringify(request));
    expect(new Set(requests).size).toBe(1);
    await readBlock();
    expect((await answer).status).toBe(200);
  });

  test('that keeps failing is asked three times at most', async () => {
    const asked: unknown[] = [];
    const url = await listenInTest(
      createServer((request, response) => {
        asked.push(request.url);
        response.writeHead(503).end();
      }),
    );
    const answer = await sendTo(url);
    expect(answer).toMatchObject({ isAccepted: false, wasNeverSent: false, reason: 'status 503' });
    expect(asked.length).toBeGreaterThan(1);
    expect(asked.length).toBeLessThanOrEqual(3);
  });

  test('that takes 10 s to fail is not asked again: the payer waits', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const asked: unknown[] = [];
    const url = await listenInTest(
      createServer((request, response) => {
        asked.push(request.url);
        vi.advanceTimersByTime(asked.length === 1 ? 9_900 : 200);
        response.writeHead(503).end();
      }),
    );
    const answer = await sendTo(url);
    expect(answer).toMatchObject({ isAccepted: false, wasNeverSent: false, reason: 'status 503' });
    expect(asked).toEqual(['/verify', '/verify']);
  });

  test('that goes away after it was given the signature does not count as never reached', async () => {
    const server = createServer((_, response) => {
      response.destroy();
      server.close();
    });
    const url = await listenInTest(server);
    const answer = await sendTo(url);
    expect(answer).toMatchObject({ isAccepted: false, wasNeverSent: false, reason: 'ECONNREFUSED' });
  });

  test.each([
    ['has payments signed for its own contract', { verifyingContract: relayer }, 400, /does not take x402/],
    ['has payments signed for the token', { verifyingContract: chain.usdc }, 400, undefined],
    ['refuses our token', {}, 401, /answers 401: correct X402_FACILITATOR_URL_BASE_SEPOLIA_TOKEN/],
  ])('that %s: its problem', async (_, extra, status, problem) => {
    const kinds = [{ x402Version: 2, scheme: 'exact', network: 'eip155:84532', extra }];
    const url = await listenInTest(
      createServer((request, response) => {
        response.writeHead(request.url === '/supported' ? 200 : status).end(JSON.stringify({ kinds }));
      }),
    );
    const found = await createFacilitator({ url, token: undefined })
      .problemWith(chainNamed('testnet', 'base'))
      .catch(({ message }) => message);
    if (problem === undefined) expect(found).toBeUndefined();
    else expect(found).toMatch(problem);
  });

  test('that rejects a payment has its reason logged, but neither the signature nor the nonce', async () => {
    const { signed, answer } = await payWith(refusesToVerify);
    await answer;
    const text = JSON.stringify(service.log);
    expect(text).toContain('"reason":"insufficient_funds"');
    expect(text).not.toContain(signed.signature);
    expect(text).not.toContain(signed.nonce);
  });
});

describe('nobody pays twice', () => {
  test('concurrent signatures: one is stored and sent', async () => {
    const order = await newOrder();
    const asked = facilitator.asked.length;
    const headers = await Promise.all(Array.from({ length: 8 }, () => headerOf(order)));
    const answers = headers.map((header) => pay(order.secret, header));
    await pooled();
    await readBlock();
    const statuses = (await Promise.all(answers)).map(({ status }) => status).sort();
    expect(statuses).toEqual([200, 409, 409, 409, 409, 409, 409, 409]);
    expect(facilitator.asked.slice(asked)).toEqual(['/verify', '/settle']);
    expect(await statusOf(order.id)).toMatchObject({ amount_received_units: amount, payments_count: 1 });
  });

  test('the same signature, submitted again during and after the payment, is sent once', async () => {
    const order = await newOrder();
    const asked = facilitator.asked.length;
    const header = await headerOf(order);
    const answers = [pay(order.secret, header)];
    await pooled();
    answers.push(...Array.from({ length: 3 }, () => pay(order.secret, header)));
    // Three requests may wait for an authorization. A fourth one is answered at once.
    expect((await Promise.race(answers)).status).toBe(202);
    await readBlock();
    const statuses = (await Promise.all(answers)).map(({ status }) => status).sort();
    expect(statuses).toEqual([200, 200, 200, 202]);
    expect(facilitator.asked.slice(asked)).toEqual(['/verify', '/settle']);
  });

  test('of a cancel and a signature at the same time, only one takes effect', async () => {
    for (let i = 0; i < 5; i++) {
      const order = await newOrder();
      facilitator.behaviour = { '/verify': () => ({ isValid: false }) };
      const header = await headerOf(order);
      const [paid, canceled] = await Promise.all([
        pay(order.secret, header),
        service.call('cancelPaymentIntent', { id: order.id }),
      ]);
      const isCanceled = canceled.code === 'ok';
      expect([paid.status, canceled.code]).toEqual(isCanceled ? [409, 'ok'] : [202, 'invalid_state']);
      expect(await statusesOf(order.id)).toEqual(isCanceled ? [] : ['submitted']);
    }
  });

  test('a reorged transfer makes its authorization usable again, and no other', async () => {
    const order = await newOrder();
    const signed = await sign(order.account, order.offer);
    const answer = await payAndMine(order, signed);
    await chain.reorg(1);
    await chain.mine();
    await expect(watcher.catchUp()).rejects.toThrow('asked again');
    await watcher.catchUp();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    expect(await checkoutOf(order)).toMatchObject({
      status: 'requires_payment',
      authorization: { status: 'submitted', transaction_hash: answer.settled?.transaction },
    });
    const another = await headerOf(order);
    expect((await pay(order.secret, another)).status).toBe(409);
    const again = pay(order.secret, paymentHeader(signed, order.offer));
    await facilitator.send(signed);
    await readBlock();
    expect(await again).toMatchObject({ status: 200, settled: { success: true } });
    expect(await statusOf(order.id)).toMatchObject({ status: 'processing', amount_received_units: amount });
  });

  test('an authorization is released once a block at its end has all confirmations', async () => {
    const { order, signed, validBefore } = await submitted();
    // Each block gets an explicit time. The default would be the current time.
    for (let left = confirmationsRequired; left >= 0; left--) {
      await chain.mine(1, { timestamp: validBefore - left });
    }
    await readBlock(confirmationsRequired - 2);
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    await readBlock(1);
    expect(await statusesOf(order.id)).toEqual(['released']);
    expect(await pay(order.secret, paymentHeader(signed, order.offer))).toMatchObject({
      status: 402,
      settled: { errorReason: 'authorization_released' },
    });
    expect(await checkoutOf(order)).toMatchObject({ gasless: true });
    facilitator.behaviour = {};
    expect((await payAndMine(order, await sign(order.account, order.offer))).status).toBe(200);
    expect(await statusesOf(order.id)).toEqual(['released', 'landed']);
  });

  test('an authorization is released only if both nodes agree on the block at its end', async () => {
    const { order, validBefore } = await submitted();
    const hasty = await nodeWith((method, result) =>
      method === 'eth_getBlockByNumber'
        ? { ...result, timestamp: `0x${(Number(result.timestamp) + 20).toString(16)}` }
        : result,
    );
    await watcher.release();
    const both = createTestWatcher(service, { urls: [chain.url, hasty] });
    await both.catchUp(chain.mine(1, { timestamp: validBefore - 10 }));
    await both.catchUp(chain.mine(confirmationsRequired, { timestampStep: 1 }));
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    await both.release();
    await readBlock(confirmationsRequired);
    expect(await statusesOf(order.id)).toEqual(['released']);
  });

  test('an authorization is not released while one node has it used, and only the other one unused', async () => {
    const { order, signed, validBefore } = await submitted();
    // The reader hides the transfer, too.
    const liar = await nodeWith((method, result) =>
      method === 'eth_call' ? `0x${'0'.repeat(64)}` : method === 'eth_getLogs' ? [] : result,
    );
    await watcher.release();
    const both = createTestWatcher(service, { urls: [liar, chain.url] });
    await facilitator.send(signed);
    await both.catchUp(chain.mine());
    await both.catchUp(chain.mine(1, { timestamp: validBefore }));
    await both.catchUp(chain.mine(confirmationsRequired));
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    await both.readAllAgain();
    await both.release();
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['landed']);
  });

  test('an authorization canceled on the chain is released early, one with a hidden use is not', async () => {
    const { order, signed } = await submitted();
    await chain.send(order.account.address, {
      to: chain.usdc,
      data: await cancelCall(order.account, order.offer, signed.nonce),
    });
    await service.query(`update authorizations set created_at = created_at - interval '1 minute'`);
    await readBlock(confirmationsRequired);
    // Everything was read only once: its transfer may have been hidden.
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    await watcher.readAllAgain();
    await watcher.release();
    const readBlockAnew = async () => {
      const next = createTestWatcher(service, { urls: [chain.url] });
      await next.catchUp(chain.mine());
      await next.release();
    };
    await readBlockAnew();
    expect(await statusesOf(order.id)).toEqual(['released']);
    const hidden = await submitted();
    // A node that hides the transfer, and reports the nonce as used.
    const blind = await startLyingNode(chain.url);
    onTestFinished(blind.close);
    const blinded = createTestWatcher(service, { urls: [blind.url] });
    await facilitator.send(hidden.signed);
    await chain.mine();
    blind.lie('empty logs');
    await blinded.catchUp();
    await chain.mine(1, { timestamp: hidden.validBefore });
    await blinded.catchUp(chain.mine(confirmationsRequired));
    expect(await statusesOf(hidden.order.id)).toEqual(['submitted']);
    blind.lie(undefined);
    // Once everything is read twice, the hidden transfer is found.
    await blinded.readAllAgain();
    await blinded.release();
    await readBlockAnew();
    expect(await statusesOf(hidden.order.id)).toEqual(['landed']);
  });
});

test('a payment whose receipt no node serves delays no other payment, and is not signed again', async () => {
  // The only intent of its wallet, yet no attribution is guessed.
  const wallet_address = privateKeyToAccount(generatePrivateKey()).address;
  const { order, signed, validBefore } = await submitted({ wallet_address });
  const selfish = await startLyingNode(chain.url);
  onTestFinished(selfish.close);
  const half = createTestWatcher(service, { urls: [selfish.url] });
  await watcher.release();
  await half.catchUp();
  selfish.lie('receipt too large');
  await facilitator.send(signed);
  await chain.mine();
  const [other, payer] = [await createIntent(), await newAccount()];
  const to = service.merchant.wallets.testnet.base as Hex;
  await chain.transfer({ from: payer.address, to, amountUnits: 7n, suffix: idBytes(other.id) });
  await half.catchUp(chain.mine());
  expect((await statusOf(other.id)).amount_received_units).toBe(7);
  // The nonce is used, and no transfer was seen, as after a cancel.
  await half.catchUp(chain.mine(confirmationsRequired));
  await half.readAllAgain();
  await service.query(`update authorizations set created_at = created_at - interval '1 minute'`);
  await half.catchUp(chain.mine());
  expect(await statusesOf(order.id)).toEqual(['submitted']);
  // Its use stays unseen, whatever is read again, and whatever the node says about the nonce.
  await chain.mine(1, { timestamp: validBefore });
  await half.catchUp(chain.mine(confirmationsRequired));
  await half.readAllAgain();
  await half.release();
  const next = createTestWatcher(service, { urls: [selfish.url] });
  await next.catchUp(chain.mine());
  await next.release();
  expect(await statusesOf(order.id)).toEqual(['submitted']);
  // Nor does a process of the previous release, which does not know doubtful authorizations, release it.
  await service.query(`update authorizations set status = 'released' where status = 'submitted'`);
  expect(await statusesOf(order.id)).toEqual(['submitted']);
  expect(await checkoutOf(order)).toMatchObject({ gasless: false });
  const { transfers } = (await service.call('listTransfers', { status: 'unattributed' })).json;
  const unread = transfers.find((each: Json) => each.from_address === order.account.address);
  const attributed = await service.call('attributeTransfer', { id: unread?.id, payment_intent: order.id });
  expect(attributed.code).toBe('ok');
  expect((await statusOf(order.id)).amount_received_units).toBe(amount);
});

describe('attribution by nonce', () => {
  test.each<[string, (order: Order) => Promise<void>]>([
    [
      "a signature with the checkout's nonce that we never received",
      async ({ id, account, offer }) => {
        await facilitator.send(await sign(account, offer, { nonce: nonceOf(id) }));
      },
    ],
    [
      'the same in a multicall',
      async ({ id, account, offer }) => {
        const signed = await sign(account, offer, { nonce: nonceOf(id) });
        await chain.multicall([{ to: chain.usdc, data: callOf(signed) }]);
      },
    ],
    [
      'receiveWithAuthorization by the wallet itself',
      async ({ id, account, offer }) => {
        const signed = await sign(account, offer, { nonce: nonceOf(id), type: 'ReceiveWithAuthorization' });
        const data = callOf(signed, 'receiveWithAuthorization');
        await chain.send(signed.to, { to: chain.usdc, data });
      },
    ],
  ])('%s pays its intent', async (_, send) => {
    // Without the nonce, any of these could be meant.
    const [order] = [await newOrder(), await createIntent(), await createIntent()];
    await send(order);
    await readBlock();
    expect(await statusOf(order.id)).toMatchObject({ status: 'processing', payments_count: 1 });
  });

  test('a random nonce pays the intent that it was submitted for, whoever sends it', async () => {
    const [order] = [await newOrder(), await createIntent()];
    facilitator.behaviour = { '/verify': () => ({ isValid: false }) };
    const signed = await sign(order.account, order.offer);
    await pay(order.secret, paymentHeader(signed, order.offer));
    // Sent by a contract, after another transfer.
    await chain.multicall([
      chain.transferCall({ to: signed.to, amountUnits: 0n }),
      { to: chain.usdc, data: callOf(signed) },
    ]);
    await readBlock();
    expect(await statusOf(order.id)).toMatchObject({ status: 'processing', payments_count: 1 });
  });

  test('a nonce submitted for one intent or with its id is refused for another intent', async () => {
    const [first, second] = [await newOrder(), await newOrder()];
    facilitator.behaviour = { '/verify': () => ({ isValid: false }) };
    const signed = await sign(first.account, first.offer);
    expect((await pay(first.secret, paymentHeader(signed, first.offer))).status).toBe(202);
    const foreign = await sign(second.account, second.offer, { nonce: nonceOf(first.id) });
    for (const each of [signed, foreign]) {
      expect(await pay(second.secret, paymentHeader(each, second.offer))).toMatchObject({
        status: 402,
        settled: {
          errorReason: 'invalid_exact_evm_nonce_already_used',
          errorMessage: expect.stringMatching(/another/),
        },
      });
    }
    expect(await statusesOf(second.id)).toEqual([]);
  });

  test('two transfers of one transaction are each attributed by their own nonce', async () => {
    const [first, second] = [await newOrder(), await newOrder()];
    const calls = await Promise.all(
      [second, first].map(async ({ id, account, offer }) => ({
        to: chain.usdc,
        data: callOf(await sign(account, offer, { nonce: nonceOf(id) })),
      })),
    );
    await chain.multicall(calls);
    await readBlock();
    for (const { id, account } of [first, second]) {
      expect((await statusOf(id)).payments).toMatchObject([{ from_address: account.address }]);
    }
  });

  test('a nonce in a call that hides it names no intent, whatever its payer signs later', async () => {
    const { id, account, offer } = await newOrder();
    const hidden = callOf(await sign(account, offer, { nonce: nonceOf(id) }));
    const data = hiddenCall(chain.usdc, hidden);
    await chain.client.sendTransaction({ account: accounts[3].address, data, gas: 1_000_000n, chain: null });
    // Otherwise it would be for the only intent.
    await createIntent();
    await readBlock();
    const received = await service.call('listTransfers', { from_address: account.address });
    expect(received.json.transfers).toMatchObject([{ status: 'unattributed' }]);
    // From now on, the receipts of this payer's transfers are read.
    const other = await createIntent();
    const order = { ...other, account, offer: (await pay(other.secret)).json.accepts[0] };
    expect((await payAndMine(order, await sign(account, order.offer))).status).toBe(200);
    await readBlock(12);
    watcher.log.length = 0;
    await watcher.readAllAgain();
    expect(watcher.log.filter(({ level }) => level === 'error')).toEqual([]);
    expect(await statusOf(id)).toMatchObject({ payments_count: 0 });
  });

  test('any 32 bytes are accepted as a nonce', async () => {
    const order = await newOrder();
    for (const nonce of [`0x${'00'.repeat(32)}`, `0x${'ff'.repeat(32)}`, randomNonce()] as Hex[]) {
      await facilitator.send(await sign(order.account, order.offer, { nonce }));
    }
    await readBlock();
    expect(watcher.faults).toEqual([]);
  });
});

describe('accounts that can pay', () => {
  async function payFrom(account: Pick<PrivateKeyAccount, 'address' | 'signTypedData'>): Promise<PayAnswer> {
    await chain.mint(account.address, BigInt(amount));
    await chain.mine();
    const intent = await createIntent();
    const { accepts } = (await pay(intent.secret)).json;
    const order = { ...intent, offer: accepts[0], account: accounts[0] };
    return payAndMine(order, await sign(account, accepts[0]));
  }

  test('an account of EIP-7702, with code and a key', async () => {
    const account = await newAccount();
    await chain.fund(account.address);
    await chain.batch7702(account, [chain.transferCall({ to: chain.multicall3Address, amountUnits: 1n })]);
    await chain.mine();
    expect(await chain.client.getCode(account)).toMatch(/^0xef0100/);
    expect((await payFrom(account)).status).toBe(200);
  });

  test.each([1, 2])('a Safe of %i owners', async (count) => {
    const owners = Array.from({ length: count }, () => privateKeyToAccount(generatePrivateKey()));
    const safe = await createSigningSafe(chain.client, owners, deployer, chain.network.chainId);
    expect((await payFrom(safe)).status).toBe(200);
    // An owner's own signature is refused before the facilitator is asked.
    const { secret } = await createIntent();
    const { accepts } = (await pay(secret)).json;
    const [first] = owners;
    await chain.mint(safe.address, BigInt(amount));
    await chain.mine();
    const signed = await sign(first as PrivateKeyAccount, accepts[0], { from: safe.address });
    const asked = facilitator.asked.length;
    expect(await pay(secret, paymentHeader(signed, accepts[0]))).toMatchObject({
      status: 402,
      settled: { success: false },
    });
    expect(facilitator.asked.length).toBe(asked);
  });
});

describe('a nonce', () => {
  const holdsBack = { '/verify': () => ({ isValid: false }) };
  const other = (order: Order) => ({ ...order.offer, payTo: order.account.address });

  test('that was used for something else frees the intent once its end was read twice', async () => {
    const { order, signed, header } = await submitted();
    // A transfer of nothing to oneself.
    await facilitator.send(await sign(order.account, other(order), { nonce: signed.nonce, value: 0n }));
    await readBlock();
    const requests = node.requests.length;
    await chain.mine(1, { timestamp: Number(signed.validBefore) });
    await readBlock(confirmationsRequired);
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    await watcher.readAllAgain();
    const next = createTestWatcher(service, { urls: [chain.url] });
    await watcher.release();
    await next.catchUp(chain.mine());
    await next.release();
    expect(await statusesOf(order.id)).toEqual(['released']);
    expect((await pay(order.secret, header)).settled?.errorReason).toBe('authorization_released');
    expect(node.requests.length - requests).toBeLessThan(5);
  });

  test('that was used for another amount pays that amount, and is not reported as settled', async () => {
    const { order, signed, header } = await submitted();
    await facilitator.send(await sign(order.account, order.offer, { nonce: signed.nonce, value: 1n }));
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['landed']);
    expect(await pay(order.secret, header)).toMatchObject({ status: 402, settled: { success: false } });
    expect((await statusOf(order.id)).amount_received_units).toBe(1);
  });

  test('of a wallet that pays itself is refused', async () => {
    const account = await newAccount();
    const { secret } = await createIntent({ wallet_address: account.address });
    const { accepts } = (await pay(secret)).json;
    const signed = await sign(account, accepts[0]);
    expect(await pay(secret, paymentHeader(signed, accepts[0]))).toMatchObject({
      status: 402,
      settled: { errorReason: 'invalid_exact_evm_recipient_mismatch' },
    });
  });

  test('of another token or another chain neither uses an authorization nor frees it', async () => {
    const { order, signed } = await submitted();
    const bridged = bridgedUsdcAddresses.usdbC;
    await chain.mint(order.account.address, 5n, bridged);
    const ofBridged = { ...order.offer, asset: bridged, extra: { name: 'USDbC', version: '2' } };
    const calls = [
      {
        to: chain.usdc,
        data: callOf(await sign(order.account, order.offer, { nonce: randomNonce(), value: 1n })),
      },
      { to: bridged, data: callOf(await sign(order.account, ofBridged, { nonce: signed.nonce, value: 5n })) },
    ];
    await chain.mine();
    await chain.multicall(calls);
    await readBlock();
    expect(await statusesOf(order.id)).toEqual(['submitted']);
    // As if it had been shown for an intent on Polygon.
    const second = await submitted();
    const where = 'where payment_intent = $1';
    const uuid = parseIdentifier('pi', second.order.id);
    await service.query(`update authorizations set network = 4 ${where}`, [uuid]);
    await facilitator.send(
      await sign(second.order.account, second.order.offer, { nonce: second.signed.nonce }),
    );
    await readBlock();
    expect(await statusesOf(second.order.id)).toEqual(['submitted']);
    await service.query(`update authorizations set network = 3 ${where}`, [uuid]);
  });

  test('whose log a node hid is found when the block is read again', async () => {
    const { order, signed } = await submitted();
    await Promise.all([createIntent(), createIntent()]);
    // A node whose receipts lack the log.
    const blind = await nodeWith((method, result) =>
      method === 'eth_getTransactionReceipt'
        ? { ...result, logs: result.logs.filter(({ topics }: Json) => topics[0] !== authorizationUsedTopic) }
        : result,
    );
    await watcher.release();
    const half = createTestWatcher(service, { urls: [blind, chain.url] });
    await facilitator.send(signed);
    await half.catchUp(chain.mine(15));
    await half.readAllAgain();
    await half.release();
    expect(await statusesOf(order.id)).toEqual(['landed']);
    expect((await statusOf(order.id)).payments_count).toBe(1);
    await watcher.catchUp();
  });

  test('that was submitted to one merchant pays no intent of another with the same wallet', async () => {
    const wallet_address = privateKeyToAccount(generatePrivateKey()).address;
    const own = await createIntent({ wallet_address });
    const rival = await service.newMerchant();
    const apiKey = rival.keys.testnet.apiKey;
    const theirs = await service.call(
      'createPaymentIntent',
      { amount_units: amount, wallet_address },
      { apiKey },
    );
    const account = await newAccount();
    const { accepts } = (await pay(own.secret)).json;
    facilitator.behaviour = holdsBack;
    const signed = await sign(account, accepts[0]);
    expect((await pay(own.secret, paymentHeader(signed, accepts[0]))).status).toBe(202);
    await facilitator.send(signed);
    await readBlock();
    expect((await statusOf(own.id)).status).toBe('processing');
    const found = await service.call('getPaymentIntent', { id: theirs.json.id }, { apiKey });
    expect(found.json.status).toBe('requires_payment');
  });
});

describe('a payer', () => {
  test('who names the account of another does not use up its rate limit', async () => {
    const [victim, stranger] = [await newOrder(), await newOrder()];
    for (let i = 0; i < 10; i++) {
      const from = victim.account.address;
      const signed = await sign(stranger.account, stranger.offer, { from });
      expect((await pay(stranger.secret, paymentHeader(signed, stranger.offer))).status).toBe(402);
    }
    expect((await payAndMine(victim, await sign(victim.account, victim.offer))).status).toBe(200);
  });

  test('with many checkouts causes at most four calls to the node at a time', async () => {
    let [asking, most] = [0, 0];
    const four = Promise.withResolvers<void>();
    const counting = createServer(async (request, response) => {
      const body = JSON.stringify(await json(request));
      const isPayers = body.includes(transferWithAuthorization.slice(2));
      if (isPayers) most = Math.max(most, ++asking);
      if (most === 4) four.resolve();
      if (isPayers) await four.promise;
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(chain.url, { method: 'POST', body, headers });
      const text = await answer.text();
      // Gives others the time to arrive.
      if (isPayers) await sleep(50);
      if (isPayers) asking--;
      response.end(text);
    });
    const beside = await start(await listenInTest(counting), { beside: service });
    onTestFinished(() => beside.close());
    const { offer } = await newOrder();
    const poor = privateKeyToAccount(generatePrivateKey());
    const all = Array.from({ length: 20 }, async () => {
      const { secret } = await createIntent();
      const signed = await sign(poor, offer, { nonce: randomNonce() });
      return (await pay(secret, paymentHeader(signed, offer), beside)).status;
    });
    expect(await Promise.all(all)).toContain(402);
    expect(most).toBe(4);
  });

  test('cannot pass unchecked fields to the facilitator', async () => {
    const order = await newOrder();
    const signed = await sign(order.account, order.offer);
    const header = paymentHeader(signed, { ...order.offer, extra: { ...order.offer.extra, more: 'x' } });
    const payment = JSON.parse(Buffer.from(header, 'base64').toString());
    payment.payload.permit2Authorization = { evil: true };
    payment.extensions = { evil: true };
    const sent = facilitator.nextSent();
    const answer = pay(order.secret, Buffer.from(JSON.stringify(payment)).toString('base64'));
    await sent;
    await readBlock();
    expect((await answer).status).toBe(200);
    expect(JSON.stringify(facilitator.requests.at(-1))).not.toMatch(/evil|more/);
    expect(facilitator.requests.at(-1)).toMatchObject({
      x402Version: 2,
      paymentRequirements: order.offer,
      paymentPayload: { payload: { signature: signed.signature } },
    });
  });
});

test('if an answer of the facilitator cannot be stored, the payment still lands', async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => void unhandled.push(reason);
  process.on('unhandledRejection', note);
  onTestFinished(() => void process.off('unhandledRejection', note));
  const order = await newOrder();
  facilitator.behaviour = {
    '/settle': async (signed) => {
      await service.query('alter table authorizations rename column reported_hash to gone');
      return { success: true, transaction: await facilitator.send(signed), network: '' };
    },
  };
  const sent = facilitator.nextSent();
  const answer = pay(order.secret, await headerOf(order));
  await sent;
  await service.loggedLine(({ message }) => /could not store what the facilitator/.test(String(message)));
  await service.query('alter table authorizations rename column gone to reported_hash');
  await readBlock();
  expect((await answer).status).toBe(200);
  expect(unhandled).toEqual([]);
});

test('a facilitator is offered while it is asked again, and no longer once it says no', async () => {
  const kinds = [{ x402Version: 2, scheme: 'exact', network: 'eip155:84532' }];
  const held: (() => void)[] = [];
  const isHeld = Promise.withResolvers<void>();
  const url = await listenInTest(
    createServer((_, response) => {
      const answer = () => response.end(JSON.stringify({ kinds }));
      if (isOffered.isLogged) held.push(answer);
      else answer();
      if (held.length === 2) isHeld.resolve();
    }),
  );
  const [isOffered, isWithdrawn] = [loggedOnce(), loggedOnce()];
  const logger = pino({ level: 'silent' });
  Object.assign(logger, { info: isOffered.log, warn: isWithdrawn.log });
  const nodesOf = (name: ChainName) => ({
    ...chainNamed('testnet', name),
    urls: [chain.url] as const,
    facilitator: { url },
  });
  const [base, polygon] = [nodesOf('base'), nodesOf('polygon')];
  const timers = vi.spyOn(globalThis, 'setTimeout');
  onTestFinished(() => timers.mockRestore());
  const gasless = offerGasless(
    { chainNodes: [base], roles: new Set(['api']) },
    { onAdded() {}, onAllOffered() {} },
    logger,
  );
  onTestFinished(gasless.stop);
  await isOffered.logged;
  await expect.poll(() => timers.mock.calls.map(([, ms]) => ms)).toContain(600_000);
  // All are asked again when another is added.
  gasless.add(polygon);
  await isHeld.promise;
  expect(gasless.on(base.networks[0]?.id ?? 0)).toBeDefined();
  kinds.length = 0;
  for (const answer of held) answer();
  await isWithdrawn.logged;
  expect(gasless.on(base.networks[0]?.id ?? 0)).toBeUndefined();
});

/** Offers payments on Base in this process, with a node and a facilitator of its own. */
async function offerOnBase() {
  const kinds = [{ x402Version: 2, scheme: 'exact', network: 'eip155:84532' }];
  const verifies = { status: 400 };
  const url = await listenInTest(
    createServer((request, response) => {
      response.writeHead(request.url === '/supported' ? 200 : verifies.status);
      response.end(JSON.stringify({ kinds }));
    }),
  );
  const own = await startLyingNode(chain.url);
  onTestFinished(own.close);
  const nodesOf = (name: ChainName) => ({
    ...chainNamed('testnet', name),
    urls: [own.url] as const,
    facilitator: { url },
  });
  const [base, polygon] = [nodesOf('base'), nodesOf('polygon')];
  const offering = offerGasless(
    { chainNodes: [base], roles: new Set(['api']) },
    { onAdded() {}, onAllOffered() {} },
    pino({ level: 'silent' }),
  );
  onTestFinished(offering.stop);
  const offered = () => offering.on(chain.network.id);
  await expect.poll(offered).toBeDefined();
  return { offered, verifies, addAnother: () => offering.add(polygon) };
}

test('a facilitator that no longer accepts our token is not offered', async () => {
  const { offered, verifies, addAnother } = await offerOnBase();
  verifies.status = 401;
  // All are asked again when another is added.
  addAnother();
  await expect.poll(offered).toBeUndefined();
});

test('that an account has no code is remembered for a minute: it may be deployed later', async () => {
  const { offered } = await offerOnBase();
  const { address } = privateKeyToAccount(generatePrivateKey());
  const hasCode = () => offered()?.hasCode(address);
  expect(await hasCode()).toBe(false);
  await chain.client.setCode({ address, bytecode: '0x00' });
  expect(await hasCode()).toBe(false);
  const now = performance.now.bind(performance);
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 60_000);
  onTestFinished(() => clock.mockRestore());
  await expect.poll(hasCode).toBe(true);
});

function loggedOnce() {
  const { promise: logged, resolve } = Promise.withResolvers<void>();
  const once = {
    isLogged: false,
    logged,
    log() {
      once.isLogged = true;
      resolve();
    },
  };
  return once;
}

describe('the route', () => {
  const url = () => `${service.publicUrl}/v1/checkout/pay`;
  const withFacilitator = {
    ...{ ROLES: 'api', RPC_URL_BASE_SEPOLIA: node.url, X402_FACILITATOR_URL_BASE_SEPOLIA: facilitator.url },
  };

  test('lets a page of another origin read every answer', async () => {
    const { secret, offer, account } = await newOrder();
    const canceled = await createIntent();
    await service.call('cancelPaymentIntent', { id: canceled.id });
    const refused = paymentHeader(await sign(account, { ...offer, payTo: account.address }), offer);
    const requests: [number, string, Record<string, string>][] = [
      [204, 'OPTIONS', {}],
      [401, 'POST', {}],
      [402, 'POST', { authorization: `Bearer ${secret}` }],
      [402, 'POST', { authorization: `Bearer ${secret}`, 'payment-signature': refused }],
      [400, 'POST', { authorization: `Bearer ${secret}`, 'payment-signature': 'e30' }],
      [405, 'GET', { authorization: `Bearer ${secret}` }],
      [409, 'POST', { authorization: `Bearer ${canceled.secret}` }],
    ];
    for (const [status, method, headers] of requests) {
      const answer = await httpRequest(url(), {
        method,
        headers: { origin: 'https://shop.example', ...headers },
      });
      expect([answer.status, answer.headers['access-control-allow-origin']]).toEqual([status, '*']);
      expect(answer.headers['access-control-expose-headers']).toMatch(/PAYMENT-REQUIRED, PAYMENT-RESPONSE/);
      expect(answer.headers['cache-control']).toBe('no-store');
    }
    const { headers } = await httpRequest(url(), { method: 'OPTIONS' });
    // The published client sends the last one with its request.
    expect(headers['access-control-allow-headers']).toMatch(
      /^Authorization, Content-Type, If-None-Match, PAYMENT-SIGNATURE, Access-Control-Expose-Headers$/,
    );
  });

  test('works the same over HTTP/2', async () => {
    const order = await newOrder();
    const { cert, key } = await makeCertificate('localhost');
    const folder = await useFolder(onTestFinished);
    const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
    await Promise.all([writeFile(certFile, cert), writeFile(keyFile, key)]);
    const secure = await startService(
      { ...withFacilitator, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile },
      { beside: service },
    );
    await secure.loggedLine(({ message }) => message === gaslessLine);
    onTestFinished(secure.close);
    const port = new URL(secure.publicUrl).port;
    const session = http2.connect(`https://localhost:${port}`, { ca: cert, host: '127.0.0.1' } as object);
    onTestFinished(() => session.destroy());
    const post = async (headers: Record<string, string> = {}) => {
      const stream = session.request({
        ':method': 'POST',
        ':path': '/v1/checkout/pay',
        authorization: `Bearer ${order.secret}`,
        ...headers,
      });
      stream.end();
      const [answer] = await once(stream, 'response');
      return { status: answer[':status'], headers: answer, body: (await json(stream)) as Json };
    };
    const offered = await post();
    expect([offered.status, offered.body.resource.url]).toEqual([
      402,
      `https://localhost:${port}/v1/checkout/pay`,
    ]);
    const sent = facilitator.nextSent();
    const answer = post({ 'payment-signature': await headerOf(order) });
    await sent;
    await readBlock();
    expect(await answer).toMatchObject({ status: 200, body: { status: 'processing' } });
    expect((await answer).headers['payment-response']).toBeDefined();
  });

  test('does not exist without a facilitator, and offers nothing on a chain without one', async () => {
    const without = await startService({ ROLES: 'api' }, { beside: service });
    onTestFinished(without.close);
    const { secret } = await createIntent();
    const nowhere = await httpRequest(`${without.publicUrl}/v1/checkout/pay`, {
      headers: { authorization: `Bearer ${secret}` },
    });
    expect(nowhere.status).toBe(404);
    const polygon = await createIntent({ chain: 'polygon' });
    expect(await pay(polygon.secret)).toMatchObject({
      status: 409,
      json: { error: { code: 'invalid_state', message: expect.stringMatching(/Pay it by a transfer/) } },
    });
    expect((await checkoutOf(polygon)).gasless).toBe(false);
  });

  test('offers a signature that ends a minute before the intent, after five minutes, or 15 s from now', async () => {
    const { offer, account } = await newOrder();
    const intent = { amountUnits: amount, amountReceivedUnits: 0, expectedWallet: offer.payTo };
    const domain = offer.extra as { name: string; version: string };
    const expected = { network: chain.network, domain, toleranceUnits: 0n, nowMs: 1_000_000 };
    const of = (seconds: number) => ({ ...intent, expiresAt: new Date((1_000 + seconds) * 1_000) }) as never;
    const lastingOf = (seconds: number) =>
      offerOf(of(seconds), chain.network, domain, 1_000_000).maxTimeoutSeconds;
    expect([121, 359, 361].map(lastingOf)).toEqual([61, 299, 300]);
    expect([120, 121].map((seconds) => isOffered(of(seconds), 1_000_000))).toEqual([false, true]);
    const signed = readPayment(paymentHeader(await sign(account, offer), offer)) as SignedPayment;
    const refusalAt = (seconds: bigint) =>
      refusalOf({ ...signed, validBefore: 1_000n + seconds }, { ...expected, intent: of(200) })?.reason;
    const wrongEnd = 'invalid_exact_evm_payload_authorization_valid_before';
    expect([14n, 15n, 200n, 201n].map(refusalAt)).toEqual([wrongEnd, undefined, undefined, wrongEnd]);
  });

  test('counts a signature that only code can verify as five requests', async () => {
    const limited = await startService(
      { ...withFacilitator, RATE_LIMIT_CHECKOUT: '10' },
      { beside: service },
    );
    onTestFinished(limited.close);
    await limited.loggedLine(({ message }) => message === gaslessLine);
    const order = await newOrder();
    const signed = await sign(await newAccount(1n), order.offer, { from: order.account.address });
    const headers = {
      authorization: `Bearer ${order.secret}`,
      'payment-signature': paymentHeader(signed, order.offer),
    };
    const answer = await httpRequest(`${limited.publicUrl}/v1/checkout/pay`, { headers });
    expect([answer.status, answer.headers.ratelimit]).toEqual([402, expect.stringContaining('r=15;')]);
  });

  test('offers nothing in the last two minutes of an intent', async () => {
    const { id, secret } = await createIntent();
    await service.query(`update payment_intents set expires_at = now() + interval '119 s' where id = $1`, [
      parseIdentifier('pi', id),
    ]);
    expect(await pay(secret)).toMatchObject({ status: 409, json: { error: { code: 'invalid_state' } } });
  });

  test('answers a waiting request when the service stops', async () => {
    const stopping = await startService(
      { ...withFacilitator, RATE_LIMIT_CHECKOUT: '0' },
      { beside: service },
    );
    await stopping.loggedLine(({ message }) => message === gaslessLine);
    const order = await newOrder();
    let closed: Promise<void> | undefined;
    facilitator.behaviour = {
      '/verify': async () => {
        closed = stopping.close();
        await Promise.race([answer, sleep(100)]);
        return { isValid: true };
      },
    };
    const answer = pay(order.secret, await headerOf(order), stopping);
    expect((await answer).status).toBe(202);
    // The facilitator still gets the signature: nothing would send it later.
    expect(facilitator.asked.at(-1)).toBe('/settle');
    await closed;
    await readBlock();
    expect((await statusOf(order.id)).status).toBe('processing');
  });

  test('asks the facilitator at the start only for what it supports, with its access token', async () => {
    const asked: (string | undefined)[] = [];
    const other = await listenInTest(
      createServer((request, response) => {
        asked.push(`${request.url} ${request.headers.authorization}`);
        response.end(
          JSON.stringify({ kinds: [{ x402Version: 1, scheme: 'exact', network: 'base-sepolia' }] }),
        );
      }),
    );
    const old = await startService(
      {
        ROLES: 'api',
        RPC_URL_BASE_SEPOLIA: node.url,
        X402_FACILITATOR_URL_BASE_SEPOLIA: `${other}/`,
        X402_FACILITATOR_URL_BASE_SEPOLIA_TOKEN: 'let-me-in',
      },
      { beside: service },
    );
    onTestFinished(old.close);
    await old.loggedLine(({ message }) => /does not take x402/.test(String(message)));
    expect(asked).toEqual(['/supported Bearer let-me-in']);
    expect(JSON.stringify(old.log)).not.toContain('let-me-in');
  });
});
