// How the client handles answers of a service that is newer than itself: unknown values pass through,
// and values that it would misread are refused.

import http from 'node:http';
import http2 from 'node:http2';
import { create } from '@bufbuild/protobuf';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { describe, expect, test } from 'vitest';
import * as answerFields from '../client/gen/fields.ts';
import { createPaymentIntentsClient, type PaymentIntentsClient } from '../client/index.ts';
import type { Fields } from '../client/resource-fields.ts';
import { ErrorInfoSchema } from '../src/contract/gen/google/rpc/error_details_pb.ts';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import {
  ChainSchema,
  LaneSchema,
  ModeSchema,
  PaymentIntentSchema,
  PaymentIntentStatusSchema,
} from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { PaymentStatusSchema } from '../src/contract/gen/payments/v1/payment_pb.ts';
import { TransferStatusSchema } from '../src/contract/gen/payments/v1/transfer_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookDeliveryStatusSchema } from '../src/contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { enumWords } from '../src/contract/json/field-rules.ts';
import { all, errorOf, written } from './support/clients.ts';
import { listenInTest } from './support/listen.ts';

const options = { apiKey: 'sk_testnet_x', maxTries: 1 };

/** A client of a service that gives this answer to every request. */
async function overJson(status: number, body: unknown): Promise<PaymentIntentsClient> {
  const answer = JSON.stringify(body);
  const server = http.createServer((_, response) => response.writeHead(status).end(answer));
  return createPaymentIntentsClient({ ...options, baseUrl: await listenInTest(server) });
}

async function overGrpc(routes: (router: ConnectRouter) => void): Promise<PaymentIntentsClient> {
  const baseUrl = await listenInTest(http2.createServer(connectNodeAdapter({ routes })));
  return createPaymentIntentsClient({ ...options, baseUrl, protocol: 'grpc' });
}

const moment = '2026-11-21T12:30:15.514Z';
const stamp = { seconds: BigInt(Date.parse(moment)) / 1000n, nanos: 514_000_000 };
const onChain = {
  transaction_hash: '0x5b',
  log_index: 41,
  block_number: 21450112,
  block_hash: '0x9c',
  block_time: moment,
  from_address: '0x5a',
  to_address: '0xDD',
  token_address: '0x03',
  amount_units: 12500000,
  confirmations: 4,
  labels: ['late', 'brand_new'],
};
/** The same as gRPC sends it, or as the client returns it. */
const onChainOf = <Time, Block>(blockTime: Time, blockNumber: Block) => ({
  transactionHash: '0x5b',
  logIndex: 41,
  blockNumber,
  blockHash: '0x9c',
  blockTime,
  fromAddress: '0x5a',
  toAddress: '0xDD',
  tokenAddress: '0x03',
  amountUnits: 12500000n,
  confirmations: 4,
  labels: ['late', 'brand_new'],
});
const payment = { ...onChain, status: 'frozen' };
const transfer = { ...onChain, id: 'tr_1', chain: 'solana', status: 'refunded' };
const created = {
  id: 'pi_01m7yzn0mtexwagr0spq4wg7vz',
  status: 'refunded',
  client_secret: 'pi_01m7yzn0mtexwagr0spq4wg7vz_secret_x',
  mode: 'sandbox',
  chain: 'solana',
  chain_id: 101,
  confirmations_required: 32,
  amount_units: 1,
  decimals: 6,
  token_symbol: 'USDC',
  token_address: '0x',
  expected_wallet: '0x',
  expires_at: moment,
  expires_in_minutes: 30,
  lane: 'express',
  metadata: {},
};
const { client_secret, ...listed } = {
  ...created,
  created_at: moment,
  amount_received_units: 12500000,
  payments: [payment],
  payments_count: 1,
  labels: ['brand_new'],
};
const event = { id: 'evt_1', type: 'payout.created', created_at: moment, mode: 'sandbox' };
const newer = { a_new_field: { of: ['any', 'kind'] } };

describe('over JSON, unknown words, types, labels and kinds of data pass through', () => {
  const words = {
    status: 'unknown:refunded',
    mode: 'unknown:sandbox',
    chain: 'unknown:solana',
    lane: 'unknown:express',
  };
  const found = onChainOf(new Date(moment), 21450112);

  test.each<[string, unknown, (client: PaymentIntentsClient) => Promise<unknown>, object, unknown?]>([
    [
      'an intent',
      { ...created, ...newer },
      (client) => client.createPaymentIntent({ amountUnits: 1 }),
      words,
      created,
    ],
    [
      'a list of intents',
      { payment_intents: [{ ...listed, payments: [{ ...payment, ...newer }] }], ...newer },
      (client) => all(client.listPaymentIntents()),
      [{ ...words, labels: ['brand_new'], payments: [{ ...found, status: 'unknown:frozen' }] }],
      [listed],
    ],
    [
      'a transfer',
      { transfers: [{ ...transfer, ...newer }] },
      (client) => all(client.listTransfers()),
      [{ ...found, id: 'tr_1', chain: 'unknown:solana', status: 'unknown:refunded' }],
      [transfer],
    ],
    [
      'an event',
      { ...event, data: { payout: { id: 'po_1' } } },
      (client) => client.retrieveEvent('evt_1'),
      { type: 'payout.created', mode: 'unknown:sandbox', createdAt: new Date(moment) },
      { ...event, data: {} },
    ],
  ])('%s', async (_, body, call, expected, json) => {
    const result = await call(await overJson(/secret/.test(JSON.stringify(body)) ? 201 : 200, body));
    expect(result).toMatchObject(expected);
    expect(written(result)).toEqual(json);
  });
});

