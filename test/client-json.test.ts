// What the client returns, as JSON: what the service's own JSON says of it, whichever protocol it came by.

import { beforeAll, describe, expect, test } from 'vitest';
import { createPaymentIntentsClient, type PaymentIntentsClient } from '../client/index.ts';
import { httpRequest } from './support/http-request.ts';
import { startReceiver } from './support/receiver.ts';
import type { TestService } from './support/service.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const keyOf = ({ merchant }: TestService) => merchant.keys.testnet.apiKey;

/** What the service's JSON says. */
async function wire(path: string, method = 'GET', body?: object) {
  const headers = {
    authorization: `Bearer ${keyOf(service)}`,
    'content-type': 'application/json',
    'idempotency-key': 'created-on-the-wire',
  };
  const answer = await httpRequest(
    service.publicUrl + path,
    { method, headers },
    body && JSON.stringify(body),
  );
  return JSON.parse(answer.body);
}

const first = async <Item>(list: AsyncIterable<Item>): Promise<Item> => {
  for await (const item of list) return item;
  return expect.fail('the list is empty');
};
const written = (resource: unknown) => JSON.parse(JSON.stringify(resource));

describe.each(['json', 'grpc'] as const)('over %s', (protocol) => {
  let client: PaymentIntentsClient;
  beforeAll(() => {
    client = createPaymentIntentsClient({
      baseUrl: protocol === 'json' ? service.publicUrl : service.internalUrl,
      apiKey: keyOf(service),
      protocol,
    });
  });

  test('an intent as created, listed, paid and canceled', async () => {
    const create = { amount_units: 12_500_000, metadata: { order_id: 'order-1001', amountUnits: null } };
    const posted = await wire('/v1/payment_intents', 'POST', create);
    const created = await client.createPaymentIntent(
      { amountUnits: 12_500_000n, metadata: create.metadata },
      { idempotencyKey: 'created-on-the-wire' },
    );
    expect([created.replayed, Object.keys(created).includes('toJSON')]).toEqual([true, false]);
    expect(written(created)).toEqual(posted);
    expect(created.toJSON()).toEqual(posted);
    // Named like those of the wire, and in their order.
    expect(Object.keys(written(created))).toEqual(Object.keys(posted));

    const { id } = await client.createPaymentIntent({ amountUnits: 7 });
    const [transfer = ''] = await insertTransfers(service, service.merchant, [{ amountUnits: 7 }]);
    await client.attributeTransfer(transfer, { paymentIntent: id });
    const paid = await client.retrievePaymentIntent(id);
    expect(paid.payments).toHaveLength(1);
    expect(written(paid)).toEqual(await wire(`/v1/payment_intents/${id}`));
    expect(written(paid.payments[0])).toEqual((await wire(`/v1/payment_intents/${id}`)).payments[0]);
    expect(written((await client.listPaymentIntents().page()).items)).toEqual(
      (await wire('/v1/payment_intents')).payment_intents,
    );

    const canceled = await client.cancelPaymentIntent(
      (await client.createPaymentIntent({ amountUnits: 1 })).id,
    );
    expect(written({ order: 1, intent: canceled })).toEqual({
      order: 1,
      intent: await wire(`/v1/payment_intents/${canceled.id}`),
    });
  });

  test('transfers, events and what they carry', async () => {
    await insertTransfers(service, service.merchant, [{ labels: ['wrong_token'] }]);
    const transfer = await first(client.listTransfers());
    expect(written(transfer)).toEqual((await wire('/v1/transfers')).transfers[0]);

    const types = async () => (await client.listEvents().page()).items.map(({ type }) => type);
    await expect.poll(types, { timeout: 20_000 }).toContain('payment_intent.canceled');
    const { items } = await client.listEvents({ pageSize: 100 }).page();
    const { events } = await wire('/v1/events?page_size=100');
    expect(written(items)).toEqual(events);
    expect(written(await client.retrieveEvent(items[0]?.id ?? ''))).toEqual(events[0]);
    const canceled = items.findIndex(({ type }) => type === 'payment_intent.canceled');
    expect(written(items[canceled]?.data.paymentIntent)).toEqual(events[canceled].data.payment_intent);
  });

  test('webhook endpoints and deliveries', async () => {
    const receiver = await startReceiver();
    const created = await client.createWebhookEndpoint({ url: receiver.url, description: 'orders' });
    const { secret, ...shown } = written(created);
    expect(secret).toBe(created.secret);
    const path = `/v1/webhook_endpoints/${created.id}`;
    expect(shown).toEqual(await wire(path));
    expect(written(await client.updateWebhookEndpoint(created.id, { description: '' }))).toEqual(
      await wire(path),
    );
    const ping = await client.pingWebhookEndpoint(created.id);
    const delivered = client.listWebhookDeliveries(created.id, { status: 'delivered' });
    await expect.poll(async () => (await delivered.page()).items, { timeout: 20_000 }).toHaveLength(1);
    expect(written(ping)).toEqual(await wire(`/v1/events/${ping.id}`));
    const delivery = await first(delivered);
    expect(written(delivery)).toEqual((await wire(`${path}/deliveries`)).webhook_deliveries[0]);
    expect(written(delivery.attempts)).toMatchObject([{ duration_ms: delivery.attempts[0]?.durationMs }]);
    await client.deleteWebhookEndpoint(created.id);
    await receiver.close();
  });
});

test('a message of a stream', async () => {
  const client = createPaymentIntentsClient({
    baseUrl: service.internalUrl,
    apiKey: keyOf(service),
    protocol: 'grpc',
  });
  const event = await first(client.listEvents());
  const next = await client.listEvents({ after: event.id, pageSize: 1 }).page();
  for await (const message of client.watchEvents({ after: event.id })) {
    if (message.event === undefined) expect(written(message)).toEqual({ position: message.position });
    else {
      expect(written(message)).toEqual({ event: written(next.items[0]), position: message.position });
      break;
    }
  }
});
