// Events are recorded with the change that they report, and have the same content over both doors.

import { describe, expect, test } from 'vitest';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { createExpiry } from '../src/payment-intents/expire-payment-intents.ts';
import { type Door, everyDoor, type Intent, pagesOf, type Request } from './support/call.ts';
import { allPositioned, eventsOf, insertEventRows, storeEvents } from './support/event-rows.ts';
import { httpRequest, keyOf } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const { newMerchant } = service;

const list = (query: Request, apiKey: string, door: Door = 'json') =>
  service.call('listEvents', query, { door, apiKey });
const get = (id: string, apiKey: string, door: Door = 'json') =>
  service.call('getEvent', { id }, { door, apiKey });

const createIntent = async (apiKey: string): Promise<string> =>
  (
    await service.call(
      'createPaymentIntent',
      { amount_units: 12_500_000, metadata: { order_id: 'order-1' } },
      { apiKey },
    )
  ).json.id;
const cancel = (id: string, apiKey: string) => service.call('cancelPaymentIntent', { id }, { apiKey });

/** The ids on each page of a list. */
const listAll = async (door: Door, query: Request, apiKey: string) =>
  (await pagesOf(service.call, 'listEvents', query, { door, apiKey })).map((page) =>
    page.map(({ id }) => id),
  );

describe('a change', () => {
  test('a cancellation makes one event, however often it is repeated', async () => {
    const apiKey = keyOf(service.merchant);
    const intent = await createIntent(apiKey);
    const answers = await Promise.all(Array.from({ length: 6 }, () => cancel(intent, apiKey)));
    answers.push(await cancel(intent, apiKey));
    expect(new Set(answers.map(({ code }) => code))).toEqual(new Set(['ok']));
    await allPositioned(service);
    expect(await eventsOf(service, intent)).toMatchObject([{ type: 'payment_intent.canceled', sequence: 1 }]);

    const { json, text } = await list({ payment_intent: intent }, apiKey);
    const [{ client_secret, ...paymentIntent }] = answers.map((answer) => answer.json) as [Intent];
    expect(json.events).toEqual([
      {
        id: expect.stringMatching(/^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$/),
        type: 'payment_intent.canceled',
        created_at: paymentIntent.canceled_at,
        mode: 'testnet',
        sequence: 1,
        data: { payment_intent: paymentIntent },
      },
    ]);
    expect(paymentIntent.status).toBe('canceled');
    expect(client_secret).toMatch(/_secret_/);
    expect(text).not.toContain('secret');
  });

  test('an expiry makes one event, with several processes at work', async () => {
    const apiKey = service.merchant.keys.mainnet.apiKey;
    const intent = await createIntent(apiKey);
    await service.query(
      `update payment_intents set created_at = created_at - interval '1 hour', expires_at = expires_at - interval '1 hour'
        where id = $1`,
      [parseIdentifier('pi', intent)],
    );
    const unreadable: unknown[] = [];
    const expire = () => createExpiry(service.database.orm.em, (id) => unreadable.push(id))();
    await Promise.all([expire(), expire(), expire()]);
    const listed = async () => (await list({ payment_intent: intent }, apiKey)).json.events;
    await expect.poll(listed).toHaveLength(1);
    await expire();
    expect(await eventsOf(service, intent)).toMatchObject([{ type: 'payment_intent.expired', sequence: 1 }]);
    const { client_secret, ...paymentIntent } = (
      await service.call('getPaymentIntent', { id: intent }, { apiKey })
    ).json;
    expect(client_secret).toMatch(/_secret_/);
    expect(await listed()).toMatchObject([
      { mode: 'mainnet', created_at: paymentIntent.expired_at, data: { payment_intent: paymentIntent } },
    ]);
    expect(unreadable).toEqual([]);
  });

  test('the next event of an intent has the next sequence', async () => {
    const apiKey = keyOf(service.merchant);
    const intent = await createIntent(apiKey);
    const paymentIntent = parseIdentifier('pi', intent) as string;
    const merchantId = service.merchant.id;
    await insertEventRows(service.query, [
      { merchantId, paymentIntent, type: 'payment_intent.partially_paid' },
    ]);
    await service.query(
      'update payment_intents set event_count = 1, amount_received_units = 5 where id = $1',
      [paymentIntent],
    );
    expect((await cancel(intent, apiKey)).code).toBe('ok');
    await allPositioned(service);
    for (const door of everyDoor) {
      expect((await list({ payment_intent: intent }, apiKey, door)).json.events, door).toMatchObject([
        { sequence: 1, type: 'payment_intent.partially_paid' },
        { sequence: 2, data: { payment_intent: { amount_received_units: 5, labels: ['underpaid'] } } },
      ]);
    }
  });

  test('an event without a sequence omits it in JSON', async () => {
    const merchant = await newMerchant();
    const [id = ''] = await storeEvents(service, [{ merchantId: merchant.id, sequence: 0 }]);
    for (const door of everyDoor) {
      const { json } = await get(id, keyOf(merchant), door);
      expect(json, door).toMatchObject({ id });
      expect(json, door).not.toHaveProperty('sequence');
    }
  });
});

