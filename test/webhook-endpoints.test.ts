// Creating, reading, changing and deleting webhook endpoints, through both doors.

import type { JsonObject } from '@bufbuild/protobuf';
import { describe, expect, onTestFinished, test } from 'vitest';
import { eventTypes } from '../src/contract/event-types.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { maxEndpoints } from '../src/webhooks/endpoints.ts';
import { type Door, doors, type MethodName } from './support/call.ts';
import { allPositioned, insertEventRows } from './support/event-rows.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, type TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker } from './support/webhook-worker.ts';

// Without the role that delivers webhooks: nothing is sent.
const service = await useService({ ROLES: 'api' });

const apiKey = service.merchant.keys.testnet.apiKey;

const url = 'https://shop.example/webhooks';
const uuidOf = (id: string) => parseIdentifier('we', id) as string;

/** Calls a method, which has to succeed. */
async function ok<M extends MethodName>(
  door: Door,
  method: M,
  request: JsonObject,
  options: { apiKey?: string; idempotencyKey?: string } = {},
) {
  const answer = await service.call(method, request, { door, apiKey, ...options });
  expect([answer.code, answer.message]).toEqual(['ok', '']);
  return answer.json;
}

const created = async (request: JsonObject = {}, key = apiKey) =>
  ok('json', 'createWebhookEndpoint', { url, ...request }, { apiKey: key });

const newKey = async () => (await service.newMerchant()).keys.testnet.apiKey;

