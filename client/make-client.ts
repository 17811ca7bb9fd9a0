import { type Asked, type Call, createCall } from './calls.ts';
import type { GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
import { PaymentIntentsError } from './error.ts';
import type { List } from './list.ts';
import { createList } from './list-pages.ts';
import { type MethodName, methods } from './methods.ts';
import {
  type CheckedCallOptions,
  type CheckedOptions,
  readCallOptions,
  readCreateOptions,
} from './options.ts';
import type { OpenStream, Send } from './protocol.ts';
import { readId, readRequest } from './request-fields.ts';
import { watchEvents } from './resuming-stream.ts';
import type { WebhookDelivery } from './webhook-endpoint.ts';

/** Returns a client that sends each try of a call by `send`. */
export function createClient(options: CheckedOptions<string>, send: Send): PaymentIntentsClient {
  const call = createCall(options, send);
  const withoutKey = (given: unknown = {}) => readCallOptions(given, options);
  const withKey = (given: unknown = {}) => readCreateOptions(given, options);
  const make = makeWith(call);
  const list = <Item>(
    name: MethodName,
    items: string,
    id: string | undefined,
    filters: unknown,
    given: unknown,
  ): List<Item> => {
    const checked = withoutKey(given);
    return createList<Item>(call, [name, items], { id, ...readAsked(name, filters, checked) }, checked);
  };

  return {
    async createPaymentIntent(create, options) {
      return make('createPaymentIntent', withKey(options), { request: create });
    },
    async retrievePaymentIntent(id, options) {
      return make('getPaymentIntent', withoutKey(options), { id });
    },
    listPaymentIntents: (filters = {}, options) =>
      list('listPaymentIntents', 'paymentIntents', undefined, filters, options),
    async cancelPaymentIntent(id, options) {
      return make('cancelPaymentIntent', withoutKey(options), { id });
    },
    async retrieveEvent(id, options) {
      return make('getEvent', withoutKey(options), { id });
    },
    listEvents: (filters = {}, options) => list('listEvents', 'events', undefined, filters, options),
    async createWebhookEndpoint(create, options) {
      return make('createWebhookEndpoint', withKey(options), { request: create });
    },
    async retrieveWebhookEndpoint(id, options) {
      return make('getWebhookEndpoint', withoutKey(options), { id });
    },
    listWebhookEndpoints: (filters = {}, options) =>
      list('listWebhookEndpoints', 'webhookEndpoints', undefined, filters, options),
    async updateWebhookEndpoint(id, change, options) {
      return make('updateWebhookEndpoint', withoutKey(options), { id, request: change });
    },
    async deleteWebhookEndpoint(id, options) {
      await make('deleteWebhookEndpoint', withoutKey(options), { id });
    },
    async rotateWebhookSecret(id, rotate = {}, options) {
      return make('rotateWebhookSecret', withKey(options), { id, request: rotate });
    },
    async pingWebhookEndpoint(id, options) {
      return make('pingWebhookEndpoint', withoutKey(options), { id });
    },
    listWebhookDeliveries: (id, filters = {}, options) =>
      list('listWebhookDeliveries', 'webhookDeliveries', readId(id), filters, options),
    async redeliverWebhookEndpoint(id, redeliver = {}, options) {
      const { deliveriesCount } = await make<{ deliveriesCount: number }>(
        'redeliverWebhookEndpoint',
        withoutKey(options),
        { id, request: redeliver },
      );
      return deliveriesCount;
    },
    async redeliverEvent(id, redeliver = {}, options) {
      const { webhookDeliveries } = await make<{ webhookDeliveries: WebhookDelivery[] }>(
        'redeliverEvent',
        withoutKey(options),
        { id, request: redeliver },
      );
      return webhookDeliveries;
    },
    listTransfers: (filters = {}, options) => list('listTransfers', 'transfers', undefined, filters, options),
    async attributeTransfer(id, attribute, options) {
      return make('attributeTransfer', withoutKey(options), { id, request: attribute });
    },
    async detachTransfer(id, options) {
      return make('detachTransfer', withoutKey(options), { id });
    },
    watchEvents() {
      throw new TypeError(
        "watchEvents needs gRPC: create the client with protocol: 'grpc' and the address of the internal port, or follow events with listEvents",
      );
    },
  };
}

/** Returns a client over gRPC. */
export function createGrpcClient(
  options: CheckedOptions<string>,
  { send, openStream }: { send: Send; openStream: OpenStream },
): GrpcPaymentIntentsClient {
  return {
    ...createClient(options, send),
    watchEvents: (watch = {}) => watchEvents(openStream, watch, options.timeoutMs),
  };
}

/** Returns a function that reads a request, makes the call, and returns the resource of its answer. */
function makeWith(call: Call) {
  return async <Resource>(
    name: MethodName,
    options: CheckedCallOptions,
    given: { id?: unknown; request?: unknown },
  ): Promise<Resource> => {
    const id = 'id' in given ? readAs(options, () => readId(given.id)) : undefined;
    const asked = 'request' in given ? readAsked(name, given.request, options) : {};
    const { resource, replayed } = await call(name, { id, ...asked }, options);
    const hasKey = options.idempotencyKey !== undefined;
    return (hasKey ? Object.assign(resource, { replayed }) : resource) as Resource;
  };
}

function readAsked(name: MethodName, request: unknown, options: CheckedCallOptions): Asked {
  return { request: readAs(options, () => readRequest(methods[name].request, request)) };
}

/** Reads what the caller gave. A refusal gets the idempotency key of the call. */
function readAs<Value>({ idempotencyKey }: CheckedCallOptions, read: () => Value): Value {
  try {
    return read();
  } catch (refusal) {
    throw refusal instanceof PaymentIntentsError
      ? PaymentIntentsError.from(refusal, idempotencyKey)
      : refusal;
  }
}

/** Throws in a browser, where a payer could read the API key. */
export function refuseBrowsers(): void {
  if ('window' in globalThis || 'importScripts' in globalThis) {
    throw new Error(
      'The payment intents client runs on servers only: anybody could read an API key in a browser. Call your own server, and let it call this.',
    );
  }
}