describe('the content of an event', () => {
  test('is the same over every door, and on the public one the stored text, byte for byte', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    const canceled = await createIntent(apiKey);
    await cancel(canceled, apiKey);
    const [made] = await service.query<{ data: string }>(
      'select data from events where payment_intent = $1',
      [parseIdentifier('pi', canceled)],
    );
    const id = formatIdentifier('pi', newUuid());
    const known = `"id":"${id}","amount_units":12500000`;
    const texts = [
      { text: made?.data ?? '', parsed: JSON.parse(made?.data ?? '') },
      // As another version might write it: other names, other order, other escapes, other spaces.
      {
        text: ` {"dispute":{"id":1},\n "payment_intent" : { "mood":"sunny", ${known}, "metadata":{"\\u00e9":"é\\/"} } } `,
        parsed: { payment_intent: { id, amount_units: 12500000, metadata: { é: 'é/' } } },
      },
    ];
    const ids = await storeEvents(
      service,
      texts.map(({ text }) => ({ merchantId: merchant.id, data: text })),
    );
    for (const [i, { text, parsed }] of texts.entries()) {
      const query = { after: ids[i - 1] ?? '', page_size: 1 };
      const one = await get(ids[i] ?? '', apiKey);
      expect(one.text).toContain(`"data":${text}}`);
      if (i > 0) expect((await list(query, apiKey)).text).toContain(`"data":${text}}`);
      for (const door of everyDoor.slice(1)) {
        const { json: event } = await get(ids[i] ?? '', apiKey, door);
        expect(event, door).toMatchObject({ ...one.json, data: parsed });
        expect(JSON.stringify(event), door).not.toMatch(/sunny|dispute/);
        if (i > 0) expect((await list(query, apiKey, door)).json.events, door).toEqual([event]);
      }
    }
    // A message has every field of its kind; the JSON of one that this version made has them all too.
    const events = await Promise.all(everyDoor.map((door) => get(ids[0] ?? '', apiKey, door)));
    for (const { json } of events) expect(json).toEqual(events[0]?.json);
  });
});

describe('filters', () => {
  test('select by type, by intent and by `after`', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    const [a, b] = [newUuid(), newUuid()];
    const [canceled, paid] = ['payment_intent.canceled', 'payment_intent.partially_paid'];
    const merchantId = merchant.id;
    const one = await storeEvents(service, [{ merchantId, paymentIntent: a, sequence: 1, type: paid }]);
    const two = await storeEvents(service, [{ merchantId, paymentIntent: b, sequence: 1, type: canceled }]);
    const three = await storeEvents(service, [{ merchantId, paymentIntent: a, sequence: 2, type: paid }]);
    const four = await storeEvents(service, [{ merchantId, paymentIntent: a, sequence: 3, type: canceled }]);
    const [e1, e2, e3, e4] = [...one, ...two, ...three, ...four] as [string, string, string, string];
    const ofA = { payment_intent: formatIdentifier('pi', a) };
    const table: [Request, string[]][] = [
      [{}, [e1, e2, e3, e4]],
      [{ type: paid }, [e1, e3]],
      [{ type: canceled }, [e2, e4]],
      [{ type: 'payment_intent.reorged' }, []],
      [ofA, [e1, e3, e4]],
      [{ payment_intent: formatIdentifier('pi', newUuid()) }, []],
      [{ ...ofA, type: canceled }, [e4]],
      [{ after: e1 }, [e2, e3, e4]],
      [{ after: e4 }, []],
      [{ after: e2, type: canceled }, [e4]],
      // The event given as `after` need not match the filter itself.
      [{ ...ofA, after: e2 }, [e3, e4]],
      [{ ...ofA, after: e1, type: paid }, [e3]],
    ];
    for (const door of everyDoor) {
      for (const [query, expected] of table) {
        const about = `${door} ${JSON.stringify(query)}`;
        expect(await listAll(door, query, apiKey), about).toEqual([expected]);
        const pages = await listAll(door, { ...query, page_size: 1 }, apiKey);
        expect(pages.flat(), `${about} one by one`).toEqual(expected);
        expect(pages.length, about).toBe(Math.max(1, expected.length));
      }
    }
  });
});

