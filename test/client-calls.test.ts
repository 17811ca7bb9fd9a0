// Every method of the client, over both protocols: what it sends, what it returns, and that it is safe to repeat.

import http from 'node:http';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { createPaymentIntentsClient, type List, type PaymentIntentsClient } from '../client/index.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import type { MethodName } from './support/call.ts';
import { furnished, idempotencyKey, rows, withKey } from './support/client-rows.ts';
import { all, clientOf, errorOf, portOf, protocols, written } from './support/clients.ts';
import { removeEvents } from './support/event-rows.ts';
import { listen } from './support/listen.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import type { TestMerchant } from './support/service.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

/** Accepts every webhook. */
const receiver = await listen(
  http.createServer((request, response) => {
    request.resume().on('end', () => response.end('thanks'));
  }),
);
afterAll(() => receiver.close());

const uuidOf = (id: string) => parseIdentifier('pi', id);
const idsOf = (items: readonly { id: string }[]) => items.map(({ id }) => id);

const camelCase = (name: string) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** The client's values for the public JSON: dates, exact amounts, names in camel case. */
function typed(json: unknown, name = ''): unknown {
  if (Array.isArray(json)) return json.map((item) => typed(item));
  if (typeof json === 'object' && json !== null && name !== 'metadata') {
    return Object.fromEntries(
      Object.entries(json).map(([key, value]) => [camelCase(key), typed(value, key)]),
    );
  }
  if (typeof json === 'string' && /(?:^|_)(?:at|time)$/.test(name)) return new Date(json);
  return /^amount.*_units$/.test(name) ? BigInt(json as number) : json;
}

