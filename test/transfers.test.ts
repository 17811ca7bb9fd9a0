// Lists of transfers and their attribution, through both doors.

import grpc from '@grpc/grpc-js';
import { afterAll, afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { bridgedUsdcAddresses } from '../src/contract/chains.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { maxPayments } from '../src/payment-intents/payments.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { type Door, doors, type Intent, pagesOf, type Request, type TransferJson } from './support/call.ts';
import { eventsOf } from './support/event-rows.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, keyOf } from './support/service.ts';
import { insertTransfers, insertWatchedChain, type TransferSettings } from './support/transfer-rows.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

// Nothing expires here by itself.
const service = await useService({ ROLES: 'api' });
const { merchant, newMerchant } = service;
const { apiKey } = service.merchant.keys.testnet;

expectNoComplaints(service);

const list = (door: Door, query: Request, key = apiKey) =>
  service.call('listTransfers', query, { door, apiKey: key });
const listAll = (door: Door, query: Request, key: string) =>
  pagesOf(service.call, 'listTransfers', query, { door, apiKey: key });
/** Attributes a transfer to an intent, even if that has ended. */
const attribute = (door: Door, id: string, payment_intent: string, key = apiKey) =>
  service.call('attributeTransfer', { id, payment_intent, allow_ended: true }, { door, apiKey: key });

const uuidOf = (id: string) => parseIdentifier('pi', id) as string;

async function createIntent(body: Request = {}, key = apiKey): Promise<Intent> {
  const answer = await service.call(
    'createPaymentIntent',
    { amount_units: 12_500_000, ...body },
    { apiKey: key },
  );
  expect([answer.code, answer.message]).toEqual(['ok', '']);
  return answer.json;
}

const getIntent = async (id: string, key = apiKey) => {
  const { client_secret, ...intent } = (await service.call('getPaymentIntent', { id }, { apiKey: key })).json;
  return intent;
};

/** Inserts one transfer. Returns its id. */
async function received(settings: TransferSettings = {}, to = merchant): Promise<string> {
  const [id] = await insertTransfers(service, to, [settings]);
  return id as string;
}

/** Returns the events of an intent. */
async function toldOf(id: string) {
  return (await eventsOf(service, id)).map(({ type, sequence, data }) => ({
    type: type.replace('payment_intent.', ''),
    sequence,
    data: JSON.parse(data),
  }));
}

const rowOf = async (id: string) =>
  (await service.query('select * from transfers where id = $1', [parseIdentifier('tr', id)]))[0];

const idsOf = (items: readonly { id: string }[]) => items.map(({ id }) => id);

const get = (query: string, key = apiKey) =>
  httpRequest(`${service.publicUrl}/v1/transfers${query}`, {
    method: 'GET',
    headers: { Authorization: `Bearer ${key}` },
  });

describe.each(doors)('lists over %s', (door) => {
  test('have every field of a transfer', async () => {
    const owner = await newMerchant();
    const intent = await createIntent({ chain: 'polygon' }, keyOf(owner));
    const onChain = {
      transactionHash: `0x${'5b'.repeat(32)}`,
      logIndex: 41,
      blockNumber: 9_007_199_254_740_991,
      blockHash: `0x${'9c'.repeat(32)}`,
      blockTime: new Date('2026-11-21T12:03:40.007Z'),
    };
    const [plain, attributed] = await insertTransfers(service, owner, [
      { ...onChain, amountUnits: Number.MAX_SAFE_INTEGER },
      {
        ...onChain,
        chain: 'polygon',
        state: 'confirmed',
        tokenAddress: bridgedUsdcAddresses.usdcE,
        paymentIntent: intent.id,
        labels: ['wrong_token', 'late'],
      },
    ]);
    const common = {
      transaction_hash: onChain.transactionHash,
      log_index: 41,
      block_number: onChain.blockNumber,
      block_hash: onChain.blockHash,
      block_time: '2026-11-21T12:03:40.007Z',
      from_address: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
    };
    expect((await list(door, {}, keyOf(owner))).json).toEqual({
      transfers: [
        {
          ...common,
          id: attributed,
          chain: 'polygon',
          status: 'attributed',
          payment_intent: intent.id,
          to_address: owner.wallets.testnet.polygon,
          token_address: bridgedUsdcAddresses.usdcE,
          amount_units: 12_500_000,
          confirmations: 12,
          labels: ['wrong_token', 'late'],
        },
        {
          ...common,
          id: plain,
          chain: 'base',
          status: 'unattributed',
          to_address: owner.wallets.testnet.base,
          token_address: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
          amount_units: Number.MAX_SAFE_INTEGER,
          confirmations: 1,
        },
      ],
    });
  });

  test('are filtered by status', async () => {
    const owner = await newMerchant();
    const { id: paymentIntent } = await createIntent({}, keyOf(owner));
    const [a, b, c, d, e] = await insertTransfers(service, owner, [
      {},
      { paymentIntent },
      { state: 'reorged' },
      { paymentIntent, state: 'reorged' },
      { state: 'confirmed' },
    ]);
    const find = async (query: { status?: string }) =>
      idsOf((await list(door, query, keyOf(owner))).json.transfers);
    expect(await find({})).toEqual([e, d, c, b, a]);
    // A transfer that is no longer on the chain cannot be attributed.
    expect(await find({ status: 'unattributed' })).toEqual([e, a]);
    expect(await find({ status: 'attributed' })).toEqual([d, b]);
  });

  test('have 20 transfers on a page, or page_size, newest first, each once', async () => {
    const owner = await newMerchant();
    const ids = (await insertTransfers(service, owner, Array(25).fill({}))).toReversed();
    for (const [query, lengths] of [
      [{}, [20, 5]],
      [{ page_size: 1 }, Array(25).fill(1)],
      [{ page_size: 24, status: 'unattributed' }, [24, 1]],
      [{ page_size: 25 }, [25]],
      [{ page_size: 100 }, [25]],
    ] as const) {
      const pages = await listAll(door, query, keyOf(owner));
      expect([query, pages.map((page) => page.length)]).toEqual([query, lengths]);
      expect(idsOf(pages.flat())).toEqual(ids);
    }
  });

  test('with a status filter search 10,000 transfers per page, and continue after them', async () => {
    const owner = await newMerchant();
    const { id: paymentIntent } = await createIntent({}, keyOf(owner));
    const few = new Set([0, 1, 10_499]);
    for (const [status, one, other] of [
      ['attributed', { paymentIntent }, {}],
      ['unattributed', {}, { state: 'reorged' }],
    ] as const) {
      if (door !== 'json' && status === 'attributed') continue;
      await service.query('delete from transfers where merchant_id = $1', [owner.id]);
      const settings = Array.from({ length: 10_500 }, (_, n) => (few.has(n) ? one : other));
      const ids = await insertTransfers(service, owner, settings);
      const pages = (await listAll(door, { status, page_size: 2 }, keyOf(owner))).map(idsOf);
      expect(pages, status).toEqual([[ids[10_499]], [ids[1], ids[0]]]);
    }
  });

  test('continue at the same place while transfers are added', async () => {
    const owner = await newMerchant();
    const { id: paymentIntent } = await createIntent({}, keyOf(owner));
    const ids = (await insertTransfers(service, owner, Array(6).fill({}))).toReversed();
    const first = await list(door, { page_size: 3 }, keyOf(owner));
    await received({}, owner);
    await attribute(door, ids[4] as string, paymentIntent, keyOf(owner));
    const second = await list(
      door,
      { page_size: 3, page_token: first.json.next_page_token as string },
      keyOf(owner),
    );
    expect(idsOf([...first.json.transfers, ...second.json.transfers])).toEqual(ids);
    expect(second.json.next_page_token).toBeUndefined();
  });

  test('refuse a page token of other filters, of another merchant or mode, and an invalid one', async () => {
    const owner = await newMerchant();
    await insertTransfers(service, owner, Array(3).fill({}));
    const query = { page_size: 1, status: 'unattributed' };
    const { next_page_token } = (await list(door, query, keyOf(owner))).json;
    const page_token = next_page_token as string;
    expect((await list(door, { ...query, page_size: 2, page_token }, keyOf(owner))).code).toBe('ok');
    const other = await newMerchant();
    for (const [changed, key] of [
      [{ page_token }, keyOf(owner)],
      [{ page_token, status: 'attributed' }, keyOf(owner)],
      [{ ...query, page_token }, keyOf(owner, 'mainnet')],
      [{ ...query, page_token }, keyOf(other)],
      [{ ...query, page_token: 'nonsense' }, keyOf(owner)],
      [{ ...query, page_token: `${page_token}A` }, keyOf(owner)],
    ] as const) {
      const answer = await list(door, changed, key);
      expect([changed, answer.code, answer.details.map(({ field }) => field)]).toEqual([
        changed,
        'invalid_body',
        ['page_token'],
      ]);
    }
  });

  test.each([-1, 101])('refuse page_size %i', async (page_size) => {
    const { code, details } = await list(door, { page_size });
    expect([code, details.length, details[0]?.field]).toEqual(['invalid_body', 1, 'page_size']);
    expect(details[0]?.message).toMatch(/^must be an integer/);
  });

  test('have no transfers of another merchant or mode', async () => {
    const owner = await newMerchant();
    const other = await newMerchant();
    // Both merchants have this wallet.
    const same = { transactionHash: `0x${'01'.repeat(32)}`, toAddress: owner.wallets.testnet.base };
    const own = await received(same, owner);
    const theirs = await received(same, other);
    const mainnet = await received({ mode: 'mainnet' }, owner);
    for (const [key, ids] of [
      [keyOf(owner), [own]],
      [keyOf(other), [theirs]],
      [keyOf(owner, 'mainnet'), [mainnet]],
      [keyOf(other, 'mainnet'), []],
    ] as const) {
      for (const query of [{}, { status: 'unattributed' }]) {
        expect(idsOf((await list(door, query, key)).json.transfers)).toEqual(ids);
      }
    }
  });
});

describe('a query over HTTP', () => {
  test.each<[query: string, field: string, message: RegExp]>([
    ['page_size=0', 'page_size', /integer from 1 to 100/],
    ['page_size=101', 'page_size', /integer from 1 to 100/],
    ['page_size=1.5', 'page_size', /integer/],
    ['page_size=%2B5', 'page_size', /integer/],
    ['page_size=', 'page_size', /./],
    ['page_size=1&page_size=1', 'page_size', /./],
    ['page_token=', 'page_token', /./],
    ['status=', 'status', /./],
    ['status=paid', 'status', /unattributed.*attributed/],
    ['status=ATTRIBUTED', 'status', /unattributed.*attributed/],
    ['status=1', 'status', /unattributed.*attributed/],
    ['status=unspecified', 'status', /unattributed.*attributed/],
    ['stauts=attributed', 'stauts', /did you mean status/],
    ['intent=pi_x', 'intent', /is not a (?:field|query parameter|filter)/],
  ])('?%s is refused by name', async (query, field, message) => {
    const { status, body } = await get(`?${query}`);
    const { code, details } = JSON.parse(body).error;
    expect([status, code]).toEqual([400, 'invalid_body']);
    expect(details).toEqual([{ field, message: expect.stringMatching(message) }]);
  });

  test('all violations are listed at once', async () => {
    const { body } = await get('?page_size=1000&status=paid&a=b');
    const fields = JSON.parse(body).error.details.map(({ field }: { field: string }) => field);
    expect(fields.sort()).toEqual(['a', 'page_size', 'status']);
  });
});

test('over gRPC, fields and values that the contract does not have are refused', async () => {
  const { id: paymentIntent } = await createIntent();
  const id = await received();
  for (const [method, fields] of [
    ['listTransfers', {}],
    ['attributeTransfer', { id, payment_intent: paymentIntent }],
  ] as const) {
    expect(await service.call(method, { ...fields, unknown: 1 }, { door: 'grpc' })).toMatchObject({
      code: 'invalid_body',
      details: [{ field: 'field 99' }],
    });
  }
  expect(await list('grpc', { status: 9 })).toMatchObject({
    code: 'invalid_body',
    details: [{ field: 'status', message: 'must be "unattributed" or "attributed"' }],
  });
  expect(await toldOf(paymentIntent)).toEqual([]);
});

describe('confirmations', () => {
  const chain = 'polygon' as const;
  const blockNumber = 1_000;

  afterEach(() => service.query('delete from watched_chains'));

  test.each([
    [1_000, 'pending', 1],
    [1_010, 'pending', 11],
    [1_011, 'pending', 12],
    // The second provider has not confirmed it yet.
    [5_000, 'pending', 12],
    [1_000, 'confirmed', 12],
    [5_000, 'reorged', 0],
    // The chain is read again from an earlier block.
    [990, 'pending', 0],
  ] as const)(
    'at block %i, a transfer in block 1000 that is %s has %i',
    async (cursorNumber, state, count) => {
      await insertWatchedChain(service, { chain, cursorNumber });
      const owner = await newMerchant();
      const id = await received({ chain, blockNumber, state }, owner);
      for (const each of doors) {
        expect((await list(each, {}, keyOf(owner))).json.transfers).toMatchObject([{ confirmations: count }]);
      }
      if (state === 'reorged') return;
      const intent = await createIntent({ chain }, keyOf(owner));
      const attributed = await attribute('json', id, intent.id, keyOf(owner));
      expect(attributed.json.confirmations).toBe(count);
      const { payments } = await getIntent(intent.id, keyOf(owner));
      expect(payments).toMatchObject([{ confirmations: count, status: state }]);
    },
  );
});

test('an intent lists its newest 100 payments in chain order, and counts all', async () => {
  const { id: paymentIntent } = await createIntent();
  const other = await newMerchant();
  const settings = (n: number) => ({
    paymentIntent,
    blockNumber: 1_000 + (n >> 1),
    logIndex: n & 1,
    amountUnits: n + 1,
  });
  const numbers = Array.from({ length: maxPayments + 5 }, (_, n) => n);
  await insertTransfers(service, merchant, numbers.toReversed().map(settings));
  // No payment of an intent belongs to another merchant.
  await received({ paymentIntent, blockNumber: 2_000 }, other);
  await service.query('update payment_intents set payments_count = $1 where id = $2', [
    numbers.length,
    uuidOf(paymentIntent),
  ]);
  const present = await getIntent(paymentIntent);
  const payments = present.payments as { amount_units: number }[];
  expect(payments.map(({ amount_units }) => amount_units)).toEqual(numbers.slice(5).map((n) => n + 1));
  expect([maxPayments, present.payments_count]).toEqual([100, 105]);
  for (const door of doors) {
    const { json } = await service.call('listPaymentIntents', { page_size: 1 }, { door });
    expect(json.payment_intents[0]?.payments).toHaveLength(maxPayments);
  }
});

/** The expected intent and events after an attribution. */
interface Outcome {
  intent: object;
  /** Labels of the payment. */
  labels?: string[];
  events: string[];
}

describe.each(doors)('an attribution over %s', (door) => {
  const okStatus = door === 'json' ? 200 : grpc.status.OK;

  test('makes the transfer a payment of the intent', async () => {
    const intent = await createIntent();
    const id = await received();
    const [before] = (await list(door, { page_size: 1 })).json.transfers as [TransferJson];
    expect(before).toMatchObject({ id, status: 'unattributed' });
    const attributed = await attribute(door, id, intent.id);
    expect([attributed.code, attributed.status]).toEqual(['ok', okStatus]);
    expect(attributed.json).toEqual({ ...before, status: 'attributed', payment_intent: intent.id });
    for (const each of doors) {
      expect((await list(each, { page_size: 1 })).json.transfers).toEqual([attributed.json]);
      const waiting = (await list(each, { status: 'unattributed', page_size: 100 })).json.transfers;
      expect(idsOf(waiting)).not.toContain(id);
    }
    const { id: _, chain: __, payment_intent: ___, ...onChain } = attributed.json;
    expect(await getIntent(intent.id)).toMatchObject({
      status: 'processing',
      amount_received_units: 12_500_000,
      payments_count: 1,
      payments: [{ ...onChain, status: 'pending' }],
    });
    expect(await rowOf(id)).toMatchObject({ attributed_by_hand: true, counts: true, labels: null });
  });

  test('has an event that shows the intent with the payment', async () => {
    const intent = await createIntent();
    await attribute(door, await received(), intent.id);
    const snapshot = await getIntent(intent.id);
    expect(snapshot.payments).toHaveLength(1);
    expect(await toldOf(intent.id)).toEqual([
      { type: 'processing', sequence: 1, data: { payment_intent: snapshot } },
    ]);
  });

  test('is idempotent', async () => {
    const intent = await createIntent();
    const id = await received();
    const first = await attribute(door, id, intent.id);
    const [row, snapshot] = [await rowOf(id), await getIntent(intent.id)];
    for (const each of [...doors, door]) {
      const again = await attribute(each, id, intent.id);
      expect([again.code, again.json]).toEqual(['ok', first.json]);
    }
    expect([await rowOf(id), await getIntent(intent.id)]).toEqual([row, snapshot]);
    expect(await toldOf(intent.id)).toHaveLength(1);
    // It is idempotent even if the transfer has been reorged since.
    await service.query(`update transfers set state = 'reorged' where id = $1`, [parseIdentifier('tr', id)]);
    expect(await attribute(door, id, intent.id)).toMatchObject({
      code: 'ok',
      json: { status: 'attributed', confirmations: 0 },
    });
  });

  test('to another intent is refused, and changes neither', async () => {
    const [intent, other] = [await createIntent(), await createIntent()];
    const id = await received();
    await attribute(door, id, intent.id);
    const before = [await rowOf(id), await getIntent(intent.id), await getIntent(other.id)];
    const refused = await attribute(door, id, other.id);
    expect([refused.code, refused.status]).toEqual([
      'invalid_state',
      door === 'json' ? 409 : grpc.status.FAILED_PRECONDITION,
    ]);
    expect(refused.message).toContain(intent.id);
    expect([await rowOf(id), await getIntent(intent.id), await getIntent(other.id)]).toEqual(before);
    expect(await toldOf(other.id)).toEqual([]);
  });

  test('of a reorged transfer is refused', async () => {
    const intent = await createIntent();
    const id = await received({ state: 'reorged' });
    const row = await rowOf(id);
    const refused = await attribute(door, id, intent.id);
    expect([refused.code, refused.details]).toEqual(['invalid_state', []]);
    expect(refused.message).toMatch(/no longer on the chain/);
    expect([await rowOf(id), await toldOf(intent.id)]).toEqual([row, []]);
  });

  const inTime = () => new Date();
  /** After the expiry of any intent here. */
  const late = () => new Date(Date.now() + 3_600_000);
  const ended = (status: string) => `status = '${status}', ${status}_at = now()`;

  test.each<[string, string | undefined, () => TransferSettings, Outcome]>([
    [
      'a part of the amount',
      undefined,
      () => ({ amountUnits: 12_499_999 }),
      {
        intent: { status: 'requires_payment', amount_received_units: 12_499_999 },
        events: ['partially_paid'],
      },
    ],
    [
      'what is still missing',
      'amount_received_units = 12000000, payments_count = 2',
      () => ({ amountUnits: 500_000 }),
      {
        intent: { status: 'processing', amount_received_units: 12_500_000, payments_count: 3 },
        events: ['processing'],
      },
    ],
    [
      'more than the amount',
      undefined,
      () => ({ amountUnits: 12_500_001 }),
      {
        intent: { status: 'processing', amount_received_units: 12_500_001, labels: ['overpaid'] },
        events: ['processing', 'overpaid'],
      },
    ],
    [
      'a payment after success',
      `amount_received_units = 12500000, payments_count = 1, ${ended('succeeded')}`,
      () => ({ amountUnits: 1, state: 'confirmed' }),
      {
        intent: {
          status: 'succeeded',
          amount_received_units: 12_500_001,
          payments_count: 2,
          labels: ['overpaid'],
        },
        events: ['overpaid'],
      },
    ],
    [
      'a late payment of an intent that is still open',
      undefined,
      () => ({ blockTime: late() }),
      {
        intent: { status: 'requires_payment', amount_received_units: 0, labels: ['late'] },
        labels: ['late'],
        events: ['late_payment'],
      },
    ],
    [
      'a late payment after expiry',
      ended('expired'),
      () => ({ blockTime: late(), state: 'confirmed' }),
      {
        intent: { status: 'expired', amount_received_units: 0, labels: ['late'] },
        labels: ['late'],
        events: ['late_payment'],
      },
    ],
    [
      'a payment in time, found after expiry',
      ended('expired'),
      () => ({ blockTime: inTime(), state: 'confirmed' }),
      {
        intent: { status: 'expired', amount_received_units: 0, labels: ['late', 'found_late'] },
        labels: ['late', 'found_late'],
        events: ['late_payment'],
      },
    ],
    [
      'a payment after cancellation',
      ended('canceled'),
      () => ({ blockTime: inTime(), state: 'confirmed' }),
      {
        intent: { status: 'canceled', amount_received_units: 0, labels: ['after_cancel'] },
        labels: ['after_cancel'],
        events: ['late_payment'],
      },
    ],
    [
      'a late payment after cancellation',
      ended('canceled'),
      () => ({ blockTime: late() }),
      {
        intent: { status: 'canceled', amount_received_units: 0, labels: ['after_cancel', 'late'] },
        labels: ['after_cancel', 'late'],
        events: ['late_payment'],
      },
    ],
    [
      'another token',
      undefined,
      () => ({ tokenAddress: bridgedUsdcAddresses.usdbC, state: 'confirmed' }),
      {
        intent: { status: 'requires_payment', amount_received_units: 0, labels: ['wrong_token'] },
        labels: ['wrong_token'],
        events: ['wrong_token'],
      },
    ],
    [
      'a confirmed transfer of the amount',
      undefined,
      () => ({ state: 'confirmed' }),
      {
        intent: { status: 'succeeded', amount_received_units: 12_500_000, succeeded_at: expect.any(String) },
        events: ['processing', 'succeeded'],
      },
    ],
    [
      'a confirmed part of the amount',
      undefined,
      () => ({ state: 'confirmed', amountUnits: 1 }),
      { intent: { status: 'requires_payment', amount_received_units: 1 }, events: ['partially_paid'] },
    ],
  ])('%s', async (_, assignments, settings, outcome) => {
    const { id: intent } = await createIntent();
    if (assignments !== undefined) {
      await service.query(`update payment_intents set ${assignments} where id = $1`, [uuidOf(intent)]);
    }
    const id = await received(settings());
    const attributed = await attribute(door, id, intent);
    expect(attributed).toMatchObject({ code: 'ok', json: { status: 'attributed', payment_intent: intent } });
    expect(attributed.json.labels).toEqual(outcome.labels);
    expect(await rowOf(id)).toMatchObject({
      counts: outcome.labels === undefined,
      labels: outcome.labels ?? null,
    });
    const present = await getIntent(intent);
    expect(present).toMatchObject({ payments_count: 1, ...outcome.intent });
    if (!('labels' in outcome.intent)) expect(present.labels).toBeUndefined();
    expect(present.payments[0]?.labels).toEqual(outcome.labels);
    const events = await toldOf(intent);
    expect(events.map(({ type, sequence }) => [type, sequence])).toEqual(
      outcome.events.map((type, n) => [type, n + 1]),
    );
    expect(events.at(-1)?.data.payment_intent).toEqual(present);
  });

  test('of a confirmed transfer has an event for processing, and one for success', async () => {
    const { id: intent } = await createIntent();
    await attribute(door, await received({ state: 'confirmed' }), intent);
    const { succeeded_at, ...present } = await getIntent(intent);
    expect((await toldOf(intent)).map(({ data }) => data.payment_intent)).toEqual([
      { ...present, status: 'processing' },
      { ...present, succeeded_at },
    ]);
  });

  test('lets the intent succeed only with confirmed transfers', async () => {
    const { id: intent } = await createIntent();
    const [pending, confirmed, last] = (await insertTransfers(service, merchant, [
      { amountUnits: 2_500_000 },
      { amountUnits: 10_000_000, state: 'confirmed' },
      { amountUnits: 2_500_000, state: 'confirmed' },
    ])) as [string, string, string];
    await attribute(door, pending, intent);
    await attribute(door, confirmed, intent);
    expect((await getIntent(intent)).status).toBe('processing');
    await attribute(door, last, intent);
    expect(await getIntent(intent)).toMatchObject({ status: 'succeeded', labels: ['overpaid'] });
    expect((await toldOf(intent)).at(-1)?.type).toBe('succeeded');
  });

  test('of a confirmed transfer that does not count does not let the intent succeed', async () => {
    const { id: intent } = await createIntent();
    const [wrong, right] = (await insertTransfers(service, merchant, [
      { tokenAddress: bridgedUsdcAddresses.usdbC, state: 'confirmed' },
      {},
    ])) as [string, string];
    await attribute(door, wrong, intent);
    await attribute(door, right, intent);
    expect(await getIntent(intent)).toMatchObject({
      status: 'processing',
      amount_received_units: 12_500_000,
      payments_count: 2,
    });
  });

  test('to an intent that the transfer cannot pay is refused, and nothing changes', async () => {
    const other = await newMerchant();
    const id = await received();
    const row = await rowOf(id);
    const cases: [string, string, RegExp, string?][] = [
      ['nothing', '', /^must be the id of an intent$/],
      ['an invalid id', 'pi_x', /^is not an intent of yours/],
      ['another kind of id', id, /^is not an intent of yours/],
      ['an id that never existed', formatIdentifier('pi', newUuid()), /^is not an intent of yours/],
      [
        'of another merchant',
        (await createIntent({ wallet_address: merchant.wallets.testnet.base }, keyOf(other))).id,
        /^is not an intent of yours/,
        keyOf(other),
      ],
      [
        'of another mode',
        (await createIntent({ wallet_address: merchant.wallets.testnet.base }, keyOf(merchant, 'mainnet')))
          .id,
        /^is not an intent of yours in the mode of this API key$/,
        keyOf(merchant, 'mainnet'),
      ],
      [
        'of another chain',
        (await createIntent({ chain: 'polygon', wallet_address: merchant.wallets.testnet.base })).id,
        /^is an intent of another chain$/,
        apiKey,
      ],
      [
        'of another wallet',
        (await createIntent({ wallet_address: merchant.wallets.testnet.polygon })).id,
        /^expects another wallet/,
        apiKey,
      ],
    ];
    for (const [what, intent, message, owner] of cases) {
      const before = owner && (await getIntent(intent, owner));
      const refused = await attribute(door, id, intent);
      expect([what, refused.code, refused.details]).toEqual([
        what,
        'invalid_body',
        [{ field: 'payment_intent', message: expect.stringMatching(message) }],
      ]);
      if (owner) expect(await getIntent(intent, owner)).toEqual(before);
      if (owner) expect(await toldOf(intent)).toEqual([]);
    }
    expect(await rowOf(id)).toEqual(row);
  });

  test('of a transfer of another merchant or mode, or of a refund, is answered like one of an unknown transfer', async () => {
    const other = await newMerchant();
    const theirs = await received({}, other);
    const mainnet = await received({ mode: 'mainnet' });
    const refund = await received({ isRefund: true });
    const rows = [await rowOf(theirs), await rowOf(mainnet)];
    const intent = await createIntent();
    const never = await attribute(door, formatIdentifier('tr', newUuid()), intent.id);
    expect(never).toMatchObject({
      code: 'resource_missing',
      status: door === 'json' ? 404 : grpc.status.NOT_FOUND,
    });
    for (const id of [
      'tr_x',
      theirs.toUpperCase(),
      theirs.replace('tr_', 'pi_'),
      intent.id,
      theirs,
      mainnet,
      refund,
    ]) {
      for (const paymentIntent of [intent.id, 'pi_x']) {
        expect([id, await attribute(door, id, paymentIntent, apiKey)]).toEqual([id, never]);
      }
    }
    expect([await rowOf(theirs), await rowOf(mainnet)]).toEqual(rows);
    expect(await toldOf(intent.id)).toEqual([]);
  });

  test("does not change another merchant's row of the same transfer", async () => {
    const other = await newMerchant();
    const same = {
      transactionHash: `0x${newUuid().replaceAll('-', '').repeat(2)}`,
      toAddress: merchant.wallets.testnet.base,
    };
    const [own, theirs] = [await received(same), await received(same, other)];
    const wallet = { wallet_address: merchant.wallets.testnet.base };
    const [intent, theirIntent] = [await createIntent(), await createIntent(wallet, keyOf(other))];
    const before = [await rowOf(theirs), await getIntent(theirIntent.id, keyOf(other))];
    await attribute(door, own, intent.id);
    expect([await rowOf(theirs), await getIntent(theirIntent.id, keyOf(other))]).toEqual(before);
    expect((await list(door, {}, keyOf(other))).json.transfers).toMatchObject([{ status: 'unattributed' }]);
    // The other merchant can attribute its own row.
    const attributed = await attribute(door, theirs, theirIntent.id, keyOf(other));
    expect(attributed.json).toMatchObject({ id: theirs, payment_intent: theirIntent.id });
    expect((await getIntent(intent.id)).payments_count).toBe(1);
  });
});

describe('an attribution over HTTP', () => {
  test.each<[string, string, string]>([
    ['no intent', '{}', 'payment_intent'],
    ['an intent that is null', '{"payment_intent":null}', 'payment_intent'],
    ['an intent that is a number', '{"payment_intent":5}', 'payment_intent'],
    ['the id in the body', '{"id":"tr_x","payment_intent":"pi_x"}', 'id'],
    ['a misspelt field', '{"payment_intent":"pi_x","paymentIntent":"pi_x"}', 'paymentIntent'],
    ['a list', '[]', 'body'],
  ])('%s is refused by name', async (_, body, field) => {
    const id = await received();
    const answer = await attributeRaw(id, body);
    const { code, details } = JSON.parse(answer.body).error;
    expect([answer.status, code, details.map((detail: { field: string }) => detail.field)]).toEqual([
      400,
      'invalid_body',
      [field],
    ]);
  });

  test('a missing intent and a misspelt field are listed together', async () => {
    const answer = await attributeRaw(await received(), '{"intent":"pi_x"}');
    const fields = JSON.parse(answer.body).error.details.map(({ field }: { field: string }) => field);
    expect(fields).toEqual(['intent', 'payment_intent']);
  });

  test('a missing body is refused', async () => {
    const answer = await attributeRaw(await received(), undefined);
    expect([answer.status, JSON.parse(answer.body).error.code]).toEqual([400, 'invalid_body']);
  });

  function attributeRaw(id: string, body: string | undefined) {
    return httpRequest(
      `${service.publicUrl}/v1/transfers/${id}/attribute`,
      { headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' } },
      body,
    );
  }
});

describe('concurrently', () => {
  const times = <T>(count: number, work: (i: number) => Promise<T>) =>
    Promise.all(Array.from({ length: count }, (_, i) => work(i)));

  test('20 attributions of a transfer to one intent cause one change and get the same answer', async () => {
    const { id: intent } = await createIntent();
    const id = await received({ state: 'confirmed' });
    const answers = await times(20, (i) => attribute(doors[i % 2] as Door, id, intent));
    expect(answers.map(({ code }) => code)).toEqual(Array(20).fill('ok'));
    expect(answers.map(({ json }) => json)).toEqual(Array(20).fill(answers[0]?.json));
    expect(await getIntent(intent)).toMatchObject({ payments_count: 1, amount_received_units: 12_500_000 });
    expect((await toldOf(intent)).map(({ type }) => type)).toEqual(['processing', 'succeeded']);
  });

  test('of 20 attributions of a transfer to two intents, those to one intent win', async () => {
    const ids = idsOf([await createIntent(), await createIntent()]);
    const id = await received();
    const answers = await times(20, (i) => attribute(doors[i % 2] as Door, id, ids[(i >> 1) & 1] as string));
    expect(answers.map(({ code }) => code).sort()).toEqual([
      ...Array(10).fill('invalid_state'),
      ...Array(10).fill('ok'),
    ]);
    const counts = await Promise.all(ids.map(async (intent) => (await getIntent(intent)).payments_count));
    expect(counts.sort()).toEqual([0, 1]);
    expect((await Promise.all(ids.map(toldOf))).flat()).toHaveLength(1);
  });

  test('20 transfers attributed to one intent each count once, and its events have no gap in their sequence', async () => {
    const { id: intent } = await createIntent();
    const ids = await insertTransfers(service, merchant, Array(20).fill({ amountUnits: 1_000_000 }));
    const answers = await times(20, (i) => attribute(doors[i % 2] as Door, ids[i] as string, intent));
    expect(answers.map(({ code }) => code)).toEqual(Array(20).fill('ok'));
    expect(await getIntent(intent)).toMatchObject({
      status: 'processing',
      amount_received_units: 20_000_000,
      payments_count: 20,
      labels: ['overpaid'],
    });
    const events = await toldOf(intent);
    expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, n) => n + 1));
    // The `overpaid` event is not about a further payment.
    const changes = events.filter(({ type }) => type !== 'overpaid');
    expect(changes.map(({ data }) => (data.payment_intent as Intent).payments_count)).toEqual(
      ids.map((_, n) => n + 1),
    );
  });

  test('the answers to a cancellation and an attribution agree on which came first', async () => {
    await times(30, async (n) => {
      const { id: intent } = await createIntent();
      const id = await received();
      const [canceled, attributed] = await Promise.all([
        service.call('cancelPaymentIntent', { id: intent }, { door: doors[n % 2] as Door }),
        attribute(doors[n % 2] as Door, id, intent),
      ]);
      expect(attributed.code).toBe('ok');
      const present = await getIntent(intent);
      const events = await toldOf(intent);
      const types = events.map(({ type }) => type);
      expect(events.at(-1)?.data.payment_intent).toEqual(present);
      if (canceled.code === 'ok') {
        expect(present).toMatchObject({ status: 'canceled', amount_received_units: 0, payments_count: 1 });
        expect([types, attributed.json.labels]).toEqual([['canceled', 'late_payment'], ['after_cancel']]);
      } else {
        expect([canceled.code, present.status]).toEqual(['invalid_state', 'processing']);
        expect([types, attributed.json.labels]).toEqual([['processing'], undefined]);
      }
    });
  });
});