describe('faults of a list', async () => {
  const merchant = await newMerchant();
  const owned = { merchantId: merchant.id };
  const [eventId = ''] = await storeEvents(service, [owned, owned]);
  const token = (await list({ page_size: 1 }, keyOf(merchant))).json.next_page_token;
  expect(token).toBeDefined();

  const read = (path: string) =>
    httpRequest(service.publicUrl + path, {
      method: 'GET',
      headers: { Authorization: `Bearer ${keyOf(merchant)}` },
    });

  const refused = (fields: string[]) => ({
    code: 'invalid_body',
    details: fields.map((field) => ({ field, message: expect.stringMatching(/\w/) })),
  });

  test.each([
    ['foo=1', ['foo']],
    ['types=payment_intent.canceled', ['types']],
    ['type=', ['type']],
    ['type', ['type']],
    ['page_size=', ['page_size']],
    ['type=payment_intent.canceled&type=payment_intent.canceled', ['type']],
    ['page_size=1&page_size=1', ['page_size']],
    ['page_size=0', ['page_size']],
    ['page_size=101', ['page_size']],
    ['page_size=-1', ['page_size']],
    ['page_size=x', ['page_size']],
    ['page_size=1.5', ['page_size']],
    ['page_size=01', ['page_size']],
    ['page_size=99999999999', ['page_size']],
    ['page_size=%31%FF', ['page_size']],
    ['after=evt_nonsense', ['after']],
    ['after=pi_01m7yzn0mtexwagr0spq4wg7vz', ['after']],
    ['payment_intent=evt_01m7yzn0mtexwagr0spq4wg7vz', ['payment_intent']],
    ['type=payment_intent.cancelled', ['type']],
    ['foo=1&page_size=0&type=nothing&after=x', ['foo', 'page_size', 'type', 'after']],
  ])('?%s', async (query, fields) => {
    const { status, body } = await read(`/v1/events?${query}`);
    expect(status).toBe(400);
    expect(JSON.parse(body).error).toMatchObject(refused(fields));
  });

  test.each([
    ['succeeded', 'payment_intent.succeeded'],
    ['cancelled', 'payment_intent.canceled'],
    ['unattributed', 'transfer.unattributed'],
    ['ping', 'webhook_endpoint.ping'],
    ['payment_intent.suceeded', 'payment_intent.succeeded'],
  ])('the type %s, with a hint', async (type, meant) => {
    const { body } = await read(`/v1/events?type=${type}`);
    const message = `must be a type of event, such as payment_intent.succeeded (did you mean ${meant}?)`;
    expect(JSON.parse(body).error.details).toEqual([{ field: 'type', message }]);
  });

  test('a misspelt type, with a hint', async () => {
    const { body } = await read('/v1/events?type=payment_intent.cancelled');
    expect(JSON.parse(body).error.details[0].message).toBe(
      'must be a type of event, such as payment_intent.succeeded (did you mean payment_intent.canceled?)',
    );
  });

  const table: [string, () => Request, string[]][] = [
    ['page_size 101', () => ({ page_size: 101 }), ['page_size']],
    ['page_size -1', () => ({ page_size: -1 }), ['page_size']],
    ['an unknown type', () => ({ type: 'nothing' }), ['type']],
    ['a malformed intent', () => ({ payment_intent: 'pi_x' }), ['payment_intent']],
    ['a malformed after', () => ({ after: `${eventId}0` }), ['after']],
    ['after with page_token', () => ({ after: eventId, page_token: token }), ['after']],
    ['a page_token that was never issued', () => ({ page_token: 'nonsense' }), ['page_token']],
    ['a page_token cut short', () => ({ page_token: token.slice(0, -2) }), ['page_token']],
    ['a page_token of another form', () => ({ page_token: `${token}=` }), ['page_token']],
    [
      'a page_token of another type',
      () => ({ page_token: token, type: 'payment_intent.canceled' }),
      ['page_token'],
    ],
    [
      'a page_token of another intent',
      () => ({ page_token: token, payment_intent: formatIdentifier('pi', newUuid()) }),
      ['page_token'],
    ],
    ['several faults', () => ({ page_size: 101, type: 'x', after: 'y' }), ['page_size', 'type', 'after']],
  ];
  test.each(table)('%s, over every door', async (_, query, fields) => {
    for (const door of everyDoor) {
      const answer = await list(query(), keyOf(merchant), door);
      expect(answer, door).toMatchObject(refused(fields));
      expect(answer.status, door).toBe(door === 'json' ? 400 : 3);
    }
  });

  test('a page_token of another merchant or mode', async () => {
    const stranger = await newMerchant();
    for (const door of everyDoor) {
      for (const apiKey of [keyOf(stranger), merchant.keys.mainnet.apiKey]) {
        expect(await list({ page_token: token }, apiKey, door), door).toMatchObject(refused(['page_token']));
      }
    }
  });

  test('a page_size may go with a page_token, and change', async () => {
    for (const door of everyDoor) {
      const { json } = await list({ page_token: token, page_size: 100 }, keyOf(merchant), door);
      expect(json.events).toHaveLength(1);
    }
  });

  test('a single event takes no query', async () => {
    const { status, body } = await read(`/v1/events/${eventId}?expand=data`);
    expect([status, JSON.parse(body).error]).toMatchObject([400, refused(['expand'])]);
  });
});

