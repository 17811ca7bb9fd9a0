// Values that a client receives and sends back: page tokens, positions, ids, secrets and keys. With a changed
// character they are refused or find another resource of the same merchant. They never cause server errors.

import fc from 'fast-check';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { refusalOf } from './support/call.ts';
import { insertEventRows } from './support/event-rows.ts';
import { disconnectWatches, openWatch } from './support/event-streams.ts';
import { httpRequest, type TestService } from './support/service.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ RATE_LIMIT_CHECKOUT: '0' });

const keyOf = ({ merchant }: TestService) => merchant.keys.testnet.apiKey;

async function send(method: string, path: string, body?: object, bearer = keyOf(service)) {
  const headers = { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' };
  const answer = await httpRequest(
    service.publicUrl + path,
    { method, headers },
    body && JSON.stringify(body),
  );
  return { status: answer.status, json: answer.body === '' ? {} : JSON.parse(answer.body) };
}

let intent: { id: string; client_secret: string };
let endpointId: string;
let eventId: string;
let transferId: string;

/** Creates two of everything that is listed, so that a page of one item has a next page. */
beforeAll(async () => {
  for (const _ of [1, 2]) {
    intent = (await send('POST', '/v1/payment_intents', { amount_units: 1 })).json;
    endpointId = (await send('POST', '/v1/webhook_endpoints', { url: 'http://127.0.0.1:1/' })).json.id;
  }
  for (const _ of [1, 2]) eventId = (await send('POST', `/v1/webhook_endpoints/${endpointId}/ping`)).json.id;
  [transferId = ''] = await insertTransfers(service, service.merchant, [{}, {}]);
  await insertEventRows(service.query, [{ merchantId: service.merchant.id }]);
  const deliveries = `/v1/webhook_endpoints/${endpointId}/deliveries`;
  await vi.waitFor(
    async () => {
      expect((await send('GET', '/v1/events')).json.events).toHaveLength(3);
      expect((await send('GET', deliveries)).json.webhook_deliveries.length).toBeGreaterThan(1);
    },
    { timeout: 20_000 },
  );
});

afterEach(disconnectWatches);

/** The same bytes with one of them changed. */
const changedBytes = (token: string, at: number, mask: number) => {
  const bytes = Buffer.from(token, 'base64url');
  bytes[at % bytes.length] = (bytes[at % bytes.length] ?? 0) ^ mask;
  return bytes.toString('base64url');
};
const changedText = (text: string, at: number, character: string) =>
  text.slice(0, at % text.length) + character + text.slice((at % text.length) + 1);

const masks = Array.from({ length: 8 }, (_, bit) => 1 << bit).concat(0xff);
const characters = fc.oneof(
  fc.constantFrom(...'0Zz-_= %\0/é€'),
  fc.string({ unit: 'grapheme', maxLength: 3 }),
);

const lists: [string, () => string][] = [
  ['/v1/payment_intents', () => '/v1/payment_intents?page_size=1'],
  ['/v1/payment_intents?lane', () => '/v1/payment_intents?page_size=1&lane=sdk'],
  ['/v1/transfers', () => '/v1/transfers?page_size=1'],
  ['/v1/events', () => '/v1/events?page_size=1'],
  ['/v1/webhook_endpoints', () => '/v1/webhook_endpoints?page_size=1'],
  ['/deliveries', () => `/v1/webhook_endpoints/${endpointId}/deliveries?page_size=1`],
];

describe.each(lists)('a page token of %s', (_, list) => {
  let token: string;
  beforeAll(async () => {
    token = (await send('GET', list())).json.next_page_token;
    expect(token).toBeDefined();
  });

  const expectHarmless = async (changed: string) => {
    const { status, json } = await send('GET', `${list()}&page_token=${encodeURIComponent(changed)}`);
    // A position that the database does not have may have been lost, hence 410.
    if (status === 200 || (status === 410 && list().startsWith('/v1/events'))) return;
    expect([changed, status, json.error?.details?.map(({ field }: { field: string }) => field)]).toEqual([
      changed,
      400,
      ['page_token'],
    ]);
  };

  test('with any bit changed is refused or harmless', async () => {
    const length = Buffer.from(token, 'base64url').length;
    for (let at = 0; at < length; at++) {
      await Promise.all(masks.map((mask) => expectHarmless(changedBytes(token, at, mask))));
    }
  });

  test('with an arbitrary cursor is refused or harmless', async () => {
    const head = Buffer.from(token, 'base64url').subarray(0, 7);
    const length = Buffer.from(token, 'base64url').length - head.length;
    const cursor = fc.uint8Array({ minLength: length, maxLength: length });
    const bounds = [0, 0xff, 0x7f, 0x80].map((byte): [Uint8Array] => [new Uint8Array(length).fill(byte)]);
    await fc.assert(
      fc.asyncProperty(cursor, (bytes) => expectHarmless(Buffer.concat([head, bytes]).toString('base64url'))),
      { numRuns: 50, examples: bounds },
    );
  });

  test('with any character changed is refused or harmless', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(), characters, (at, character) =>
        expectHarmless(changedText(token, at, character)),
      ),
      { numRuns: 50 },
    );
  });
});

