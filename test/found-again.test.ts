// What support has to find: a payment by its hash, an order by its number. Lists find them by filters.

import { randomBytes } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm, endSessions } from '../src/database/orm.ts';
import { createMetadataIndexing, metadataDigest } from '../src/payment-intents/metadata-index.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { type Door, doors, pagesOf, type Request } from './support/call.ts';
import { insertIntents, insertOf } from './support/intent-rows.ts';
import { openClient } from './support/open-client.ts';
import { startService } from './support/service.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api,expiry' });
const hash = () => `0x${randomBytes(32).toString('hex')}`;
const newMerchant = async () => {
  const merchant = await service.newMerchant();
  return { merchant, apiKey: merchant.keys.testnet.apiKey };
};
const uuidOf = (id: string) => parseIdentifier('pi', id);

type Row = [query: Request, found: (string | undefined)[]];

/** Page by page, over both doors. */
async function expectFound(method: 'listTransfers' | 'listPaymentIntents', rows: Row[], apiKey: string) {
  for (const door of doors) {
    for (const [query, found] of rows) {
      const pages = await pagesOf(service.call, method, { ...query, page_size: 1 }, { door, apiKey });
      expect([query, pages.flat().map(({ id }) => id)]).toEqual([query, found]);
    }
  }
}

test('transfers are found by each filter, and by several at once', async () => {
  const { merchant, apiKey } = await newMerchant();
  const { id: paid } = (await service.call('createPaymentIntent', { amount_units: 1 }, { apiKey })).json;
  const [transactionHash, fromAddress] = [hash(), `0x${'ab'.repeat(20)}`];
  const toAddress = `0x${'cd'.repeat(20)}`;
  const noon = new Date('2026-11-03T12:00:00Z');
  const [plain, hashed, attributed, sent, received, polygon, old] = await insertTransfers(service, merchant, [
    {},
    { transactionHash },
    { paymentIntent: paid },
    { fromAddress },
    { toAddress },
    { chain: 'polygon' },
    { blockTime: noon },
  ]);
  const rows: Row[] = [
    [{ transaction_hash: transactionHash }, [hashed]],
    [{ transaction_hash: transactionHash.toUpperCase().replace('0X', '0x') }, [hashed]],
    [{ transaction_hash: transactionHash, chain: 'polygon' }, []],
    [{ payment_intent: paid }, [attributed]],
    [{ payment_intent: paid, status: 'unattributed' }, []],
    [{ from_address: fromAddress }, [sent]],
    [{ to_address: toAddress }, [received]],
    [{ chain: 'polygon' }, [polygon]],
    [{ block_time_before: '2026-11-03T12:00:00.001Z' }, [old]],
    [{ block_time_before: '2026-11-03T12:00:00Z' }, []],
    [{ block_time_from: '2026-11-03T12:00:00.001Z' }, [polygon, received, sent, attributed, hashed, plain]],
    [{ status: 'unattributed', from_address: fromAddress, chain: 'base' }, [sent]],
  ];
  await expectFound('listTransfers', rows, apiKey);
});

test.each<[Request, string, RegExp]>([
  [{ transaction_hash: '0x12' }, 'transaction_hash', /64 hexadecimal digits/],
  [{ payment_intent: 'order-1001' }, 'payment_intent', /id of a payment intent/],
  [{ from_address: 'alice.eth' }, 'from_address', /40 hexadecimal digits/],
  [{ to_address: '0x' }, 'to_address', /40 hexadecimal digits/],
])('a list of transfers with %j is refused', async (query, field, message) => {
  for (const door of doors) {
    const { code, details } = await service.call('listTransfers', query, { door });
    expect([code, details]).toEqual(['invalid_body', [{ field, message: expect.stringMatching(message) }]]);
  }
});