describe('pages', () => {
  test('contain every event once, in order, while others are added', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    await storeEvents(
      service,
      Array.from({ length: 23 }, () => ({ merchantId: merchant.id })),
    );
    for (const door of everyDoor) {
      const seen: unknown[] = [];
      const sizes: number[] = [];
      for (let page_token = ''; ; ) {
        const { json: page } = await list({ page_size: 7, ...(page_token && { page_token }) }, apiKey, door);
        seen.push(...page.events.map(({ id }) => id));
        sizes.push(page.events.length);
        if (sizes.length === 2)
          await storeEvents(service, [{ merchantId: merchant.id }, { merchantId: merchant.id }]);
        if (page.next_page_token === undefined) break;
        page_token = page.next_page_token;
      }
      const rows = await service.query<{ id: string }>(
        'select id from events where merchant_id = $1 order by position',
        [merchant.id],
      );
      expect(seen, door).toEqual(rows.map(({ id }) => formatIdentifier('evt', id)));
      expect(sizes.slice(0, -1), door).toEqual(sizes.slice(0, -1).map(() => 7));
    }
    // The default.
    expect((await list({}, apiKey)).json.events).toHaveLength(20);
  });

  test('continue after more than 10,000 events of other types', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    const merchantId = merchant.id;
    const startMs = Date.now();
    const rare = new Set([0, 10_400, 10_499]);
    const ids = await storeEvents(
      service,
      Array.from({ length: 10_500 }, (_, i) => ({
        merchantId,
        // This decides their order, because they get their positions at once.
        createdAtMs: startMs + i,
        type: rare.has(i) ? 'payment_intent.reorged' : 'payment_intent.canceled',
      })),
    );
    const type = 'payment_intent.reorged';
    const expected = [...rare].map((i) => ids[i]);
    for (const door of everyDoor) {
      const pages = await listAll(door, { type, page_size: 5 }, apiKey);
      expect(pages, door).toEqual([expected.slice(0, 1), expected.slice(1)]);
      const after = await listAll(door, { type, after: ids[0] ?? '' }, apiKey);
      expect(after, door).toEqual([[], expected.slice(1)]);
    }
  });
});

describe('events of others', () => {
  test('get the same answers as an unknown id', async () => {
    const merchant = await newMerchant();
    const stranger = await newMerchant();
    const [mine = ''] = await storeEvents(service, [{ merchantId: merchant.id }]);
    const unknown = formatIdentifier('evt', newUuid());
    for (const door of everyDoor) {
      expect((await get(mine, keyOf(merchant), door)).code, door).toBe('ok');
      for (const apiKey of [keyOf(stranger), merchant.keys.mainnet.apiKey]) {
        expect(await list({}, apiKey, door), door).toMatchObject({ code: 'ok', json: { events: [] } });
        const got = await get(mine, apiKey, door);
        expect(got, door).toMatchObject({ code: 'resource_missing', status: door === 'json' ? 404 : 5 });
        expect(got, door).toEqual(await get(unknown, apiKey, door));
        expect(got, door).toEqual(await get('nonsense', apiKey, door));
        const after = await list({ after: mine }, apiKey, door);
        expect(after.code, door).toBe('resource_missing');
        expect(after, door).toEqual(await list({ after: unknown }, apiKey, door));
      }
    }
  });

  test('an event is not visible before it has a position', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    // The lock of the transaction that gives positions.
    await service.query('select pg_advisory_lock(4611733002118207)');
    try {
      const [id = ''] = await insertEventRows(service.query, [{ merchantId: merchant.id }]);
      for (const door of everyDoor) {
        expect((await get(id, apiKey, door)).code, door).toBe('resource_missing');
        expect((await list({ after: id }, apiKey, door)).code, door).toBe('resource_missing');
        expect(await list({}, apiKey, door), door).toMatchObject({ json: { events: [] } });
      }
    } finally {
      await service.query('select pg_advisory_unlock(4611733002118207)');
    }
    await allPositioned(service);
    expect((await list({}, apiKey)).json.events).toHaveLength(1);
  });
});