test('over gRPC, unknown numbers, types and labels pass through', async () => {
  // Numbers that are not in the contract yet.
  const numbers = { status: 99, chain: 3, mode: 3, lane: 0 } as object;
  const inBlock = { ...onChainOf(stamp, 21450112n), ...({ status: 9, chain: 9 } as object) };
  const intent = { id: created.id, clientSecret: created.client_secret, expiresAt: stamp, ...numbers };
  const client = await overGrpc((router) =>
    router
      .service(PaymentIntentService, {
        createPaymentIntent: () => create(PaymentIntentSchema, intent),
        listPaymentIntents: () => ({
          paymentIntents: [
            {
              ...intent,
              clientSecret: '',
              createdAt: stamp,
              amountReceivedUnits: 12500000n,
              // More than a JSON number can hold.
              amountUnits: 9007199254740993n,
              paymentsCount: 1,
              labels: ['brand_new'],
              payments: [inBlock],
            },
          ],
        }),
      })
      .service(TransferService, { listTransfers: () => ({ transfers: [{ ...inBlock, id: 'tr_1' }] }) })
      .service(EventService, { getEvent: () => ({ ...event, createdAt: stamp, mode: 1, data: {} }) })
      .service(WebhookEndpointService, {
        listWebhookDeliveries: () => ({
          webhookDeliveries: [{ id: 'del_1', createdAt: stamp, ...({ status: 9 } as object) }],
        }),
      }),
  );
  const words = { status: 'unknown:99', mode: 'unknown:3', chain: 'unknown:3', lane: 'unknown:0' };
  const found = onChainOf(new Date(moment), 21450112);
  expect(await client.createPaymentIntent({ amountUnits: 1 })).toMatchObject(words);
  const intents = await all(client.listPaymentIntents());
  expect(intents).toMatchObject([
    {
      ...words,
      createdAt: new Date(moment),
      amountReceivedUnits: 12500000n,
      labels: ['brand_new'],
      payments: [{ ...found, status: 'unknown:9' }],
    },
  ]);
  expect(written(intents)).toMatchObject([{ status: 'unknown:99', amount_units: '9007199254740993' }]);
  expect(await all(client.listTransfers())).toMatchObject([
    { ...found, id: 'tr_1', chain: 'unknown:9', status: 'unknown:9' },
  ]);
  expect(await client.retrieveEvent('evt_1')).toMatchObject({ type: 'payout.created', data: {} });
  expect(await all(client.listWebhookDeliveries('we_1'))).toMatchObject([{ status: 'unknown:9' }]);
});

test('the client knows every word of the contract', async () => {
  const numbersOf = (schema: Parameters<typeof enumWords>[0]) =>
    enumWords(schema).map(({ word, value }) => [word, value.number] as const);
  const intents = [
    ['chain', ChainSchema],
    ['lane', LaneSchema],
    ['mode', ModeSchema],
    ['status', PaymentIntentStatusSchema],
  ] as const;
  const fields = intents.flatMap(([name, schema]) =>
    numbersOf(schema).map(([word, number]) => ({ name, word, number })),
  );
  const payments = numbersOf(PaymentStatusSchema);
  const transfers = numbersOf(TransferStatusSchema);
  const deliveries = numbersOf(WebhookDeliveryStatusSchema);
  const required = { expiresAt: stamp, createdAt: stamp, amountReceivedUnits: 0n, paymentsCount: 0 };
  const client = await overGrpc((router) =>
    router
      .service(PaymentIntentService, {
        listPaymentIntents: () => ({
          paymentIntents: fields.map(({ name, number }) => ({
            ...required,
            id: 'pi_1',
            payments: payments.map(([, status]) => ({ ...onChainOf(stamp, 1n), ...({ status } as object) })),
            ...({ [name]: number } as object),
          })),
        }),
      })
      .service(TransferService, {
        listTransfers: () => ({
          transfers: transfers.map(([, status]) => ({
            ...onChainOf(stamp, 1n),
            id: 'tr_1',
            ...({ status } as object),
          })),
        }),
      })
      .service(WebhookEndpointService, {
        listWebhookDeliveries: () => ({
          webhookDeliveries: deliveries.map(([, status]) => ({
            id: 'del_1',
            createdAt: stamp,
            ...({ status } as object),
          })),
        }),
      }),
  );
  const statusesOf = (items: readonly { status: string }[]) => items.map(({ status }) => status);
  const wordsOf = (numbers: typeof payments) => numbers.map(([word]) => word);
  const found = await all(client.listPaymentIntents());
  expect(found.map((intent, i) => intent[fields[i]?.name ?? 'mode'])).toEqual(fields.map(({ word }) => word));
  expect(statusesOf(found[0]?.payments ?? [])).toEqual(wordsOf(payments));
  expect(statusesOf(await all(client.listTransfers()))).toEqual(wordsOf(transfers));
  expect(statusesOf(await all(client.listWebhookDeliveries('we_1')))).toEqual(wordsOf(deliveries));
});