describe.each(protocols)('over %s', (protocol) => {
  const clientFor = (merchant: TestMerchant, baseUrl = `http://127.0.0.1:${portOf(service, protocol)}`) =>
    clientOf(service, protocol, { baseUrl, apiKey: merchant.keys.testnet.apiKey });
  const newClient = async () => clientFor(await service.newMerchant());

  test("every method returns what the service's JSON says, typed and as JSON", {
    timeout: 60_000,
  }, async () => {
    const merchant = await service.newMerchant();
    const known = await furnished(service, merchant, receiver.url);
    const client = clientFor(merchant);
    const { apiKey } = merchant.keys.testnet;
    for (const [method, { call, request, pick = (all: unknown) => all }] of Object.entries(rows)) {
      const { code, json } = await service.call(method as MethodName, request(known), {
        apiKey,
        ...(withKey.includes(method) && { idempotencyKey }),
      });
      expect([method, code]).toEqual([method, 'ok']);
      const result = await call(client, known);
      // In the order of the contract, too.
      expect(JSON.stringify(result ?? {}), method).toBe(JSON.stringify(pick(json)));
      if (typeof result === 'object') expect(result, method).toMatchObject(typed(pick(json)) as object);
      if (withKey.includes(method)) expect(result, method).toHaveProperty('replayed', true);
    }
  });

  test('every method survives a lost request and a lost answer, and has its effect once', {
    timeout: 60_000,
  }, async () => {
    const merchant = await service.newMerchant();
    const known = await furnished(service, merchant, receiver.url);
    for (const [method, { call }] of Object.entries(rows)) {
      const network = await startLossyNetwork(portOf(service, protocol));
      const result = await call(clientFor(merchant, `http://127.0.0.1:${network.port}`), known);
      // Some answers are too short to be lost.
      expect([method, network.connections()]).toEqual([method, expect.toSatisfy((count) => count >= 2)]);
      // The service had done it, and found the result by the key.
      if (withKey.includes(method)) expect(result, method).toHaveProperty('replayed', true);
      await network.close();
    }
    const [counts] = await service.query(
      `select (select count(*)::int from payment_intents where merchant_id = $1) as intents,
              (select count(*)::int from webhook_endpoints where merchant_id = $1) as endpoints,
              (select count(*)::int from events where payment_intent = $2) as attributions`,
      [merchant.id, uuidOf(known.paid)],
    );
    expect(counts).toEqual({ intents: 4, endpoints: 2, attributions: 1 });
  });

  test('every field of a request reaches the service, and each change has its effect once', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const overLossy = async <Result>(call: (client: PaymentIntentsClient) => Promise<Result>) => {
      const network = await startLossyNetwork(portOf(service, protocol));
      return call(clientFor(merchant, `http://127.0.0.1:${network.port}`)).finally(network.close);
    };
    const fields = { url: `${receiver.url}/hooks`, eventTypes: ['payment_intent.succeeded'], enabled: false };
    const { id } = await client.createWebhookEndpoint({ ...fields, description: 'orders' });
    expect(await client.retrieveWebhookEndpoint(id)).toMatchObject({ ...fields, description: 'orders' });
    const changed = { url: receiver.url, eventTypes: ['payment_intent.canceled'], enabled: true };
    await client.updateWebhookEndpoint(id, { ...changed, description: '' });
    expect(await client.retrieveWebhookEndpoint(id)).toMatchObject({ ...changed, description: undefined });

    const canceled = await client.createPaymentIntent({ amountUnits: 1 });
    const paid = await client.createPaymentIntent({ amountUnits: 5 });
    expect(await overLossy((lossy) => lossy.cancelPaymentIntent(canceled.id))).toMatchObject({
      status: 'canceled',
      canceledAt: expect.any(Date),
    });
    const [transfer = ''] = await insertTransfers(service, merchant, [{ amountUnits: 5 }]);
    expect(
      await overLossy((lossy) => lossy.attributeTransfer(transfer, { paymentIntent: paid.id })),
    ).toMatchObject({ status: 'attributed', paymentIntent: paid.id });
    expect(
      await service.query('select type, sequence from events where merchant_id = $1 order by type', [
        merchant.id,
      ]),
    ).toEqual([
      { type: 'payment_intent.canceled', sequence: 1 },
      { type: 'payment_intent.processing', sequence: 1 },
    ]);
    await overLossy((lossy) => lossy.deleteWebhookEndpoint(id));
    expect(await errorOf(client.retrieveWebhookEndpoint(id))).toMatchObject({ code: 'resource_missing' });
  });

  test('an unknown id is refused, without a retry', async () => {
    const client = await newClient();
    const linesBefore = service.requestLines().length;
    const withId = Object.entries(rows).flatMap(([method, { of }]) => (of ? [[method, ...of] as const] : []));
    for (const [method, kind, call] of withId) {
      const error = await errorOf(call(client, `${kind}_00000000000000000000000000` as never));
      expect([method, error.code, error.isRetryable]).toEqual([method, 'resource_missing', false]);
    }
    expect(service.requestLines().length - linesBefore).toBe(withId.length);
  });

  test('each creation has a new idempotency key or the given one, which lives as long as its intent', async () => {
    const client = await newClient();
    const created = [1, 2].map(() => client.createPaymentIntent({ amountUnits: 1 }));
    expect(new Set(idsOf(await Promise.all(created))).size).toBe(2);
    const first = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: 'order-1001' });
    expect(first.replayed).toBe(false);
    await service.query(
      `update payment_intents set created_at = created_at - interval '24 hours', expires_at = expires_at - interval '24 hours'
       where id = $1`,
      [uuidOf(first.id)],
    );
    const again = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: 'order-1001' });
    expect(again).toEqual({ ...first, replayed: true, expiresAt: again.expiresAt });
    expect(again.expiresAt.getTime()).toBeLessThan(Date.now());
    const second = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: 'order-1001/2' });
    expect(second.replayed).toBe(false);
    expect(second.expiresAt.getTime()).toBeGreaterThan(Date.now());
    const endpoint = await client.createWebhookEndpoint({ url: receiver.url });
    const rotate = (overlapHours: number) =>
      client.rotateWebhookSecret(endpoint.id, { overlapHours }, { idempotencyKey: 'rotation-1' });
    const { secret } = await rotate(2);
    expect((await client.rotateWebhookSecret(endpoint.id)).secret).not.toBe(secret);
    expect(await errorOf(rotate(1))).toMatchObject({
      code: 'idempotency_key_reused',
      idempotencyKey: 'rotation-1',
    });
  });

  test('a resource has every field, which is undefined if it has no value', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const { replayed, ...created } = await client.createPaymentIntent({ amountUnits: 12_500_000n });
    expect(created).toEqual({
      id: expect.stringMatching(/^pi_/),
      status: 'requires_payment',
      clientSecret: expect.stringMatching(/^pi_.*_secret_/),
      mode: 'testnet',
      chain: 'base',
      chainId: 84532,
      confirmationsRequired: 10,
      amountUnits: 12_500_000n,
      decimals: 6,
      tokenSymbol: 'USDC',
      tokenAddress: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
      expectedWallet: merchant.wallets.testnet.base,
      expiresAt: expect.any(Date),
      expiresInMinutes: 30,
      lane: 'sdk',
      metadata: {},
    });
    expect([replayed, Object.keys(created).includes('toJSON')]).toEqual([false, false]);
    const intent = await client.retrievePaymentIntent(created.id);
    expect(intent).toStrictEqual({
      ...created,
      createdAt: new Date(created.expiresAt.getTime() - 30 * 60_000),
      amountReceivedUnits: 0n,
      payments: [],
      paymentsCount: 0,
      labels: [],
      succeededAt: undefined,
      canceledAt: undefined,
      expiredAt: undefined,
      amountRefundedUnits: 0n,
    });
    const { clientSecret, ...listed } = intent;
    expect(await all(client.listPaymentIntents())).toStrictEqual([listed]);

    const [transfer = ''] = await insertTransfers(service, merchant, [
      { amountUnits: Number.MAX_SAFE_INTEGER },
    ]);
    expect(await all(client.listTransfers())).toStrictEqual([
      {
        id: transfer,
        chain: 'base',
        status: 'unattributed',
        paymentIntent: undefined,
        transactionHash: expect.stringMatching(/^0x/),
        logIndex: 0,
        blockNumber: 21_450_112,
        blockHash: expect.stringMatching(/^0x/),
        blockTime: expect.any(Date),
        fromAddress: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
        toAddress: merchant.wallets.testnet.base,
        tokenAddress: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
        amountUnits: 9007199254740991n,
        confirmations: 1,
        labels: [],
        candidates: [],
      },
    ]);

    const { secret, replayed: _, ...endpoint } = await client.createWebhookEndpoint({ url: receiver.url });
    expect(endpoint).toStrictEqual({
      id: expect.stringMatching(/^we_/),
      url: receiver.url,
      eventTypes: ['*'],
      enabled: true,
      disabledReason: undefined,
      description: undefined,
      mode: 'testnet',
      createdAt: expect.any(Date),
    });
    const ping = await client.pingWebhookEndpoint(endpoint.id);
    const nothing = {
      paymentIntent: undefined,
      transfer: undefined,
      transfersCount: undefined,
      refund: undefined,
    };
    expect(ping).toStrictEqual({
      id: expect.stringMatching(/^evt_/),
      type: 'webhook_endpoint.ping',
      createdAt: expect.any(Date),
      mode: 'testnet',
      sequence: undefined,
      data: { ...nothing, webhookEndpoint: endpoint },
    });
    const delivered = () => all(client.listWebhookDeliveries(endpoint.id, { status: 'delivered' }));
    await expect.poll(delivered).toStrictEqual([
      {
        id: expect.stringMatching(/^del_/),
        event: ping.id,
        eventType: 'webhook_endpoint.ping',
        paymentIntent: undefined,
        webhookEndpoint: endpoint.id,
        status: 'delivered',
        attempts: [
          {
            at: expect.any(Date),
            statusCode: 200,
            durationMs: expect.any(Number),
            error: undefined,
            response: undefined,
          },
        ],
        nextAttemptAt: undefined,
        createdAt: expect.any(Date),
      },
    ]);
  });

  test('a list has each item once, can be read again, and fetches no more than the loop takes', async () => {
    const client = await newClient();
    const created: string[] = [];
    for (let i = 0; i < 5; i++) created.unshift((await client.createPaymentIntent({ amountUnits: 1 })).id);
    const before = service.requestLines().length;
    const asked = () => service.requestLines().length - before;
    const list = client.listPaymentIntents({ pageSize: 2 });
    expect(asked()).toBe(0);
    expect([idsOf(await all(list)), asked()]).toEqual([created, 3]);
    const pages = await pagesOf(list);
    expect(pages.map(idsOf)).toEqual([created.slice(0, 2), created.slice(2, 4), created.slice(4)]);
    expect(JSON.stringify(pages)).not.toContain('_secret_');
    for await (const { id } of list) {
      expect(id).toBe(created[0]);
      break;
    }
    expect(asked()).toBe(3 + 3 + 1);
    const controller = new AbortController();
    const reason = new Error('no more');
    const seen: string[] = [];
    const reading = (async () => {
      for await (const { id } of client.listPaymentIntents({ pageSize: 1 }, { signal: controller.signal })) {
        if (seen.push(id) === 2) controller.abort(reason);
      }
    })();
    await expect(reading).rejects.toBe(reason);
    expect(seen).toHaveLength(2);
  });

  test('works on a runtime without AbortSignal.any', async () => {
    const client = await newClient();
    const { any } = AbortSignal;
    Reflect.deleteProperty(AbortSignal, 'any');
    onTestFinished(() => void Object.assign(AbortSignal, { any }));
    const { id } = await client.createPaymentIntent({ amountUnits: 1 });
    const controller = new AbortController();
    const list = client.listPaymentIntents({}, { signal: controller.signal });
    expect(idsOf(await all(list))).toEqual([id]);
    controller.abort(new Error('no more'));
    await expect(all(list)).rejects.toThrow('no more');
  });

  async function pagesOf<Item>(list: List<Item>): Promise<Item[][]> {
    const pages: Item[][] = [];
    for (let token: string | undefined; ; ) {
      const { items, nextPageToken } = await list.page(token);
      pages.push(items);
      if (nextPageToken === undefined) return pages;
      token = nextPageToken;
    }
  }

  test('every filter of a list reaches the service', async () => {
    const merchant = await service.newMerchant();
    const { intent, canceled, paid, transfer, attributed, event, endpoint } = await furnished(
      service,
      merchant,
      receiver.url,
    );
    const client = clientFor(merchant);
    const key = '~a+b&c=%20/#?';
    const { id: keyed } = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: key });
    const { id: polygon } = await client.createPaymentIntent({
      amountUnits: 1,
      chain: 'polygon',
      lane: 'manual',
    });
    const { createdAt } = await client.retrievePaymentIntent(keyed);
    const pageSize = 2;
    const [e1 = '', e2 = '', ...later] = idsOf(await all(client.listEvents({ pageSize })));
    const found: [List<{ id: string }>, string[]][] = [
      [client.listPaymentIntents({ pageSize, chain: 'polygon' }), [polygon]],
      [client.listPaymentIntents({ pageSize, lane: 'manual' }), [polygon]],
      [client.listPaymentIntents({ pageSize, idempotencyKey: key }), [keyed]],
      [client.listPaymentIntents({ pageSize, status: 'canceled' }), [canceled]],
      [client.listPaymentIntents({ pageSize, createdFrom: createdAt }), [polygon, keyed]],
      [client.listPaymentIntents({ pageSize, createdBefore: createdAt }), [paid, canceled, intent]],
      [client.listEvents({ pageSize, after: e1 }), [e2, ...later]],
      [client.listEvents({ pageSize: 1, after: e2 }), later],
      [client.listEvents({ paymentIntent: canceled }), [e1]],
      [client.listEvents({ type: 'webhook_endpoint.ping', after: e1 }), [event]],
      [client.listEvents({ type: 'payment_intent.succeeded' }), []],
      [client.listTransfers({ pageSize }), [transfer, attributed]],
      [client.listTransfers({ status: 'unattributed' }), [transfer]],
      [client.listTransfers({ status: 'attributed' }), [attributed]],
      [client.listWebhookEndpoints({ pageSize }), [endpoint]],
      [client.listWebhookDeliveries(endpoint, { status: 'failed' }), []],
    ];
    for (const [i, [list, ids]] of found.entries()) expect([i, idsOf(await all(list))]).toEqual([i, ids]);
    await removeEvents(service, merchant.id);
    expect(await errorOf(client.listEvents({ after: e1 }).page())).toMatchObject({
      code: 'cursor_expired',
      isRetryable: false,
    });
  });

  test('a change that the state of a resource forbids is refused with the reason', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const { id } = await client.createPaymentIntent({ amountUnits: 5 });
    const { id: other } = await client.createPaymentIntent({ amountUnits: 5, chain: 'polygon' });
    const [free = '', taken = ''] = await insertTransfers(service, merchant, [
      { amountUnits: 1 },
      { paymentIntent: other },
    ]);
    await service.query(
      `update payment_intents set status = 'processing', amount_received_units = amount_units,
         labels = '{overpaid,brand_new}' where id = $1`,
      [uuidOf(id)],
    );
    const refusal = { isRetryable: false, idempotencyKey: '', requestId: expect.stringMatching(/^req_/) };
    for (const [call, expected] of [
      [() => client.cancelPaymentIntent(id), { code: 'invalid_state' }],
      [() => client.attributeTransfer(free, { paymentIntent: id }), { code: 'invalid_state' }],
      [
        () => client.attributeTransfer(taken, { paymentIntent: id }),
        { code: 'invalid_state', message: expect.stringContaining(other) },
      ],
      [
        () => client.attributeTransfer(free, { paymentIntent: other }),
        { details: [{ field: 'payment_intent', message: 'is an intent of another chain' }] },
      ],
    ] as const) {
      expect(await errorOf(call())).toMatchObject({ ...refusal, ...expected });
    }
    // Allowed with allowEnded. A label that is newer than the client passes through unchanged.
    await client.attributeTransfer(free, { paymentIntent: id, allowEnded: true });
    expect((await client.retrievePaymentIntent(id)).labels).toEqual(['overpaid', 'brand_new']);
    expect(await client.detachTransfer(free)).toMatchObject({ id: free, status: 'unattributed' });
  });
});

test('a message of a stream as JSON is the event of a list, and its position', async () => {
  const merchant = await service.newMerchant();
  await furnished(service, merchant, receiver.url);
  const { apiKey } = merchant.keys.testnet;
  const client = createPaymentIntentsClient({ baseUrl: service.internalUrl, apiKey, protocol: 'grpc' });
  const [first, second] = await all(client.listEvents());
  for await (const message of client.watchEvents({ after: first?.id })) {
    const { position } = message;
    const event = message.event && written(second);
    expect(written(message)).toEqual({ ...(event && { event }), position });
    if (event !== undefined) break;
  }
});
