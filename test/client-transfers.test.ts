// Transfers and payments through the client: the same over both protocols.

import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import type { AddressInfo, Server } from 'node:net';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  createPaymentIntentsClient,
  type PaymentIntentsClient,
  PaymentIntentsError,
  type Transfer,
} from '../client/index.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import type { TestMerchant } from './support/service.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const protocols = ['json', 'grpc'] as const;

const service = await useService();
const servers: Server[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) server.close();
});

async function listen(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function all<Item>(list: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of list) items.push(item);
  return items;
}

async function errorOf(call: Promise<unknown>): Promise<PaymentIntentsError> {
  const error = await call.then(
    () => expect.fail('it succeeded'),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(PaymentIntentsError);
  return error as PaymentIntentsError;
}

const onChain = {
  transactionHash: `0x${'5b'.repeat(32)}`,
  logIndex: 41,
  blockNumber: 21_450_112,
  blockHash: `0x${'9c'.repeat(32)}`,
  blockTime: new Date('2026-11-21T12:03:40.000Z'),
  fromAddress: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
  tokenAddress: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
};
const unattributed = { chain: 'base', status: 'unattributed', paymentIntent: undefined } as const;

describe.each(protocols)('over %s', (protocol) => {
  const port = () => service.server.ports[protocol === 'json' ? 'http' : 'grpc'];
  const clientFor = (merchant: TestMerchant, atPort = port()): PaymentIntentsClient =>
    createPaymentIntentsClient({
      baseUrl: `http://127.0.0.1:${atPort}`,
      apiKey: merchant.keys.testnet.apiKey,
      protocol,
    });

  test('a transfer is listed with every field', async () => {
    const merchant = await service.newMerchant();
    const [id] = await insertTransfers(service, merchant, [
      { ...onChain, amountUnits: Number.MAX_SAFE_INTEGER, state: 'confirmed', labels: ['late', 'brand_new'] },
    ]);
    expect(await all(clientFor(merchant).listTransfers())).toStrictEqual([
      {
        ...onChain,
        ...unattributed,
        id,
        toAddress: merchant.wallets.testnet.base,
        amountUnits: 9007199254740991n,
        confirmations: 10,
        labels: ['late', 'brand_new'],
      },
    ]);
  });

  test('a list reads every page, newest first, by its filter', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const { id: paymentIntent } = await client.createPaymentIntent({ amountUnits: 1 });
    const ids = await insertTransfers(service, merchant, [{}, { paymentIntent }, {}, {}, {}]);
    const [first, attributed, ...others] = ids as [string, string, ...string[]];
    const find = async (filters?: Parameters<typeof client.listTransfers>[0]) =>
      (await all(client.listTransfers(filters))).map(({ id }) => id);
    expect(await find()).toEqual(ids.toReversed());
    const linesBefore = service.requestLines().length;
    expect(await find({ status: 'unattributed', pageSize: 2 })).toEqual([...others.toReversed(), first]);
    expect(service.requestLines().length - linesBefore).toBe(2);
    expect(await find({ status: 'attributed' })).toEqual([attributed]);
    const { items, nextPageToken } = await client.listTransfers({ pageSize: 5 }).page();
    expect([items.length, nextPageToken]).toEqual([5, undefined]);
  });

  test('a transfer is attributed, and is a payment of the intent and of its event', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const { id: paymentIntent } = await client.createPaymentIntent({ amountUnits: 5 });
    const blockTime = new Date(Date.now() - 60_000);
    await insertTransfers(service, merchant, [{ ...onChain, blockTime, amountUnits: 5 }]);
    const [before] = (await all(client.listTransfers())) as [Transfer];

    const transfer = await client.attributeTransfer(before.id, { paymentIntent });
    expect(transfer).toStrictEqual({ ...before, status: 'attributed', paymentIntent });
    expect(await all(client.listTransfers())).toStrictEqual([transfer]);
    // Again without an effect.
    expect(await client.attributeTransfer(before.id, { paymentIntent })).toStrictEqual(transfer);

    const { clientSecret, ...intent } = await client.retrievePaymentIntent(paymentIntent);
    expect(intent).toMatchObject({ status: 'processing', amountReceivedUnits: 5n, paymentsCount: 1 });
    expect(intent.payments).toStrictEqual([
      {
        ...onChain,
        blockTime,
        toAddress: merchant.wallets.testnet.base,
        amountUnits: 5n,
        confirmations: 1,
        status: 'pending',
        labels: [],
        counts: true,
      },
    ]);
    expect(await all(client.listPaymentIntents())).toStrictEqual([intent]);
    const events = await vi.waitFor(async () => {
      const found = await all(client.listEvents());
      expect(found).toHaveLength(1);
      return found;
    });
    expect(events).toMatchObject([{ type: 'payment_intent.processing', sequence: 1 }]);
    expect(events[0]?.data).toStrictEqual({
      paymentIntent: intent,
      transfer: undefined,
      webhookEndpoint: undefined,
      transfersCount: undefined,
    });

    // Too much for an intent that has its amount, unless it is meant.
    const [more = ''] = await insertTransfers(service, merchant, [{ blockTime, amountUnits: 1 }]);
    expect(await errorOf(client.attributeTransfer(more, { paymentIntent }))).toMatchObject({
      code: 'invalid_state',
    });
    await client.attributeTransfer(more, { paymentIntent, allowEnded: true });
    expect(await client.detachTransfer(more)).toMatchObject({ id: more, status: 'unattributed' });
    expect(await client.retrievePaymentIntent(paymentIntent)).toMatchObject({
      amountReceivedUnits: 5n,
      labels: [],
    });
  });

  test('the event of an unattributed transfer has the transfer', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const [id] = await insertTransfers(service, merchant, [onChain]);
    const snapshot = {
      id,
      chain: 'base',
      status: 'unattributed',
      transaction_hash: onChain.transactionHash,
      log_index: 41,
      block_number: 21450112,
      block_hash: onChain.blockHash,
      block_time: '2026-11-21T12:03:40.000Z',
      from_address: onChain.fromAddress,
      to_address: merchant.wallets.testnet.base,
      token_address: onChain.tokenAddress,
      amount_units: 12500000,
      confirmations: 1,
    };
    await service.query(
      `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
       values (gen_random_uuid(), $1, 'testnet', 'transfer.unattributed', now(), null, 0, $2)`,
      [merchant.id, JSON.stringify({ transfer: snapshot, transfers_count: 3 })],
    );
    const [event] = await vi.waitFor(async () => {
      const found = await all(client.listEvents());
      expect(found).toHaveLength(1);
      return found;
    });
    expect(event).toMatchObject({ type: 'transfer.unattributed', sequence: undefined });
    expect(event?.data).toStrictEqual({
      paymentIntent: undefined,
      transfer: (await all(client.listTransfers()))[0],
      webhookEndpoint: undefined,
      transfersCount: 3,
    });
  });

  test('refusals say what is wrong', async () => {
    const merchant = await service.newMerchant();
    const client = clientFor(merchant);
    const { id: paymentIntent } = await client.createPaymentIntent({ amountUnits: 5 });
    const { id: other } = await client.createPaymentIntent({ amountUnits: 5, chain: 'polygon' });
    const [id = '', taken = ''] = await insertTransfers(service, merchant, [{}, { paymentIntent: other }]);
    expect(await errorOf(client.attributeTransfer(id, { paymentIntent: other }))).toMatchObject({
      code: 'invalid_body',
      isRetryable: false,
      details: [{ field: 'payment_intent', message: 'is an intent of another chain' }],
    });
    expect(await errorOf(client.attributeTransfer(taken, { paymentIntent }))).toMatchObject({
      code: 'invalid_state',
      isRetryable: false,
      message: expect.stringContaining(other),
    });
    expect(
      await errorOf(client.attributeTransfer('tr_00000000000000000000000000', { paymentIntent })),
    ).toMatchObject({ code: 'resource_missing', isRetryable: false });
  });

  test('an attribution whose request and answer are lost is done once', async () => {
    const merchant = await service.newMerchant();
    const { id: paymentIntent } = await clientFor(merchant).createPaymentIntent({ amountUnits: 5 });
    const [id = ''] = await insertTransfers(service, merchant, [{ amountUnits: 5 }]);
    const network = await startLossyNetwork(port());
    try {
      const attributed = await clientFor(merchant, network.port).attributeTransfer(id, { paymentIntent });
      expect(attributed).toMatchObject({ id, status: 'attributed', paymentIntent });
      expect(network.connections()).toBeGreaterThanOrEqual(3);
    } finally {
      await network.close();
    }
    expect(
      await service.query('select type, sequence from events where payment_intent = $1', [
        parseIdentifier('pi', paymentIntent),
      ]),
    ).toEqual([{ type: 'payment_intent.processing', sequence: 1 }]);
  });

  test.each<[string, (client: PaymentIntentsClient) => unknown, string, RegExp]>([
    [
      'a status that does not exist',
      (client) => client.listTransfers({ status: 'pending' as never }),
      'status',
      /^must be "unattributed" or "attributed", not "pending"$/,
    ],
    [
      'a misspelt filter',
      (client) => client.listTransfers({ stauts: 'attributed' } as never),
      'stauts',
      /did you mean status/,
    ],
    [
      'no intent',
      (client) => client.attributeTransfer('tr_1', {} as never),
      'payment_intent',
      /^must be text, not undefined$/,
    ],
    [
      'an intent without an id',
      (client) => client.attributeTransfer('tr_1', { paymentIntent: '' }),
      'payment_intent',
      /^must not be empty$/,
    ],
  ])('%s is refused before it is sent', async (_, call, field, message) => {
    const linesBefore = service.requestLines().length;
    const error = await errorOf((async () => call(clientFor(service.merchant)))());
    expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false });
    expect(error.details).toEqual([{ field, message: expect.stringMatching(message) }]);
    expect(service.requestLines().length).toBe(linesBefore);
  });
});