describe.each(doors)('over %s', (door) => {
  test('an endpoint is created with its defaults, read and listed without its secret', async () => {
    const { secret, ...endpoint } = await ok(door, 'createWebhookEndpoint', { url });
    expect(endpoint).toEqual({
      id: expect.stringMatching(/^we_[0-7][0-9a-hjkmnp-tv-z]{25}$/),
      url,
      event_types: ['*'],
      enabled: true,
      mode: 'testnet',
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    });
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(Math.abs(Date.now() - Date.parse(endpoint.created_at))).toBeLessThan(60_000);
    expect(await ok(door, 'getWebhookEndpoint', { id: endpoint.id })).toEqual(endpoint);
    const { webhook_endpoints } = await ok(door, 'listWebhookEndpoints', {});
    expect(webhook_endpoints[0]).toEqual(endpoint);
  });

  test('every field is kept', async () => {
    const fields = {
      url: 'https://shop.example:8443/webhooks?shop=7',
      event_types: [...eventTypes],
      enabled: false,
      // 200 characters, of which a few need two UTF-16 units each.
      description: `${'é'.repeat(190)}${'\u{1F600}'.repeat(10)}`,
    };
    const { secret, ...endpoint } = await ok(door, 'createWebhookEndpoint', fields);
    expect(endpoint).toMatchObject(fields);
    expect(await ok(door, 'getWebhookEndpoint', { id: endpoint.id })).toEqual(endpoint);
  });

  test('a change leaves the other fields as they are', async () => {
    const { secret, ...before } = await ok(door, 'createWebhookEndpoint', { url, description: 'orders' });
    const { id } = before;
    let expected = before;
    for (const change of [
      { url: 'https://other.example/' },
      { event_types: ['payment_intent.succeeded', 'payment_intent.expired'] },
      { description: 'more orders' },
      { enabled: false },
      { enabled: true },
      { url, event_types: ['*'] },
      {},
    ]) {
      expected = { ...expected, ...change };
      expect(await ok(door, 'updateWebhookEndpoint', { id, ...change })).toEqual(expected);
      expect(await ok(door, 'getWebhookEndpoint', { id })).toEqual(expected);
    }
    const { description, ...cleared } = expected;
    expect(await ok(door, 'updateWebhookEndpoint', { id, description: '' })).toEqual(cleared);
    expect(await ok(door, 'getWebhookEndpoint', { id })).toEqual(cleared);
  });

  test('enabling resets the reason why it was disabled, and its failures', async () => {
    const { id } = await created();
    await service.query(
      `update webhook_endpoints set enabled = false, disabled_reason = 'it answered 410 Gone', failures = 12,
              failing_since = now() - interval '6 days' where id = $1`,
      [uuidOf(id)],
    );
    expect(await ok(door, 'getWebhookEndpoint', { id })).toMatchObject({
      enabled: false,
      disabled_reason: 'it answered 410 Gone',
    });
    // Any other change keeps them.
    expect(await ok(door, 'updateWebhookEndpoint', { id, description: 'x' })).toHaveProperty(
      'disabled_reason',
    );
    await ok(door, 'updateWebhookEndpoint', { id, url: (await ok(door, 'getWebhookEndpoint', { id })).url });
    const failures = async () =>
      (await service.query('select failures from webhook_endpoints where id = $1', [uuidOf(id)]))[0];
    expect(await failures()).toEqual({ failures: 12 });
    // The failures belonged to the previous URL.
    await ok(door, 'updateWebhookEndpoint', { id, url: 'https://shop.example/elsewhere' });
    expect(await failures()).toEqual({ failures: 0 });
    const enabled = await ok(door, 'updateWebhookEndpoint', { id, enabled: true });
    expect(enabled).toMatchObject({ enabled: true });
    expect(enabled).not.toHaveProperty('disabled_reason');
    expect(
      await service.query('select failures, failing_since from webhook_endpoints where id = $1', [
        uuidOf(id),
      ]),
    ).toEqual([{ failures: 0, failing_since: null }]);
  });

  test('a rotation returns a new secret, and nothing else ever returns one', async () => {
    const { id, secret } = await created();
    const rotated = await ok(door, 'rotateWebhookSecret', { id });
    expect(rotated.secret).toMatch(/^whsec_/);
    expect(rotated.secret).not.toBe(secret);
    const [row] = await service.query<{ hours: number }>(
      `select extract(epoch from expires_at - now())::float / 3600 as hours from webhook_secrets
        where endpoint_id = $1 and generation = 1`,
      [uuidOf(id)],
    );
    // The default overlap.
    expect(row?.hours).toBeGreaterThan(23.9);
    expect(row?.hours).toBeLessThanOrEqual(24);
    const answers = [
      await ok(door, 'getWebhookEndpoint', { id }),
      await ok(door, 'updateWebhookEndpoint', { id, description: 'x' }),
      await ok(door, 'listWebhookEndpoints', {}),
      await ok(door, 'pingWebhookEndpoint', { id }),
      await ok(door, 'listWebhookDeliveries', { id }),
    ];
    expect(JSON.stringify(answers)).toContain(id);
    expect(JSON.stringify(answers)).not.toMatch(/secret|whsec_/);
  });

  test('deleting an endpoint fails its pending deliveries, and deleting it again gets the same answer', async () => {
    // Its own merchant, so that no event of another test is delivered to the endpoint.
    const merchant = await service.newMerchant();
    const { apiKey } = merchant.keys.testnet;
    const { id } = await created({}, apiKey);
    await insertEventRows(service.query, [{ merchantId: merchant.id }]);
    const worker = createWebhookWorker(
      service.database.orm.em,
      service.database.keyRing('WEBHOOK_SECRET_KEYS'),
    );
    await worker.makeDeliveries();
    await worker.close();
    const deliveries = () =>
      service.query(
        'select status, next_attempt_at is null as ended from webhook_deliveries where endpoint_id = $1',
        [uuidOf(id)],
      );
    expect(await deliveries()).toEqual([{ status: 'pending', ended: false }]);
    expect(await ok(door, 'deleteWebhookEndpoint', { id }, { apiKey })).toEqual({});
    expect(await deliveries()).toEqual([{ status: 'failed', ended: true }]);
    const [before] = await service.query('select * from webhook_endpoints where id = $1', [uuidOf(id)]);
    expect(await ok(door, 'deleteWebhookEndpoint', { id }, { apiKey })).toEqual({});
    expect(await service.query('select * from webhook_endpoints where id = $1', [uuidOf(id)])).toEqual([
      before,
    ]);
    for (const method of [
      ...([
        'getWebhookEndpoint',
        'updateWebhookEndpoint',
        'rotateWebhookSecret',
        'pingWebhookEndpoint',
      ] as const),
      'listWebhookDeliveries' as const,
    ]) {
      expect([method, (await service.call(method, { id }, { door, apiKey })).code]).toEqual([
        method,
        'resource_missing',
      ]);
    }
    const { webhook_endpoints } = await ok(door, 'listWebhookEndpoints', { page_size: 100 }, { apiKey });
    expect(webhook_endpoints.map((endpoint: { id: string }) => endpoint.id)).not.toContain(id);
  });

  test('a call with the same idempotency key returns the first answer', async () => {
    const other: Door = door === 'json' ? 'grpc' : 'json';
    const options = { apiKey, idempotencyKey: `create-${door}` };
    const request = { url, description: 'orders' };
    const first = await service.call('createWebhookEndpoint', request, { door, ...options });
    expect(first).toMatchObject({ code: 'ok', replayed: false, json: { secret: expect.any(String) } });
    // Also through the other door, and with the defaults written out.
    for (const again of [door, other]) {
      expect(await service.call('createWebhookEndpoint', request, { door: again, ...options })).toEqual({
        ...first,
        replayed: true,
      });
      expect(
        await service.call(
          'createWebhookEndpoint',
          { ...request, event_types: ['*'], enabled: true },
          { door: again, ...options },
        ),
      ).toEqual({ ...first, replayed: true });
      for (const changed of [{ url: `${url}/2` }, { description: '' }, { enabled: false }]) {
        expect(
          await service.call(
            'createWebhookEndpoint',
            { ...request, ...changed },
            { door: again, ...options },
          ),
        ).toMatchObject({ code: 'idempotency_key_reused', replayed: false });
      }
    }
    const { id } = first.json;

    const rotation = { apiKey, idempotencyKey: 'rotation-1' };
    const rotated = await service.call(
      'rotateWebhookSecret',
      { id, overlap_hours: 24 },
      { door, ...rotation },
    );
    expect(rotated).toMatchObject({ code: 'ok', replayed: false });
    expect(await service.call('rotateWebhookSecret', { id }, { door, ...rotation })).toEqual({
      ...rotated,
      replayed: true,
    });
    expect(
      await service.call('rotateWebhookSecret', { id, overlap_hours: 1 }, { door, ...rotation }),
    ).toMatchObject({ code: 'idempotency_key_reused' });
    const next = await service.call(
      'rotateWebhookSecret',
      { id },
      { door, apiKey, idempotencyKey: 'rotation-2' },
    );
    expect(next.json.secret).not.toBe(rotated.json.secret);
    // Each key keeps its own secret, also after later rotations.
    expect(await service.call('rotateWebhookSecret', { id }, { door, ...rotation })).toEqual({
      ...rotated,
      replayed: true,
    });
    expect((await service.call('createWebhookEndpoint', request, { door, ...options })).json.secret).toBe(
      first.json.secret,
    );
    expect(
      await service.query('select count(*)::int as n from webhook_secrets where endpoint_id = $1', [
        uuidOf(id),
      ]),
    ).toEqual([{ n: 3 }]);
    // Without a key each call is a rotation.
    expect((await ok(door, 'rotateWebhookSecret', { id })).secret).not.toBe(next.json.secret);
  });

  test('an invalid idempotency key is refused', async () => {
    for (const method of ['createWebhookEndpoint', 'rotateWebhookSecret'] as const) {
      const request = method === 'createWebhookEndpoint' ? { url } : { id: (await created()).id };
      const { code } = await service.call(method, request, { door, apiKey, idempotencyKey: 'a b' });
      expect(code).toBe('idempotency_key_invalid');
    }
  });

  test('an endpoint or event of another merchant or mode is missing, like one that never existed', async () => {
    const { id } = await created({ description: 'mine' });
    const [event = ''] = await insertEventRows(service.query, [{ merchantId: service.merchant.id }]);
    // The event of this ping gets its position, too.
    await ok(door, 'pingWebhookEndpoint', { id });
    await allPositioned(service);
    const stranger: TestMerchant = await service.newMerchant();
    const unknown = formatIdentifier('we', newUuid());
    const before = await ok(door, 'getWebhookEndpoint', { id });
    const methods = [
      'getWebhookEndpoint',
      'updateWebhookEndpoint',
      'deleteWebhookEndpoint',
      'rotateWebhookSecret',
      'pingWebhookEndpoint',
      'listWebhookDeliveries',
      'redeliverWebhookEndpoint',
    ] as const;
    for (const method of methods) {
      const request = (one: string) =>
        method === 'updateWebhookEndpoint' ? { id: one, description: 'not mine' } : { id: one };
      const missing = await service.call(method, request(unknown), { door, apiKey });
      expect([method, missing.code]).toEqual([method, 'resource_missing']);
      for (const key of [stranger.keys.testnet.apiKey, service.merchant.keys.mainnet.apiKey]) {
        expect(await service.call(method, request(id), { door, apiKey: key })).toEqual(missing);
      }
      for (const malformed of ['we_x', id.toUpperCase(), id.replace('we_', 'evt_'), `${id}0`]) {
        expect(await service.call(method, request(malformed), { door, apiKey })).toEqual(missing);
      }
    }
    expect(await ok(door, 'getWebhookEndpoint', { id })).toEqual(before);
    for (const key of [stranger.keys.testnet.apiKey, stranger.keys.mainnet.apiKey]) {
      expect(await ok(door, 'listWebhookEndpoints', {}, { apiKey: key })).toEqual({ webhook_endpoints: [] });
    }
    // Neither another merchant's event to the own endpoint, nor an own event to another merchant's endpoint.
    const own = await created({}, stranger.keys.testnet.apiKey);
    const others = [stranger.keys.testnet.apiKey, service.merchant.keys.mainnet.apiKey];
    for (const request of [{ id: event }, { id: event, webhook_endpoint: own.id }]) {
      for (const apiKey of others) {
        const refused = await service.call('redeliverEvent', request, { door, apiKey });
        expect(refused.code).toBe('resource_missing');
      }
    }
    const redelivered = await ok(door, 'redeliverEvent', { id: event, webhook_endpoint: id });
    expect(redelivered.webhook_deliveries).toHaveLength(1);
    expect(
      await service.call('redeliverEvent', { id: event, webhook_endpoint: own.id }, { door, apiKey }),
    ).toMatchObject({ code: 'resource_missing' });
    // For another merchant or mode, it is a different idempotency key.
    const shared = { idempotencyKey: `shared-${door}` };
    const mine = await ok(door, 'createWebhookEndpoint', { url }, shared);
    for (const key of [stranger.keys.testnet.apiKey, stranger.keys.mainnet.apiKey]) {
      const theirs = await ok(door, 'createWebhookEndpoint', { url }, { ...shared, apiKey: key });
      expect(theirs.id).not.toBe(mine.id);
      expect(theirs.secret).not.toBe(mine.secret);
    }
  });

  test('lists are paged, newest first, with each endpoint once', async () => {
    const key = await newKey();
    const ids: string[] = [];
    for (let i = 0; i < 25; i++) ids.unshift((await created({ description: `${i}` }, key)).id);
    const pages = async (size: number) => {
      const found: string[][] = [];
      let token: string | undefined;
      do {
        const { webhook_endpoints, next_page_token } = await ok(
          door,
          'listWebhookEndpoints',
          { ...(size > 0 && { page_size: size }), ...(token && { page_token: token }) },
          { apiKey: key },
        );
        found.push(webhook_endpoints.map(({ id }: { id: string }) => id));
        token = next_page_token;
      } while (token !== undefined);
      return found;
    };
    expect(await pages(0)).toEqual([ids.slice(0, 20), ids.slice(20)]);
    expect(await pages(5)).toEqual([0, 5, 10, 15, 20].map((from) => ids.slice(from, from + 5)));
    expect(await pages(100)).toEqual([ids]);
    const { next_page_token } = await ok(door, 'listWebhookEndpoints', { page_size: 5 }, { apiKey: key });
    for (const [request, field] of [
      [{ page_size: 101 }, 'page_size'],
      [{ page_token: 'nonsense' }, 'page_token'],
    ] as const) {
      const { code, details } = await service.call('listWebhookEndpoints', request, { door, apiKey: key });
      expect([code, details[0]?.field]).toEqual(['invalid_body', field]);
    }
    // Another merchant's token.
    const { code, details } = await service.call(
      'listWebhookEndpoints',
      { page_token: next_page_token },
      { door, apiKey },
    );
    expect([code, details[0]?.field]).toEqual(['invalid_body', 'page_token']);
  });
});

