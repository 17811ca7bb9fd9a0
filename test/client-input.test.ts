// Input that the client refuses before it sends anything. Both protocols send the same.

import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import {
  type CreateOptions,
  type CreatePaymentIntent,
  createPaymentIntentsClient,
  type PaymentIntentsClient,
  type PaymentIntentsClientOptions,
  PaymentIntentsError,
} from '../client/index.ts';
import { readOptions } from '../client/options.ts';
import { rows } from './support/client-rows.ts';
import { clientOf, portOf, protocols, refusedUnsent } from './support/clients.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const clientOver = (protocol: 'json' | 'grpc') => clientOf(service, protocol);
const refusedCall = (call: (client: PaymentIntentsClient) => unknown) => refusedUnsent(service, call);
/** Returns the error of a create over each protocol. Fails if one succeeds, or if anything was sent. */
const refused = (create: unknown, options: unknown = {}) =>
  refusedCall((client) =>
    client.createPaymentIntent(create as CreatePaymentIntent, options as CreateOptions),
  );

describe('unknown field names', () => {
  test('a misspelt wallet field is refused instead of using the default wallet', async () => {
    const error = await refused({ amountUnits: 1, walletAdress: '0x0' });
    expect(error).toBeInstanceOf(PaymentIntentsError);
    expect(error).toMatchObject({
      code: 'invalid_body',
      isRetryable: false,
      details: [{ field: 'walletAdress', message: 'is not a field here; did you mean walletAddress?' }],
    });
    expect(error.message).toMatch(/^walletAdress is not a field/);
    expect(error.idempotencyKey).toMatch(/^[0-9a-f-]{36}$/);
  });

  test.each([
    ['wallet_address', 'walletAddress'],
    ['expireInMinutes', 'expiresInMinutes'],
    ['expires_in_minutes', 'expiresInMinutes'],
    ['chian', 'chain'],
    ['metaData', 'metadata'],
    ['wallet', 'walletAddress'],
  ])('%s: did you mean %s?', async (given, meant) => {
    const error = await refused({ amountUnits: 1, [given]: 'x' });
    expect(error.details[0]?.message).toMatch(new RegExp(`did you mean ${meant}\\?$`));
  });

  test('a name unlike any field gets the list of fields', async () => {
    const amount = await refused({ amountUnits: 12.5 as never });
    expect(amount.message).toContain('12.5, in units of 0.000001 USDC: 12.5 USDC is 12500000');
    const error = await refused({ amountUnits: 1, currency: 'USD' });
    expect(error.details[0]?.message).toBe(
      'is not a field here; there are amountUnits, chain, walletAddress, expiresInMinutes, lane, metadata, token',
    );
  });

  test('all faults are listed at once', async () => {
    const error = await refused({ amount_units: 1, chain: 'solana', lane: 5, metadata: { at: new Date(0) } });
    expect(error.details.map(({ field }) => field)).toEqual([
      'amount_units',
      'amount_units',
      'chain',
      'lane',
      'metadata.at',
    ]);
    expect(error.message).toMatch(/; and 4 more$/);
  });

  test.each([undefined, null, 5, 'order'])('an argument that is not an object: %o', async (create) => {
    expect(await refused(create)).toMatchObject({ code: 'invalid_body', details: [{ field: 'body' }] });
  });

  test.each<[field: string, change: object]>([
    ['wallet_address', { walletAddress: 5 }],
    ['expires_in_minutes', { expiresInMinutes: 5n }],
    ['expires_in_minutes', { expiresInMinutes: Number.NaN }],
    ['expires_in_minutes', { expiresInMinutes: 1.5 }],
    ['amount_units', { amountUnits: '5' }],
    ['amount_units', { amountUnits: 1.5 }],
    ['amount_units', { amountUnits: 2n ** 53n + 1n }],
    ['amount_units', { amountUnits: 2n ** 64n }],
    ['token', { token: 'DAI' }],
    ['lane', { lane: 'fast' }],
  ])('a value of another type: %s in %o', async (field, change) => {
    expect(await refused({ amountUnits: 1, ...change })).toMatchObject({
      code: 'invalid_body',
      isRetryable: false,
      details: [{ field }],
    });
  });

  test('of many, the first twenty are named', async () => {
    const unknown = Array.from({ length: 25 }, (_, i) => [`x${i}`, 1]);
    const error = await refused({ amountUnits: 1, ...Object.fromEntries(unknown) });
    expect(error.details).toHaveLength(20);
    expect(error.message).toMatch(/; and 24 more$/);
  });

  test('an unknown option of the call', async () => {
    const error = await refused({ amountUnits: 1 }, { idempotencykey: 'order-1' });
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toMatch(/did you mean idempotencyKey\?$/);
  });
});

