// Every method of the client as a row of a table, and a merchant that has an object of every kind.

import { expect, vi } from 'vitest';
import type { PaymentIntentsClient } from '../../client/index.ts';
import type { MethodName, Request } from './call.ts';
import type { TestMerchant, TestService } from './service.ts';
import { insertTransfers } from './transfer-rows.ts';

/** Ids of the objects of a merchant. */
export interface Known {
  /** Where webhooks are sent to. */
  url: string;
  intent: string;
  canceled: string;
  paid: string;
  transfer: string;
  attributed: string;
  event: string;
  endpoint: string;
  refund: string;
  /** A refund whose transfer is on the chain, without its id. */
  returned: string;
  transactionHash: string;
}

export interface Row {
  call(client: PaymentIntentsClient, known: Known): Promise<unknown>;
  request(known: Known): Request;
  /** The part of the service's JSON that the call returns. Default: all of it. */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
  pick?(json: any): unknown;
  /** The same call for any id, of this kind. */
  of?: [kind: string, (client: PaymentIntentsClient, id: never) => Promise<unknown>];
}

const payer = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
export const idempotencyKey = 'one-and-the-same';
const create = { amount_units: 9_007_199_254_740_991, chain: 'polygon', metadata: { amountUnits: null } };

/** A method that takes the id of one object. */
const ofOne = (
  kind: string,
  what: keyof Known,
  call: (client: PaymentIntentsClient, id: never) => Promise<unknown>,
): Row => ({
  call: (client, known) => call(client, known[what] as never),
  request: (known) => ({ id: known[what] }),
  of: [kind, call],
});

const ofList = (
  name: string,
  list: (client: PaymentIntentsClient) => { page(): Promise<{ items: unknown }> },
): Row => ({
  call: async (client) => (await list(client).page()).items,
  request: () => ({}),
  pick: (json) => json[name],
});

/** Every method. A second call with the same arguments returns the same. */
export const rows: Record<Exclude<MethodName, 'getCheckout'>, Row> = {
  createPaymentIntent: {
    call: (client) =>
      client.createPaymentIntent(
        { amountUnits: 2n ** 53n - 1n, chain: 'polygon', metadata: create.metadata },
        { idempotencyKey },
      ),
    request: () => create,
  },
  getPaymentIntent: ofOne('pi', 'paid', (client, id) => client.retrievePaymentIntent(id)),
  listPaymentIntents: ofList('payment_intents', (client) => client.listPaymentIntents()),
  cancelPaymentIntent: ofOne('pi', 'canceled', (client, id) => client.cancelPaymentIntent(id)),
  getEvent: ofOne('evt', 'event', (client, id) => client.retrieveEvent(id)),
  listEvents: ofList('events', (client) => client.listEvents()),
  getTransfer: ofOne('tr', 'transfer', (client, id) => client.retrieveTransfer(id)),
  listTransfers: ofList('transfers', (client) => client.listTransfers()),
  attributeTransfer: {
    call: (client, { attributed, paid }) => client.attributeTransfer(attributed, { paymentIntent: paid }),
    request: ({ attributed, paid }) => ({ id: attributed, payment_intent: paid }),
    of: [
      'tr',
      (client, id) => client.attributeTransfer(id, { paymentIntent: 'pi_00000000000000000000000000' }),
    ],
  },
  detachTransfer: ofOne('tr', 'transfer', (client, id) => client.detachTransfer(id)),
  createRefund: {
    call: (client, { paid }) =>
      client.createRefund({ paymentIntent: paid, amountUnits: 1n, destination: payer }, { idempotencyKey }),
    request: ({ paid }) => ({ payment_intent: paid, amount_units: 1, destination: payer }),
  },
  getRefund: ofOne('rf', 'refund', (client, id) => client.retrieveRefund(id)),
  listRefunds: ofList('refunds', (client) => client.listRefunds()),
  cancelRefund: ofOne('rf', 'refund', (client, id) => client.cancelRefund(id)),
  confirmRefund: {
    call: (client, { returned, transactionHash }) => client.confirmRefund(returned, { transactionHash }),
    request: ({ returned, transactionHash }) => ({ id: returned, transaction_hash: transactionHash }),
    of: ['rf', (client, id) => client.confirmRefund(id, { transactionHash: `0x${'12'.repeat(32)}` })],
  },
  createWebhookEndpoint: {
    call: (client, { url }) => client.createWebhookEndpoint({ url }, { idempotencyKey }),
    request: ({ url }) => ({ url }),
  },
  getWebhookEndpoint: ofOne('we', 'endpoint', (client, id) => client.retrieveWebhookEndpoint(id)),
  listWebhookEndpoints: ofList('webhook_endpoints', (client) => client.listWebhookEndpoints()),
  updateWebhookEndpoint: {
    call: (client, { endpoint }) =>
      client.updateWebhookEndpoint(endpoint, { description: 'orders', enabled: true, url: undefined }),
    request: ({ endpoint }) => ({ id: endpoint, description: 'orders', enabled: true }),
    of: ['we', (client, id) => client.updateWebhookEndpoint(id, { enabled: true })],
  },
  rotateWebhookSecret: {
    call: (client, { endpoint }) =>
      client.rotateWebhookSecret(endpoint, { overlapHours: 1 }, { idempotencyKey }),
    request: ({ endpoint }) => ({ id: endpoint, overlap_hours: 1 }),
    of: ['we', (client, id) => client.rotateWebhookSecret(id)],
  },
  listWebhookDeliveries: {
    call: async (client, { endpoint }) => (await client.listWebhookDeliveries(endpoint).page()).items,
    request: ({ endpoint }) => ({ id: endpoint }),
    pick: (json) => json.webhook_deliveries,
    of: ['we', (client, id) => client.listWebhookDeliveries(id).page()],
  },
  redeliverWebhookEndpoint: {
    call: (client, { endpoint }) =>
      client.redeliverWebhookEndpoint(endpoint, { status: 'failed', createdFrom: new Date(0) }),
    request: ({ endpoint }) => ({ id: endpoint, status: 'failed', created_from: '1970-01-01T00:00:00Z' }),
    pick: (json) => json.deliveries_count,
    of: ['we', (client, id) => client.redeliverWebhookEndpoint(id)],
  },
  pingWebhookEndpoint: {
    call: async (client, { endpoint }) => (await client.pingWebhookEndpoint(endpoint)).data.webhookEndpoint,
    request: ({ endpoint }) => ({ id: endpoint }),
    pick: (json) => json.data.webhook_endpoint,
    of: ['we', (client, id) => client.pingWebhookEndpoint(id)],
  },
  redeliverEvent: {
    // Its attempt is made meanwhile.
    call: async (client, { event, endpoint }) =>
      (await client.redeliverEvent(event, { webhookEndpoint: endpoint })).map(({ id }) => id),
    request: ({ event, endpoint }) => ({ id: event, webhook_endpoint: endpoint }),
    pick: (json) => json.webhook_deliveries.map(({ id }: { id: string }) => id),
    of: ['evt', (client, id) => client.redeliverEvent(id)],
  },
  deleteWebhookEndpoint: {
    call: async (client, { endpoint }) => (await client.deleteWebhookEndpoint(endpoint)) ?? {},
    request: ({ endpoint }) => ({ id: endpoint }),
    of: ['we', (client, id) => client.deleteWebhookEndpoint(id)],
  },
};
/** The methods that take an idempotency key. */
export const withKey = [
  'createPaymentIntent',
  'createRefund',
  'createWebhookEndpoint',
  'rotateWebhookSecret',
];