test('a description may contain joiners and emoji', async () => {
  const description = 'می‌خواهم ☕️ 👩‍❤️‍👨 1️⃣ クラブ 한글';
  for (const door of doors)
    expect(await ok(door, 'createWebhookEndpoint', { url, description })).toMatchObject({ description });
});

describe('refuses by name', () => {
  const long = 'x'.repeat(2_048);
  const notAType = /^must be "\*" or a type of event, such as payment_intent\.succeeded/;
  const cases: [string, JsonObject, string | RegExp, RegExp][] = [
    ['an unknown field', { urls: url }, /^(?:urls|field 99)$/, /is not a field/],
    ['an invalid URL', { url: 'shop' }, 'url', /^must be a URL, such as https:/],
    ['an empty URL', { url: '' }, 'url', /./],
    [
      'a URL over 2,048 characters',
      { url: `https://shop.example/${long}` },
      'url',
      /^must have at most 2048 char/,
    ],
    ['an unknown type', { event_types: ['nonsense.at.all'] }, 'event_types[0]', notAType],
    ['the second type', { event_types: ['*', 'created'] }, 'event_types[1]', notAType],
    [
      'a misspelt type, with a hint',
      { event_types: ['payment_intent.suceeded'] },
      'event_types[0]',
      /\(did you mean payment_intent\.succeeded\?\)$/,
    ],
    ['an empty type', { event_types: [''] }, 'event_types[0]', notAType],
    [
      'more types than there are',
      // Comparing each one with the known types would block the process for 150 ms.
      { event_types: Array.from({ length: 2_400 }, (_, i) => `payment_intent.suceeded${i % 9}`) },
      'event_types',
      new RegExp(`^must have at most ${eventTypes.length + 1} types$`),
    ],
    [
      'a description over 200 characters',
      { description: 'é'.repeat(201) },
      'description',
      /^must have at most 200 char/,
    ],
    ['a description with NUL', { description: 'a\0b' }, 'description', /U\+0000$/],
    ['a description with ESC', { description: '\x1b[2J' }, 'description', /without control, .* U\+001B$/],
    ['a description with BEL', { description: 'a\x07' }, 'description', /U\+0007$/],
    ['a description with C1', { description: 'a\x9b2J' }, 'description', /U\+009B$/],
    ['a description of two lines', { description: 'a\nb' }, 'description', /one line.* U\+000A$/],
    ['a description with a change of text direction', { description: 'a\u202eb' }, 'description', /U\+202E$/],
    ...['\u200b', '\u00ad', '\u034f', '\u115f', '\u1160', '\u180e', '\u2800', '\u3164', '\ufe0f', '\uffa0']
      .concat(['\u{e0001}', '\u{e0020}', '\u{e007f}', '\u{e0100}'])
      .map((character): [string, JsonObject, string, RegExp] => {
        const hex = character.codePointAt(0)?.toString(16).padStart(4, '0').toUpperCase();
        const says = new RegExp(`invisible characters, but contains U\\+${hex}$`);
        return [`a description with U+${hex}`, { description: `a${character}b` }, 'description', says];
      }),
    [
      'a description that begins with a byte order mark',
      { description: '\ufeffa' },
      'description',
      /U\+FEFF$/,
    ],
    [
      'a URL with a change of text direction',
      { url: 'https://shop.example/\u2066a' },
      'url',
      /bidirectional .* U\+2066$/,
    ],
  ];

  test.each(cases)('%s', async (_, fields, field, says) => {
    const { id } = await created();
    const fails = async (door: Door, method: MethodName, request: JsonObject) => {
      const answer = await service.call(method, request, { door, apiKey });
      expect([door, method, answer.code, answer.details.length]).toEqual([
        ...[door, method],
        'invalid_body',
        1,
      ]);
      const [detail] = answer.details;
      expect(detail?.field).toEqual(typeof field === 'string' ? field : expect.stringMatching(field));
      expect(detail?.message).toMatch(says);
    };
    for (const door of doors) {
      await fails(door, 'createWebhookEndpoint', { url, ...fields });
      await fails(door, 'updateWebhookEndpoint', { id, ...fields });
    }
    const { secret, ...unchanged } = await created();
    expect(await ok('json', 'getWebhookEndpoint', { id })).toEqual({
      ...unchanged,
      id,
      created_at: expect.any(String),
    });
  });

  test('all violations at once', async () => {
    for (const door of doors) {
      const { code, details } = await service.call(
        'createWebhookEndpoint',
        { url: 'ftp://shop.example', event_types: ['a', '*', 'b'], description: 'x'.repeat(201) },
        { door, apiKey },
      );
      expect([code, details.map(({ field }) => field)]).toEqual([
        'invalid_body',
        ['url', 'event_types[0]', 'event_types[2]', 'description'],
      ]);
    }
  });

  test('an invalid overlap', async () => {
    const { id } = await created();
    for (const door of doors) {
      for (const overlap_hours of [-1, 169]) {
        const { code, details } = await service.call(
          'rotateWebhookSecret',
          { id, overlap_hours },
          { door, apiKey },
        );
        expect([code, details]).toEqual([
          'invalid_body',
          [{ field: 'overlap_hours', message: 'must be an integer from 0 to 168' }],
        ]);
      }
    }
    // None of these calls rotated the secret.
    expect(
      await service.query('select count(*)::int as n from webhook_secrets where endpoint_id = $1', [
        uuidOf(id),
      ]),
    ).toEqual([{ n: 1 }]);
  });

  // Requests that only JSON can express.
  test.each<[string, MethodName, string, string, RegExp?]>([
    ['types as a string', 'updateWebhookEndpoint', '{"event_types":"*"}', 'event_types', /such as \["\*"\]/],
    ['no URL', 'createWebhookEndpoint', '{}', 'url'],
    ['an empty list of types', 'createWebhookEndpoint', `{"url":"${url}","event_types":[]}`, 'event_types'],
    ['an empty list of types in a change', 'updateWebhookEndpoint', '{"event_types":[]}', 'event_types'],
    [
      'a type that is a number',
      'createWebhookEndpoint',
      `{"url":"${url}","event_types":[1]}`,
      'event_types[0]',
    ],
    ['a string in place of true', 'updateWebhookEndpoint', '{"enabled":"true"}', 'enabled'],
    ['a field that the service sets', 'updateWebhookEndpoint', '{"disabled_reason":"x"}', 'disabled_reason'],
    ['a client-chosen secret', 'createWebhookEndpoint', `{"url":"${url}","secret":"whsec_x"}`, 'secret'],
    ['the id in the body', 'updateWebhookEndpoint', '{"id":"we_x"}', 'id'],
  ])('%s', async (_, method, body, field, message = /./) => {
    const { id } = await created();
    const answer = await httpRequest(
      `${service.publicUrl}/v1/webhook_endpoints${method === 'updateWebhookEndpoint' ? `/${id}` : ''}`,
      {
        method: method === 'updateWebhookEndpoint' ? 'PATCH' : 'POST',
        headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      },
      body,
    );
    const { code, details } = JSON.parse(answer.body).error;
    expect([answer.status, code, details?.[0]?.field]).toEqual([400, 'invalid_body', field]);
    expect(details[0].message).toMatch(message);
  });
});