test('minutes beyond int32 are clamped over both protocols', async () => {
  for (const protocol of protocols) {
    const intent = await clientOver(protocol).createPaymentIntent({
      amountUnits: 1,
      expiresInMinutes: 2 ** 40,
    });
    expect(intent.expiresInMinutes).toBe(60);
  }
});

describe('metadata', () => {
  class Order {
    id = 'order-1';
  }
  const itself: Record<string, unknown> = {};
  itself.inside = [itself];
  const nested = (levels: number): object => {
    let object = {};
    for (let level = 1; level < levels; level++) object = { a: object };
    return object;
  };

  test.each<[string, unknown, string, RegExp]>([
    [
      'a Date',
      { items: [{}, { at: new Date(0) }] },
      'metadata.items[1].at',
      /an instance of Date; send its toISOString/,
    ],
    ['a bigint', { 'order id': 5n }, 'metadata["order id"]', /the bigint 5n; send it as a string/],
    ['a function', { onPaid: () => {} }, 'metadata.onPaid', /a function/],
    ['a symbol', { s: Symbol('s') }, 'metadata.s', /a symbol/],
    ['NaN', { n: Number.NaN }, 'metadata.n', /NaN/],
    ['an infinity', { n: [Number.NEGATIVE_INFINITY] }, 'metadata.n[0]', /-Infinity/],
    ['a hole in an array', { a: Array(1) }, 'metadata.a[0]', /undefined/],
    ['undefined in an array', { a: ['x', undefined] }, 'metadata.a[1]', /undefined/],
    ['an instance of a class', { order: new Order() }, 'metadata.order', /an instance of Order/],
    ['a Map', { m: new Map() }, 'metadata.m', /an instance of Map/],
    ['bytes', { b: new Uint8Array(2) }, 'metadata.b', /Uint8Array/],
    ['a boxed string', { b: new String('x') }, 'metadata.b', /String/],
    ['a cycle', itself, 'metadata.inside[0]', /contain itself/],
    ['16 levels', nested(16), `metadata${'.a'.repeat(15)}`, /15 levels/],
    ['100,000 levels', nested(100_000), `metadata${'.a'.repeat(15)}`, /15 levels/],
    ['a lone surrogate', { s: '\ud800' }, 'metadata.s', /lone surrogate/],
    ['an array', [], 'metadata', /must be an object, not an array/],
    ['a string', 'order-1', 'metadata', /must be an object, not "order-1"/],
    ['an instance itself', new Order(), 'metadata', /an instance of Order/],
  ])('%s is refused, and the error has its path', async (_, metadata, field, message) => {
    const error = await refused({ amountUnits: 1, metadata });
    expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false });
    expect(error.details).toEqual([{ field, message: expect.stringMatching(message) }]);
    expect(error.message).toContain(field);
  });

  const shared = { a: 1 };
  test.each<[string, object, object]>([
    ['undefined members are left out', { a: undefined, b: { c: undefined } }, { b: {} }],
    ['-0 is 0', { n: -0, a: [-0] }, { n: 0, a: [0] }],
    ['an object twice', { a: shared, b: shared }, { a: { a: 1 }, b: { a: 1 } }],
    ['an object without a prototype', Object.assign(Object.create(null), { a: 1 }), { a: 1 }],
    ['an object of another realm', runInNewContext('({ a: [{ b: 1 }] })'), { a: [{ b: 1 }] }],
    ['15 levels', nested(15), nested(15)],
    [
      'every kind of value',
      { s: 'ü€😀"\\', n: -1.5e-7, t: true, z: null, a: [[], {}] },
      { s: 'ü€😀"\\', n: -1.5e-7, t: true, z: null, a: [[], {}] },
    ],
    [
      'a member named __proto__',
      JSON.parse('{"a":{"__proto__":{"b":1}}}'),
      JSON.parse('{"a":{"__proto__":{"b":1}}}'),
    ],
    ['an empty name', { '': 1 }, { '': 1 }],
  ])('%s, over both protocols', async (name, metadata, expected) => {
    for (const protocol of protocols) {
      // Both use the same key, so a different request over the other protocol would be refused.
      const intent = await clientOver(protocol).createPaymentIntent(
        { amountUnits: 1, metadata },
        { idempotencyKey: name.replaceAll(' ', '-') },
      );
      expect([protocol, JSON.stringify(intent.metadata)]).toEqual([protocol, JSON.stringify(expected)]);
      expect(Object.is((intent.metadata as { n?: number }).n, -0)).toBe(false);
      expect(intent.replayed).toBe(protocol === 'grpc');
    }
  });

  test('retries send what the first try sent, even if the object changes', async () => {
    for (const protocol of protocols) {
      const network = await startLossyNetwork(portOf(service, protocol));
      const client = clientOf(service, protocol, { baseUrl: `http://127.0.0.1:${network.port}` });
      const metadata = { order: { id: 'before' } };
      const created = client.createPaymentIntent({ amountUnits: 1, metadata });
      metadata.order.id = 'after';
      expect((await created).metadata).toEqual({ order: { id: 'before' } });
      await network.close();
    }
  });
});