test('the position of a stream with any byte changed is refused or harmless', async () => {
  const { position } = await openWatch('gRPC', service, keyOf(service)).next();
  for (let at = 0; at < Buffer.from(position, 'base64url').length; at++) {
    for (const mask of [0x01, 0x80, 0xff]) {
      const changed = changedBytes(position, at, mask);
      const watch = openWatch('gRPC', service, keyOf(service), changed);
      const code = await watch.next().then(
        () => 'ok',
        (reason) => refusalOf(reason).code,
      );
      watch.disconnect();
      expect(['ok', 'invalid_body', 'cursor_expired'], changed).toContain(code);
    }
  }
});

const idRoutes: [string, string, () => string, (id: string) => Promise<{ status: number }>][] = [
  ['pi', 'get', () => intent.id, (id) => send('GET', `/v1/payment_intents/${id}`)],
  ['pi', 'cancel', () => intent.id, (id) => send('POST', `/v1/payment_intents/${id}/cancel`)],
  [
    'pi',
    'attribute',
    () => intent.id,
    (id) => send('POST', `/v1/transfers/${transferId}/attribute`, { payment_intent: id }),
  ],
  [
    'tr',
    'attribute',
    () => transferId,
    (id) => send('POST', `/v1/transfers/${id}/attribute`, { payment_intent: intent.id }),
  ],
  ['evt', 'get', () => eventId, (id) => send('GET', `/v1/events/${id}`)],
  ['evt', 'after', () => eventId, (id) => send('GET', `/v1/events?after=${id}`)],
  ['evt', 'redeliver', () => eventId, (id) => send('POST', `/v1/events/${id}/redeliver`, {})],
  ['we', 'get', () => endpointId, (id) => send('GET', `/v1/webhook_endpoints/${id}`)],
  ['we', 'change', () => endpointId, (id) => send('PATCH', `/v1/webhook_endpoints/${id}`, {})],
  ['we', 'delete', () => endpointId, (id) => send('DELETE', `/v1/webhook_endpoints/${id}`)],
  ['we', 'rotate', () => endpointId, (id) => send('POST', `/v1/webhook_endpoints/${id}/rotate_secret`, {})],
  ['we', 'ping', () => endpointId, (id) => send('POST', `/v1/webhook_endpoints/${id}/ping`)],
  ['we', 'deliveries', () => endpointId, (id) => send('GET', `/v1/webhook_endpoints/${id}/deliveries`)],
  [
    'we',
    'redeliver',
    () => endpointId,
    (id) => send('POST', `/v1/events/${eventId}/redeliver`, { webhook_endpoint: id }),
  ],
];
test.each(idRoutes)('an id %s_ with a character changed is refused: %s', async (prefix, name, idOf, call) => {
  const id = idOf();
  // All ids are parsed in one place, tested completely by the first route. The others show that they use it.
  const isFirst = idRoutes.find(([other]) => other === prefix)?.[1] === name;
  for (const at of isFirst ? [...id].keys() : [0, 3, id.length - 1]) {
    for (const character of ['0', 'z', 'Z', '%', '%00', '%ff', '.']) {
      const changed = id.slice(0, at) + character + id.slice(at + 1);
      if (changed === id) continue;
      expect([400, 404], changed).toContain((await call(changed)).status);
    }
  }
});

test('an id with any character changed, as the filter of a list, finds nothing', async () => {
  for (let at = 0; at < intent.id.length; at++) {
    const changed = changedText(intent.id, at, intent.id[at] === '0' ? '1' : '0');
    const { status, json } = await send('GET', `/v1/events?payment_intent=${changed}`);
    if (status === 200) expect(json.events, changed).toEqual([]);
    else expect(status, changed).toBe(400);
  }
});

test.each<[string, () => string, string]>([
  ['a client secret', () => intent.client_secret, '/v1/checkout'],
  ['an API key', () => keyOf(service), '/v1/payment_intents'],
])('%s with any character changed is refused', async (_, secretOf, path) => {
  const secret = secretOf();
  expect((await send('GET', path, undefined, secret)).status).toBe(200);
  for (let at = 0; at < secret.length; at++) {
    const changed = changedText(secret, at, secret[at] === 'a' ? 'b' : 'a');
    expect((await send('GET', path, undefined, changed)).status, changed).toBe(401);
  }
});