test('a page token belongs to its filters', async () => {
  const { merchant, apiKey } = await newMerchant();
  await insertTransfers(service, merchant, [{}, {}]);
  const page = { page_size: 1, from_address: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed' };
  const { next_page_token } = (await service.call('listTransfers', page, { apiKey })).json;
  const other = { ...page, from_address: `0x${'00'.repeat(20)}`, page_token: next_page_token };
  expect((await service.call('listTransfers', other, { apiKey })).details).toMatchObject([
    { field: 'page_token' },
  ]);
  // The filters may come in any order.
  const [since, until] = ['2020-01-01T00:00:00Z', '2120-01-01T00:00:00Z'];
  const range = { page_size: 1, block_time_from: since, block_time_before: until };
  const first = (await service.call('listTransfers', range, { apiKey })).json;
  const swapped = { block_time_before: until, block_time_from: since, page_size: 1 };
  const next = { ...swapped, page_token: first.next_page_token };
  expect((await service.call('listTransfers', next, { apiKey })).json.transfers).toHaveLength(1);
});

test('an unattributed transfer shows the five intents of its wallet that are nearest in amount', async () => {
  const { merchant, apiKey } = await newMerchant();
  const toAddress = `0x${'12'.repeat(20)}`;
  const createIntent = async (amount_units: number, wallet_address = toAddress) =>
    (await service.call('createPaymentIntent', { amount_units, wallet_address }, { apiKey })).json.id;
  const equal = [await createIntent(1_000), await createIntent(1_000)];
  const ids = [await createIntent(1_010), await createIntent(999), await createIntent(1_500)];
  await createIntent(5_000);
  await createIntent(1_000, `0x${'34'.repeat(20)}`);
  await service.query(`update payment_intents set status = 'succeeded', succeeded_at = now() where id = $1`, [
    uuidOf(equal[1] as string),
  ]);
  const blockTime = new Date(Date.now() + 1_000);
  const [id, known, reorged, early] = await insertTransfers(service, merchant, [
    { toAddress, amountUnits: 1_000, blockTime },
    { toAddress, amountUnits: 1_000, blockTime, paymentIntent: equal[0] as string },
    { toAddress, amountUnits: 1_000, blockTime, state: 'reorged' },
    { toAddress, amountUnits: 1_000, blockTime: new Date('2026-01-01T00:00:00Z') },
  ]);
  const candidatesOf = async (transfer = '', door: Door = 'json') =>
    (await service.call('getTransfer', { id: transfer }, { door, apiKey })).json.candidates ?? [];
  for (const door of doors) {
    const candidates = await candidatesOf(id, door);
    expect(candidates.map(({ id }) => id)).toEqual([equal[0], equal[1], ids[1], ids[0], ids[2]]);
    expect(candidates[1]).toMatchObject({ amount_units: 1_000, status: 'succeeded' });
  }
  // Made by a machine whose clock is ahead: up to two minutes, they come last of their amount; beyond, never.
  const late = [await createIntent(1_000), await createIntent(1_000)];
  await service.query('update payment_intents set id = $2 where id = $1', [
    uuidOf(String(late[0])),
    newUuid(blockTime.getTime() + 60_000),
  ]);
  await service.query('update payment_intents set id = $2 where id = $1', [
    uuidOf(String(late[1])),
    newUuid(blockTime.getTime() + 180_000),
  ]);
  const [first, second, third] = await candidatesOf(id);
  expect([first?.id, second?.id, third?.amount_units]).toEqual([equal[0], equal[1], 1_000]);
  // None for a transfer that is attributed, reorged, or older than every intent.
  for (const other of [known, reorged, early]) expect(await candidatesOf(other)).toEqual([]);
});

test.each([999, 1_001])('of many at %i units, near the amount sent, the newest is first', async (amount) => {
  const { merchant, apiKey } = await newMerchant();
  const [toAddress, merchantId] = [`0x${'13'.repeat(20)}`, merchant.id];
  const columns = { amount_units: String(amount), expected_wallet: `'\\x${'13'.repeat(20)}'::bytea` };
  await insertIntents(service, { merchantId, count: 1_100, firstAtMs: Date.now() - 86_400_000, columns });
  const body = { amount_units: amount, wallet_address: toAddress };
  const newest = (await service.call('createPaymentIntent', body, { apiKey })).json.id;
  const blockTime = new Date(Date.now() + 1_000);
  const [id = ''] = await insertTransfers(service, merchant, [{ toAddress, amountUnits: 1_000, blockTime }]);
  expect((await service.call('getTransfer', { id }, { apiKey })).json.candidates?.[0]?.id).toBe(newest);
});

test('a transfer of another merchant, or of the other mode, is not found', async () => {
  const { merchant } = await newMerchant();
  const [own, mainnet] = await insertTransfers(service, merchant, [{}, { mode: 'mainnet' }]);
  const { apiKey } = merchant.keys.testnet;
  for (const door of doors) {
    const codeOf = async (id = '', options = {}) =>
      (await service.call('getTransfer', { id }, { door, ...options })).code;
    expect(await codeOf(own, { apiKey })).toBe('ok');
    expect(await codeOf(own)).toBe('resource_missing');
    expect(await codeOf(mainnet, { apiKey })).toBe('resource_missing');
    expect(await codeOf('tr_1', { apiKey })).toBe('resource_missing');
  }
});

test('intents are found by label, wallet, success and metadata', async () => {
  const { apiKey } = await newMerchant();
  const wallet_address = `0x${'ef'.repeat(20)}`;
  const created = async (body: Request) =>
    (await service.call('createPaymentIntent', { amount_units: 1, ...body }, { apiKey })).json.id;
  const [labeled, elsewhere, paid] = [
    await created({}),
    await created({ wallet_address }),
    await created({}),
  ];
  const numbered = { order_id: 'order-1001', item: 7, nested: { order_id: 'order-2' } };
  // Of one millisecond, the order of the ids decides.
  const ordered = [await created({ metadata: numbered }), await created({ metadata: numbered })].sort();
  await service.query(`update payment_intents set labels = '{late,overpaid}' where id = $1`, [
    uuidOf(labeled),
  ]);
  await service.query(
    // Confirmed by a machine whose clock is behind.
    `update payment_intents set status = 'succeeded', succeeded_at = created_at - interval '8 minutes' where id = $1`,
    [uuidOf(paid)],
  );
  const before = new Date(Date.now() - 420_000).toISOString();
  const rows: Row[] = [
    [{ label: 'overpaid' }, [labeled]],
    [{ label: 'reorged' }, []],
    [{ expected_wallet: wallet_address.toUpperCase().replace('0X', '0x') }, [elsewhere]],
    [{ succeeded_from: '2026-11-03T12:00:00Z', succeeded_before: before }, [paid]],
    [{ succeeded_before: '2026-11-03T12:00:00Z' }, []],
    [{ metadata_key: 'order_id', metadata_value: 'order-1001' }, ordered.toReversed()],
    [{ metadata_key: 'order_id', metadata_value: 'order-1001', status: 'canceled' }, []],
    [{ metadata_key: 'order_id', metadata_value: 'order-2' }, []],
    [{ metadata_key: 'item', metadata_value: '7' }, []],
  ];
  const indexed = () => service.call('listPaymentIntents', rows[5]?.[0] as Request, { apiKey });
  await expect.poll(async () => (await indexed()).json.payment_intents, { timeout: 5_000 }).toHaveLength(2);
  await expectFound('listPaymentIntents', rows, apiKey);
});

test.each<[Request, string, RegExp]>([
  [{ metadata_value: 'order-1001' }, 'metadata_key', /required with metadata_value/],
  [{ metadata_key: 'order_id' }, 'metadata_value', /text of 1 to 255 bytes/],
  [{ metadata_key: 'order_id', metadata_value: 'é'.repeat(128) }, 'metadata_value', /255 bytes/],
  [{ metadata_key: 'order_id', metadata_value: '\0' }, 'metadata_value', /255 bytes/],
  [{ expected_wallet: 'alice.eth' }, 'expected_wallet', /40 hexadecimal digits/],
])('a list of intents with %j is refused', async (query, field, message) => {
  for (const door of doors) {
    const { code, details } = await service.call('listPaymentIntents', query, { door });
    expect([code, details]).toEqual(['invalid_body', [{ field, message: expect.stringMatching(message) }]]);
  }
});

/** A service whose metadata is only indexed when the test says so, and a transaction that has not ended. */
async function startUnindexed() {
  const quiet = await startService({ ROLES: 'api' });
  const orm = createOrm(quiet.location, 1);
  const slow = await openClient(quiet.location);
  onTestFinished(async () => {
    await slow.end();
    await endSessions(orm);
    await quiet.close();
  });
  await slow.query('begin');
  return {
    quiet,
    slow,
    orm,
    enter: createMetadataIndexing(orm.em),
    insert: (count: number, ageMs: number, columns = {}) =>
      quiet.query(
        ...insertOf({ merchantId: quiet.merchant.id, count, firstAtMs: Date.now() - ageMs, columns }),
      ),
    find: async (metadata_value: string) =>
      (
        await quiet.call('listPaymentIntents', { metadata_key: 'order_id', metadata_value })
      ).json.payment_intents.map(({ id }) => id),
  };
}

const slowUpdate = `update payment_intents set metadata = '{"order_id":"slow"}' where id = $1`;

test('an intent that commits after later ones is found, too', async () => {
  const { quiet, slow, enter, find } = await startUnindexed();
  const createIntent = async (order_id: string) =>
    (await quiet.call('createPaymentIntent', { amount_units: 1, metadata: { order_id } })).json.id;
  const early = await createIntent('early');
  await slow.query(slowUpdate, [uuidOf(early)]);
  const later = await createIntent('later');
  await enter();
  expect([await find('later'), await find('slow')]).toEqual([[later], []]);
  await slow.query('commit');
  await enter();
  expect([await find('slow'), await find('early')]).toEqual([[early], []]);
});

test('the metadata of new intents is indexed in one run, that of a backlog in several', async () => {
  const { enter, insert } = await startUnindexed();
  await insert(9_000, 600_000);
  expect([await enter(), await enter(), await enter()]).toEqual([true, true, false]);
  await insert(9_000, 20_000);
  expect(await enter()).toBe(false);
});

test('a run of several statements reads the intents of the last minute again only once', async () => {
  const { quiet, orm, enter, insert } = await startUnindexed();
  const rowsRead = async () => {
    await orm.em.execute('select pg_stat_force_next_flush()');
    const of = `select idx_tup_fetch::int as n from pg_stat_user_tables where relname = 'payment_intents'`;
    return (await orm.em.execute<{ n: number }[]>(of))[0]?.n ?? 0;
  };
  await insert(10_000, 40_000);
  await enter();
  await quiet.query('analyze payment_intents');
  const before = await rowsRead();
  await insert(10_000, 20_000);
  expect(await enter()).toBe(false);
  const read = (await rowsRead()) - before;
  expect(read).toBeGreaterThanOrEqual(20_000);
  expect(read).toBeLessThan(20_100);
});

test('an intent that commits between two statements of a run is found after the next run', async () => {
  const { quiet, slow, enter, insert, find } = await startUnindexed();
  await insert(5_000, 20_000, { metadata: `'{"order_id":"order-' || n || '"}'` });
  const [early] = await quiet.query<{ id: string }>('select id from payment_intents order by id limit 1');
  await slow.query(slowUpdate, [early?.id]);
  const holder = await openClient(quiet.location);
  onTestFinished(() => holder.end());
  // The first statement waits for a digest that another enters.
  await holder.query('begin');
  const digest = metadataDigest({ key: 'order_id', value: 'order-1' });
  await holder.query(
    `insert into payment_intent_metadata
     select merchant_id, mode, $1, id from payment_intents where metadata ->> 'order_id' = 'order-1'`,
    [digest],
  );
  const run = enter();
  await sessionsWaiting(quiet, 1);
  await slow.query('commit');
  await holder.query('rollback');
  await run;
  await enter();
  expect(await find('slow')).toHaveLength(1);
});

test('the first ten text values of metadata are indexed, in the byte order of their keys', async () => {
  const { apiKey } = await newMerchant();
  const keys = ['B', 'a', 'é', ...Array.from({ length: 9 }, (_, i) => `k${i}`)];
  const metadata = Object.fromEntries([...keys.map((key) => [key, 'x']), ['A', 'x'.repeat(256)], ['0', 7]]);
  await service.call('createPaymentIntent', { amount_units: 1, metadata }, { apiKey });
  const isFound = async (metadata_key: string) =>
    (await service.call('listPaymentIntents', { metadata_key, metadata_value: 'x' }, { apiKey })).json
      .payment_intents.length === 1;
  await expect.poll(() => isFound('B')).toBe(true);
  const found = [];
  for (const key of keys) if (await isFound(key)) found.push(key);
  expect(found).toEqual(['B', 'a', 'k0', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7']);
});