describe('the idempotency key', () => {
  test.each<[string, unknown]>([
    ['a newline', 'order-1\n'],
    ['a header of its own', 'order-1\r\nX-A: b'],
    ['a space', 'order 1'],
    ['a letter beyond ASCII', 'bestellung-ü'],
    ['nothing', ''],
    ['256 characters', 'a'.repeat(256)],
    ['null', null],
    ['a number', 1001],
    ['a missing order id', undefined],
  ])('%s is refused, and nothing is sent', async (_, idempotencyKey) => {
    const error = await refused({ amountUnits: 1 }, { idempotencyKey });
    expect(error).toMatchObject({ code: 'idempotency_key_invalid', isRetryable: false });
    expect(error.message).toMatch(/^idempotencyKey must be 1 to 255 visible ASCII characters, not /);
  });

  test.each(['!~/order-1001/2', 'a'.repeat(255), '"quoted-\\"-form"'])(
    'a valid key is sent: %s',
    async (idempotencyKey) => {
      for (const protocol of protocols) {
        const intent = await clientOver(protocol).createPaymentIntent({ amountUnits: 1 }, { idempotencyKey });
        expect(intent.replayed).toBe(protocol === 'grpc');
      }
    },
  );
});

describe('the options of a client', () => {
  const good = { baseUrl: 'http://127.0.0.1:8080', apiKey: 'sk_testnet_secret' };

  test.each<[Record<string, unknown>, RegExp]>([
    [
      { apiKey: undefined },
      /^apiKey must be your secret API key.*undefined; is the environment variable set/,
    ],
    [{ apiKey: null }, /^apiKey must be .* null/],
    [{ apiKey: '' }, /^apiKey must be .* empty/],
    [{ apiKey: 'sk_testnet_secret\n' }, /^apiKey must be the key alone/],
    [{ apiKey: 'Bearer sk_testnet_secret' }, /^apiKey must be the key alone/],
    [{ apiKey: 'sk_testnet_seçret' }, /^apiKey must be the key alone/],
    [{ protocol: 'GRPC' }, /^protocol must be "json" or "grpc", not "GRPC"/],
    [{ protocol: null }, /^protocol must be "json" or "grpc", not null/],
    [{ baseUrl: undefined }, /^baseUrl must be an address/],
    [{ baseUrl: 'pay.example' }, /^baseUrl must be an address/],
    [{ baseUrl: 'pay.example:8080' }, /^baseUrl must be an address/],
    [{ baseUrl: 'sk_testnet_0a1b' }, /^baseUrl must be an address .* not "\[secret\]"$/],
    [{ baseUrl: 'ftp://pay.example' }, /^baseUrl must be an address/],
    [{ baseUrl: 'http://u:p@pay.example' }, /^baseUrl must not contain a user name or a password$/],
    [{ baseUrl: 'user:sk_testnet_x@pay.example' }, /^baseUrl must be an address .* not that$/],
    [
      { baseUrl: 'http://pay.example?a=1' },
      /^baseUrl must have no query or fragment: use "http:\/\/pay\.example\/"$/,
    ],
    [{ baseUrl: 'http://pay.example/#a' }, /^baseUrl must have no query or fragment/],
    [{ baseUrl: 'http://pay.example/v1/' }, /^baseUrl must not include the service's own path/],
    [
      { baseUrl: 'http://pay.example/v1/payment_intents' },
      /^baseUrl must not include the service's own path/,
    ],
    [{ timeoutMs: 0 }, /^timeoutMs must be milliseconds/],
    [{ timeoutMs: Number.NaN }, /^timeoutMs must be milliseconds/],
    [{ timeoutMs: 2 ** 31 }, /^timeoutMs must be milliseconds, from 1 to 2147483647/],
    [{ callTimeoutMs: -1 }, /^callTimeoutMs must be milliseconds/],
    [{ callTimeoutMs: '5' }, /^callTimeoutMs must be milliseconds/],
    [{ maxTries: 0 }, /^maxTries must be an integer from 1 on/],
    [{ maxTries: 1.5 }, /^maxTries must be an integer from 1 on/],
    [{ maxRetries: 3 }, /^maxRetries is not an option here; /],
    [{ timeoutMS: 3 }, /^timeoutMS is not an option here; did you mean timeoutMs\?$/],
  ])('%o', (change, message) => {
    const options = { ...good, ...change } as PaymentIntentsClientOptions;
    expect(() => createPaymentIntentsClient(options)).toThrow(TypeError);
    expect(() => createPaymentIntentsClient(options)).toThrow(message);
    // An invalid API key must not appear in an error.
    expect(() => createPaymentIntentsClient(options)).toThrow(
      expect.objectContaining({ message: expect.not.stringContaining('sk_testnet') }),
    );
  });

  test('that are left out have the documented defaults', () => {
    const defaults = { timeoutMs: 10_000, callTimeoutMs: undefined, maxTries: 6, protocol: 'json' };
    expect(readOptions(good, ['json', 'grpc'])).toEqual({ ...good, ...defaults });
  });

  test('no options at all', () => {
    const create = createPaymentIntentsClient as (options?: unknown) => unknown;
    expect(() => create()).toThrow(/the options must be an object, not undefined/);
  });

  test('the options of a call', async () => {
    const error = await refused({ amountUnits: 1 }, { signal: 'soon' });
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe('signal must be an AbortSignal, not "soon"');
    expect(await refused({ amountUnits: 1 }, { timeoutMs: 2 ** 32 })).toBeInstanceOf(TypeError);
  });
});

describe('every other call', () => {
  test.each([[''], ['.'], ['..'], ['pi_1/../2'], ['pi_1?a=b'], [undefined], [null], [5], [{ id: 'pi_1' }]])(
    'an id that would change the path of the request: %j',
    async (id) => {
      for (const { of } of Object.values(rows)) {
        if (of === undefined) continue;
        const error = await refusedCall((client) => of[1](client, id as never));
        expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false, details: [{ field: 'id' }] });
      }
    },
  );

  test('a client secret as an id is not shown', async () => {
    const { id, clientSecret } = await clientOver('json').createPaymentIntent({ amountUnits: 1 });
    const error = await refusedCall((client) => client.retrievePaymentIntent(clientSecret));
    expect(error.message).toBe('id must be an id that the service returned, not a client secret');
    expect(error.message).not.toContain(id);
  });

  test.each<[string, (client: PaymentIntentsClient) => unknown, string, RegExp]>([
    [
      'status',
      (c) => c.listPaymentIntents({ status: 'paid' as never }),
      'status',
      /must be "requires_payment" or/,
    ],
    [
      'status',
      (c) => c.listTransfers({ status: 'pending' as never }),
      'status',
      /^must be "unattributed" or "attributed", not "pending"$/,
    ],
    ['stauts', (c) => c.listTransfers({ stauts: 'x' } as never), 'stauts', /did you mean status/],
    [
      'paymentIntent',
      (c) => c.attributeTransfer('tr_1', {} as never),
      'payment_intent',
      /^must be text, not undefined$/,
    ],
    [
      'paymentIntent',
      (c) => c.attributeTransfer('tr_1', { paymentIntent: '' }),
      'payment_intent',
      /^must not be empty$/,
    ],
    ['stauts', (c) => c.listPaymentIntents({ stauts: 'x' } as never), 'stauts', /did you mean status\?$/],
    ['pageSize', (c) => c.listPaymentIntents({ pageSize: 0 }), 'page_size', /an integer from 1 on/],
    ['pageSize', (c) => c.listEvents({ pageSize: 1.5 }), 'page_size', /an integer from 1 on/],
    [
      'createdFrom',
      (c) => c.listPaymentIntents({ createdFrom: new Date('x') }),
      'created_from',
      /an invalid Date/,
    ],
    [
      'createdFrom',
      (c) => c.listPaymentIntents({ createdFrom: '2026' as never }),
      'created_from',
      /must be a Date/,
    ],
    // Over gRPC, an empty value stands for everything.
    ['after', (c) => c.listEvents({ after: '' }), 'after', /must not be empty/],
    ['paymentIntent', (c) => c.listEvents({ paymentIntent: '' }), 'payment_intent', /must not be empty/],
    [
      'webhookEndpoint',
      (c) => c.redeliverEvent('evt_1', { webhookEndpoint: '' }),
      'webhook_endpoint',
      /empty/,
    ],
    [
      'eventTypes',
      (c) => c.createWebhookEndpoint({ url: 'x', eventTypes: [] }),
      'event_types',
      /must not be empty/,
    ],
    [
      'eventTypes',
      (c) => c.createWebhookEndpoint({ url: 'x', eventTypes: '*' as never }),
      'event_types',
      /an array/,
    ],
    [
      'eventTypes',
      (c) => c.createWebhookEndpoint({ url: 'x', eventTypes: [5 as never] }),
      'event_types[0]',
      /text/,
    ],
    ['url', (c) => c.createWebhookEndpoint({} as never), 'url', /must be text, not undefined/],
    ['enabled', (c) => c.updateWebhookEndpoint('we_1', { enabled: 1 as never }), 'enabled', /true or false/],
    [
      'overlapHours',
      (c) => c.rotateWebhookSecret('we_1', { overlapHours: 2 ** 40 }),
      'overlap_hours',
      /from 0/,
    ],
  ])('%s', async (_, call, field, message) => {
    const error = await refusedCall(call);
    expect(error).toBeInstanceOf(PaymentIntentsError);
    expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false });
    expect(error.details).toEqual([{ field, message: expect.stringMatching(message) }]);
  });

  test('an option that a call does not have', async () => {
    for (const call of [
      (client: PaymentIntentsClient) =>
        client.retrievePaymentIntent('pi_1', { idempotencyKey: 'order-1' } as never),
      (client: PaymentIntentsClient) => client.listEvents({}, { idempotencyKey: 'order-1' } as never),
    ]) {
      const error = await refusedCall(call);
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toBe(
        'idempotencyKey is not an option here; there are signal, timeoutMs, callTimeoutMs',
      );
    }
  });
});