test.each<[number, boolean]>([
  [402, false],
  [409, false],
  [503, true],
])('a new code with status %i over JSON passes through', async (status, isRetryable) => {
  const docUrl = 'https://pay.example/docs#plan_exhausted';
  const error = { code: 'plan_exhausted', message: 'No more.', request_id: 'req_1', doc_url: docUrl };
  const client = await overJson(status, { error });
  expect(await errorOf(client.createPaymentIntent({ amountUnits: 1 }))).toMatchObject({
    code: 'unknown:plan_exhausted',
    message: 'No more.',
    isRetryable,
    httpStatus: status,
    requestId: 'req_1',
    docUrl,
  });
});

test.each<[Code, boolean]>([
  [Code.FailedPrecondition, false],
  [Code.Unavailable, true],
])('a new reason with gRPC code %i passes through', async (code, isRetryable) => {
  const value = { reason: 'PLAN_EXHAUSTED', domain: 'payments', metadata: { doc_url: '/docs#error' } };
  const client = await overGrpc((router) =>
    router.service(PaymentIntentService, {
      createPaymentIntent() {
        throw new ConnectError('No more.', code, undefined, [{ desc: ErrorInfoSchema, value }]);
      },
    }),
  );
  expect(await errorOf(client.createPaymentIntent({ amountUnits: 1 }))).toMatchObject({
    code: 'unknown:plan_exhausted',
    message: 'No more.',
    docUrl: '/docs#error',
    isRetryable,
  });
});

const lists = {
  payment_intents: (client: PaymentIntentsClient) => client.listPaymentIntents().page(),
  transfers: (client: PaymentIntentsClient) => client.listTransfers().page(),
};
test.each<[keyof typeof lists, string, object]>([
  [
    'payment_intents',
    'payments[0].amount_units',
    { ...listed, payments: [{ ...payment, amount_units: '1' }] },
  ],
  ['payment_intents', 'payments', { ...listed, payments: {} }],
  ['payment_intents', 'amount_received_units', { ...listed, amount_received_units: undefined }],
  ['payment_intents', 'created_at', { ...listed, created_at: 'yesterday' }],
  ['payment_intents', 'labels[1]', { ...listed, labels: ['a', 5] }],
  ['transfers', 'amount_units', { ...transfer, amount_units: '5' }],
  ['transfers', 'block_time', { ...transfer, block_time: undefined }],
  ['transfers', 'id', { ...transfer, id: '' }],
  ['transfers', 'payment_intent', { ...transfer, payment_intent: 5 }],
])('%s whose %s is missing or of another type are refused', async (list, path, item) => {
  const error = await errorOf(lists[list](await overJson(200, { [list]: [item] })));
  expect(error).toMatchObject({ code: 'unexpected_answer', isRetryable: false, httpStatus: 200 });
  expect(error.message).toMatch(`its ${list}[0].${path} is missing or has the wrong type`);
});

test('a page of the largest intents is read to its end', async () => {
  const metadata = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`k${i}`, 'é'.repeat(300)]));
  const largest = { ...listed, metadata, payments: Array(100).fill(payment) };
  const client = await overJson(200, { payment_intents: Array(100).fill(largest) });
  const found = await all(client.listPaymentIntents({ pageSize: 100 }));
  expect([found.length, found[99]?.payments.length]).toEqual([100, 100]);
});

/** The fields that the client refuses to miss. Events and services of before a further one lack it. */
test.each([
  ['event', 'id type createdAt mode data'],
  [
    'payment',
    'transactionHash logIndex blockNumber blockHash blockTime fromAddress toAddress tokenAddress amountUnits confirmations status',
  ],
  [
    'paymentIntentState',
    'id status mode chain chainId confirmationsRequired amountUnits decimals tokenSymbol tokenAddress expectedWallet expiresAt expiresInMinutes lane metadata createdAt amountReceivedUnits paymentsCount',
  ],
  [
    'refund',
    'id paymentIntent mode chain chainId amountUnits tokenAddress destination status metadata createdAt expiresAt transaction',
  ],
  [
    'transfer',
    'id chain status transactionHash logIndex blockNumber blockHash blockTime fromAddress toAddress tokenAddress amountUnits confirmations',
  ],
  ['transferCandidate', 'id amountUnits status createdAt'],
  ['webhookAttempt', 'at durationMs'],
  ['webhookDelivery', 'id event webhookEndpoint status createdAt eventType'],
  ['webhookEndpoint', 'id url enabled mode createdAt'],
])('a new field of %s is optional', (name, fields) => {
  const { [`${name}Fields`]: described = {} } = answerFields as Record<string, Fields>;
  const needed = Object.entries(described).filter(([, { presence = 'required' }]) => presence === 'required');
  expect(needed.map(([field]) => field).join(' ')).toBe(fields);
});