/** Gives a merchant an object of every kind, and an event with every kind of data. */
export async function furnished(service: TestService, merchant: TestMerchant, url: string): Promise<Known> {
  const { apiKey } = merchant.keys.testnet;
  const options = { apiKey };
  const intents: string[] = [];
  for (let i = 0; i < 3; i++) {
    intents.push((await service.call('createPaymentIntent', { amount_units: 5 }, options)).json.id);
  }
  const [intent, canceled, paid] = intents as [string, string, string];
  const { id: endpoint } = (await service.call('createWebhookEndpoint', { url }, options)).json;
  await service.call('cancelPaymentIntent', { id: canceled }, options);
  const [attributed = '', transfer = ''] = await insertTransfers(service, merchant, [
    { amountUnits: 5 },
    { labels: ['wrong_token'] },
  ]);
  await service.call('attributeTransfer', { id: attributed, payment_intent: paid }, options);
  // Events that wait together may get their positions in a different order.
  const positioned = (count: number) =>
    expect
      .poll(async () => (await service.call('listEvents', {}, options)).json.events.length, {
        timeout: 20_000,
      })
      .toBe(count);
  await positioned(2);
  await service.query(`update transfers set state = 'confirmed' where merchant_id = $1`, [merchant.id]);
  const transactionHash = `0x${'ab'.repeat(32)}`;
  const returning = { payment_intent: paid, amount_units: 2, destination: payer };
  const [returned = '', refund = ''] = [
    (await service.call('createRefund', returning, options)).json.id,
    (await service.call('createRefund', { ...returning, amount_units: 1 }, options)).json.id,
  ];
  const { base } = merchant.wallets.testnet;
  await insertTransfers(service, merchant, [
    { amountUnits: 2, isRefund: true, fromAddress: base, toAddress: payer, transactionHash },
  ]);
  await service.call('cancelRefund', { id: refund }, options);
  await service.call('confirmRefund', { id: returned, transaction_hash: transactionHash }, options);
  await positioned(4);
  const { transfers } = (await service.call('listTransfers', { status: 'unattributed' }, options)).json;
  await service.query(
    `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
     values (uuidv7(), $1, 'testnet', 'transfer.unattributed', now(), null, 0, $2)`,
    [merchant.id, JSON.stringify({ transfer: transfers[0], transfers_count: 3 })],
  );
  await positioned(5);
  const { id: event } = (await service.call('pingWebhookEndpoint', { id: endpoint }, options)).json;
  await positioned(6);
  await vi.waitFor(
    async () => {
      const request = { id: endpoint, status: 'delivered' };
      const { webhook_deliveries } = (await service.call('listWebhookDeliveries', request, options)).json;
      expect(webhook_deliveries).toHaveLength(6);
    },
    { timeout: 20_000 },
  );
  return {
    url,
    intent,
    canceled,
    paid,
    transfer,
    attributed,
    event,
    endpoint,
    refund,
    returned,
    transactionHash,
  };
}