describe('a service newer than the client', () => {
  const names = {
    transactionHash: '0x5b',
    blockHash: '0x9c',
    fromAddress: '0x5a',
    toAddress: '0xDD',
    tokenAddress: '0x03',
    logIndex: 0,
    confirmations: 0,
  };
  const moment = '2026-11-21T12:03:40.000Z';
  const read = {
    ...names,
    id: 'tr_1',
    blockNumber: 1,
    blockTime: new Date(moment),
    amountUnits: 5n,
    paymentIntent: undefined,
    labels: ['brand_new'],
  };

  const json = {
    id: 'tr_1',
    chain: 'solana',
    status: 'refunded',
    transaction_hash: '0x5b',
    log_index: 0,
    block_number: 1,
    block_hash: '0x9c',
    block_time: moment,
    from_address: '0x5a',
    to_address: '0xDD',
    token_address: '0x03',
    amount_units: 5,
    confirmations: 0,
    labels: ['brand_new'],
    a_new_field: 1,
  };
  const answering = async (body: unknown) =>
    createPaymentIntentsClient({
      baseUrl: await listen(
        http.createServer((_, response) =>
          response.writeHead(200, { Connection: 'close' }).end(JSON.stringify(body)),
        ),
      ),
      apiKey: 'sk_testnet_x',
      maxTries: 1,
    });

  test('over JSON, its words and labels pass through', async () => {
    const client = await answering({ transfers: [json] });
    expect(await all(client.listTransfers())).toStrictEqual([
      { ...read, chain: 'unknown:solana', status: 'unknown:refunded' },
    ]);
  });

  test('over gRPC, its numbers and labels pass through', async () => {
    const handler = connectNodeAdapter({
      routes: (router) =>
        router.service(TransferService, {
          listTransfers: () => ({
            transfers: [
              {
                ...names,
                id: 'tr_1',
                blockNumber: 1n,
                blockTime: { seconds: BigInt(Date.parse(moment) / 1_000) },
                amountUnits: 5n,
                labels: ['brand_new'],
                ...({ chain: 9, status: 8 } as object),
              },
            ],
          }),
        }),
    });
    const server = http2.createServer(handler);
    server.on('session', (session) => void session.setTimeout(1_000, () => session.destroy()));
    const client = createPaymentIntentsClient({
      baseUrl: await listen(server),
      apiKey: 'sk_testnet_x',
      protocol: 'grpc',
      maxTries: 1,
    });
    expect(await all(client.listTransfers())).toStrictEqual([
      { ...read, chain: 'unknown:9', status: 'unknown:8' },
    ]);
  });

  test.each([
    ['transfers[0].amount_units', { ...json, amount_units: '5' }],
    ['transfers[0].block_time', { ...json, block_time: undefined }],
    ['transfers[0].id', { ...json, id: '' }],
    ['transfers[0].payment_intent', { ...json, payment_intent: 5 }],
  ])('an answer whose %s is not what it should be is not misread', async (path, transfer) => {
    const client = await answering({ transfers: [transfer] });
    const error = await errorOf(client.listTransfers().page());
    expect(error).toMatchObject({ code: 'unexpected_answer', isRetryable: false });
    expect(error.message).toContain(`its ${path} is missing or of another type`);
  });
});