describe(`at most ${maxEndpoints} endpoints of a merchant in one mode`, () => {
  test('also if they are created concurrently, through both doors', async () => {
    const { keys } = await service.newMerchant();
    const { apiKey: key } = keys.testnet;
    const create = (i: number) =>
      service.call('createWebhookEndpoint', { url }, { door: doors[i % 2] as Door, apiKey: key });
    for (let from = 0; from < 90; from += 10) {
      const codes = await Promise.all(Array.from({ length: 10 }, (_, i) => create(from + i)));
      expect(new Set(codes.map(({ code }) => code))).toEqual(new Set(['ok']));
    }
    const answers = await Promise.all(Array.from({ length: 24 }, (_, i) => create(i)));
    expect(answers.filter(({ code }) => code === 'ok')).toHaveLength(10);
    const refused = answers.filter(({ code }) => code === 'invalid_state');
    expect(refused).toHaveLength(14);
    expect(refused[0]?.message).toMatch(/100 webhook endpoints, the maximum/);
    const list = () => ok('json', 'listWebhookEndpoints', { page_size: 100 }, { apiKey: key });
    const { webhook_endpoints, next_page_token } = await list();
    expect([webhook_endpoints.length, next_page_token]).toEqual([100, undefined]);
    // The other mode has its own limit, and a deleted endpoint makes room.
    await created({}, keys.mainnet.apiKey);
    await ok('grpc', 'deleteWebhookEndpoint', { id: webhook_endpoints[0]?.id ?? '' }, { apiKey: key });
    await created({}, key);
    expect((await create(0)).code).toBe('invalid_state');
  });

  test('an idempotency key still returns its endpoint when the limit is reached', async () => {
    const key = await newKey();
    const options = { apiKey: key, idempotencyKey: 'first' };
    const first = await service.call('createWebhookEndpoint', { url }, options);
    await service.query(
      `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
       select gen_random_uuid(), merchant_id, mode, url, event_types, false, now()
         from webhook_endpoints, generate_series(1, ${maxEndpoints - 1}) where id = $1`,
      [uuidOf(first.json.id)],
    );
    expect(await service.call('createWebhookEndpoint', { url }, options)).toEqual({
      ...first,
      replayed: true,
    });
    expect((await service.call('createWebhookEndpoint', { url }, { apiKey: key })).code).toBe(
      'invalid_state',
    );
  });
});