describe('an attribution that has to wait', async () => {
  const blocker = await openClient(service.location);

  afterAll(() => blocker.end());

  afterEach(async () => {
    // For a test that failed before its commit.
    await blocker.query('rollback');
    await service.query('delete from watched_chains');
  });

  const waiting = (count: number) => sessionsWaiting(service, count);

  test('sees an earlier cancellation', async () => {
    const { id: intent } = await createIntent();
    const id = await received();
    await blocker.query('begin');
    await blocker.query(
      `update payment_intents set status = 'canceled', canceled_at = now(), event_count = 1 where id = $1`,
      [uuidOf(intent)],
    );
    const attributed = attribute('json', id, intent);
    await waiting(1);
    await blocker.query('commit');
    expect((await attributed).json.labels).toEqual(['after_cancel']);
    expect(await getIntent(intent)).toMatchObject({ status: 'canceled', amount_received_units: 0 });
    expect(await toldOf(intent)).toMatchObject([{ type: 'late_payment', sequence: 2 }]);
  });

  test('is seen by a cancellation that waits for it', async () => {
    const { id: intent } = await createIntent();
    const id = await received();
    await blocker.query('begin');
    await blocker.query('select from transfers where id = $1 for update', [parseIdentifier('tr', id)]);
    // The attribution holds the intent, and waits for the transfer.
    const attributed = attribute('grpc', id, intent);
    await waiting(1);
    const canceled = service.call('cancelPaymentIntent', { id: intent });
    await waiting(2);
    await blocker.query('commit');
    expect([(await attributed).code, (await canceled).code]).toEqual(['ok', 'invalid_state']);
    expect((await toldOf(intent)).map(({ type }) => type)).toEqual(['processing']);
  });

  test('gets its lock after a watcher that has waited for longer', async () => {
    await insertWatchedChain(service, {});
    const [other, watcher] = [await openClient(service.location), await openClient(service.location)];
    const sessions = [blocker, other, watcher];
    onTestFinished(() => Promise.all([other.end(), watcher.end()]).then(() => {}));
    const intents = idsOf([await createIntent(), await createIntent()]);
    const begin = async (i: number) => {
      await sessions[i]?.query('begin');
      await sessions[i]?.query('select from payment_intents where id = $1 for update', [
        uuidOf(intents[i] as string),
      ]);
      return [await received(), intents[i]] as [string, string];
    };
    const [one, two] = [await begin(0), await begin(1)];
    // An attribution locks the chain of its intent, or waits for it.
    const first = attribute('json', ...one);
    await waiting(1);
    const watched = watcher.query('update watched_chains set seen_at = now()');
    await waiting(2);
    const second = attribute('json', ...two);
    await waiting(3);
    await blocker.query('commit');
    await watched;
    await other.query('commit');
    expect([(await first).code, (await second).code]).toEqual(['ok', 'ok']);
  });

  test('sees that the transfer was reorged', async () => {
    await insertWatchedChain(service, {});
    const { id: intent } = await createIntent();
    const id = await received();
    await blocker.query('begin');
    // A watcher holds this lock while it makes changes.
    await blocker.query('update watched_chains set lease_number = lease_number + 1');
    const attributed = attribute('json', id, intent);
    await waiting(1);
    // The attribution waits before it has locked anything that the watcher needs.
    await blocker.query('select from payment_intents where id = $1 for update nowait', [uuidOf(intent)]);
    await blocker.query(`update transfers set state = 'reorged' where id = $1`, [parseIdentifier('tr', id)]);
    await blocker.query('commit');
    expect((await attributed).code).toBe('invalid_state');
    expect(await toldOf(intent)).toEqual([]);
  });
});