test('a secret whose key the operator has removed is not returned again, and the refusal says so', async () => {
  const options = { apiKey, idempotencyKey: 'before-the-rotation' };
  const { json } = await service.call('createWebhookEndpoint', { url }, options);
  await service.call('rotateWebhookSecret', { id: json.id }, options);
  await service.query('update webhook_secrets set key_version = 99 where endpoint_id = $1', [
    uuidOf(json.id),
  ]);
  for (const again of [
    await service.call('createWebhookEndpoint', { url }, options),
    await service.call('rotateWebhookSecret', { id: json.id }, options),
  ]) {
    expect([again.code, again.message]).toEqual([
      'invalid_state',
      expect.stringContaining('rotate its secret'),
    ]);
  }
  await service.call('deleteWebhookEndpoint', { id: json.id }, { apiKey });
});

test('changes that wait for a row leave connections for other merchants', async () => {
  const { json } = await service.call('createWebhookEndpoint', { url }, { apiKey });
  const other = (await service.newMerchant()).keys.testnet.apiKey;
  const blocker = await openClient(service.location);
  onTestFinished(() => blocker.end());
  await blocker.query('begin');
  await blocker.query('select from webhook_endpoints where id = $1 for update', [uuidOf(json.id)]);
  const change = (i: number) =>
    service.call('updateWebhookEndpoint', { id: json.id, description: `${i}` }, { apiKey });
  // More changes than connections.
  const changes = Promise.all(Array.from({ length: 20 }, (_, i) => change(i)));
  const elsewhere = await service.call('createWebhookEndpoint', { url }, { apiKey: other });
  await blocker.query('commit');
  expect(elsewhere.code).toBe('ok');
  expect(new Set((await changes).map(({ code }) => code))).toEqual(new Set(['ok']));
  await service.call('deleteWebhookEndpoint', { id: json.id }, { apiKey });
});

test('two concurrent creates with one idempotency key make one endpoint', async () => {
  const options = { apiKey, idempotencyKey: 'at-once' };
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, i) =>
      service.call('createWebhookEndpoint', { url }, { door: doors[i % 2] as Door, ...options }),
    ),
  );
  expect(new Set(answers.map(({ code }) => code))).toEqual(new Set(['ok']));
  expect(new Set(answers.map(({ json }) => `${json.id} ${json.secret}`)).size).toBe(1);
  expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1);
  const { id } = answers[0]?.json ?? {};
  const rotations = await Promise.all(
    Array.from({ length: 8 }, (_, i) =>
      service.call(
        'rotateWebhookSecret',
        { id },
        { door: doors[i % 2] as Door, apiKey, idempotencyKey: 'at-once' },
      ),
    ),
  );
  expect(new Set(rotations.map(({ code, json }) => `${code} ${json.secret}`)).size).toBe(1);
  expect(rotations.filter(({ replayed }) => !replayed)).toHaveLength(1);
});
