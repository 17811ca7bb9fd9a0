// Manual attribution to an intent that needs no further payment, and detaching it, through both doors.

import type { Address } from 'viem';
import { expect, onTestFinished, test } from 'vitest';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { type Door, doors, type TransferJson } from './support/call.ts';
import { startChain } from './support/chain.ts';
import { eventsOf } from './support/event-rows.ts';
import { openClient } from './support/open-client.ts';
import { createTestWatcher, endWatch, forgetChain } from './support/settlement.ts';
import { insertTransfers, insertWatchedChain, type TransferSettings } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const { apiKey } = service.merchant.keys.testnet;

const uuidOf = (id: string) => parseIdentifier('pi', id);
const present = async (id: string) => (await service.call('getPaymentIntent', { id })).json;
const attribute = (door: Door, id: string, payment_intent: string, allow_ended = true) =>
  service.call('attributeTransfer', { id, payment_intent, allow_ended }, { door });
const detach = (door: Door, id: string, key = apiKey) =>
  service.call('detachTransfer', { id }, { door, apiKey: key });
const received = async (settings: TransferSettings = {}) =>
  (await insertTransfers(service, service.merchant, [settings]))[0] as string;
const eventTypesOf = async (id: string) =>
  (await eventsOf(service, id)).map(({ type }) => type.replace('payment_intent.', ''));

/** An intent of 12.50 USDC whose row is put into this state, without any transfer. */
async function intentIn(change: string | undefined): Promise<string> {
  const { id } = (await service.call('createPaymentIntent', { amount_units: 12_500_000 })).json;
  if (change) await service.query(`update payment_intents set ${change} where id = $1`, [uuidOf(id)]);
  return id;
}

const ended = (status: string) => `status = '${status}', ${status}_at = now()`;
const whole = 'amount_received_units = 12500000';
const needsNoMore: [string, string, RegExp][] = [
  ['that is fully paid', `status = 'processing', ${whole}`, /is fully paid/],
  ['that has succeeded', `${ended('succeeded')}, ${whole}`, /has succeeded/],
  ['that has expired', ended('expired'), /has expired/],
  ['that was canceled', ended('canceled'), /was canceled/],
];

test.each(needsNoMore)(
  'to an intent %s, a transfer is attributed only with allow_ended',
  async (_, state, reason) => {
    for (const door of doors) {
      const intent = await intentIn(state);
      const id = await received();
      const before = await present(intent);
      const refused = await attribute(door, id, intent, false);
      expect([refused.code, refused.message]).toEqual(['invalid_state', expect.stringMatching(reason)]);
      expect(refused.message).toMatch(/allow_ended/);
      expect([await present(intent), await eventTypesOf(intent)]).toEqual([before, []]);
      expect((await attribute(door, id, intent)).code).toBe('ok');
      expect((await present(intent)).payments_count).toBe(1);
    }
  },
);

test('what is done already is answered without the lock of the chain', async () => {
  await insertWatchedChain(service, { chain: 'base' });
  const intent = await intentIn(undefined);
  const [attributed, other] = [await received(), await received()];
  await attribute('json', attributed, intent);
  const holder = await openClient(service.location);
  onTestFinished(async () => {
    await holder.end();
    await forgetChain(service);
  });
  await holder.query('begin; select from watched_chains for update');
  const codes = [await attribute('json', attributed, intent), await detach('json', other)];
  expect(codes.map(({ code }) => code)).toEqual(['ok', 'ok']);
});

test('a transfer that went to another intent meanwhile is not detached', async () => {
  const [before, after] = [await intentIn(undefined), await intentIn(undefined)];
  const id = await received();
  await attribute('json', id, before);
  const blocker = await openClient(service.location);
  onTestFinished(() => blocker.end());
  await blocker.query('begin');
  const move = 'update transfers set payment_intent = $1 where id = $2';
  await blocker.query(move, [uuidOf(after), parseIdentifier('tr', id)]);
  const detached = detach('json', id);
  await sessionsWaiting(service, 1);
  await blocker.query('commit');
  expect((await detached).code).toBe('unavailable');
  expect(await eventTypesOf(before)).toEqual(['processing']);
});

test('an intent that needs more accepts a transfer without allow_ended', async () => {
  for (const door of doors) {
    const intent = await intentIn('amount_received_units = 12499999');
    expect((await attribute(door, await received(), intent, false)).code).toBe('ok');
  }
});

const late = () => new Date(Date.now() + 3_600_000);
const states: [string, string | undefined, () => TransferSettings][] = [
  ['open', undefined, () => ({})],
  ['open, by a part', undefined, () => ({ amountUnits: 1 })],
  ['open, too late', undefined, () => ({ blockTime: late() })],
  ['being paid', `status = 'processing', ${whole}`, () => ({ amountUnits: 1 })],
  ['paid', `${ended('succeeded')}, ${whole}`, () => ({ amountUnits: 1 })],
  ['paid by what was reorged', `${ended('succeeded')}, labels = '{reorged}'`, () => ({ blockTime: late() })],
  ['expired', ended('expired'), () => ({})],
  ['canceled', ended('canceled'), () => ({})],
  ['canceled, in another token', ended('canceled'), () => ({ tokenAddress: bridged })],
];
const bridged = '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174';

test.each(states)(
  'an intent that is %s is as before once a transfer is detached',
  async (_, state, settings) => {
    for (const door of doors) {
      const intent = await intentIn(state);
      if (state?.includes(whole)) await pays(intent, 12_500_000, state.includes('succeeded'));
      const before = await present(intent);
      const id = await received(settings());
      const [unattributed] = (await service.call('listTransfers', { page_size: 1 }, { door })).json
        .transfers as [TransferJson];
      await attribute(door, id, intent);
      expect(await present(intent)).not.toEqual(before);
      const events = await eventTypesOf(intent);

      const detached = await detach(door, id);
      const { labels, ...rest } = unattributed;
      expect(detached).toMatchObject({ code: 'ok', json: rest });
      expect(await present(intent)).toEqual(before);
      expect(await eventTypesOf(intent)).toEqual([...events, 'payment_detached']);
      // Detaching again has no effect, and the transfer is free for another intent.
      for (const each of doors) expect((await detach(each, id)).json).toEqual(detached.json);
      expect(await eventTypesOf(intent)).toHaveLength(events.length + 1);
      const other = await intentIn(undefined);
      expect((await attribute(door, id, other)).code).toBe('ok');
      expect(await present(intent)).toEqual(before);
    }
  },
);

/** A payment that was attributed automatically. */
async function pays(paymentIntent: string, amountUnits: number, isConfirmed: boolean): Promise<string> {
  const id = await received({ paymentIntent, amountUnits, state: isConfirmed ? 'confirmed' : 'pending' });
  await service.query('update transfers set counts = true where id = $1', [parseIdentifier('tr', id)]);
  await service.query('update payment_intents set payments_count = 1 where id = $1', [uuidOf(paymentIntent)]);
  return id;
}

test('an automatically attributed payment cannot be detached', async () => {
  for (const door of doors) {
    const intent = await intentIn(`status = 'processing', ${whole}`);
    const id = await pays(intent, 12_500_000, false);
    const before = await present(intent);
    expect(await detach(door, id)).toMatchObject({
      code: 'invalid_state',
      message: expect.stringMatching(/attributed automatically/),
    });
    expect([await present(intent), await eventTypesOf(intent)]).toEqual([before, []]);
  }
});

test('the payment that an intent succeeded with cannot be detached, unless another suffices', async () => {
  for (const door of doors) {
    const intent = await intentIn(undefined);
    const [first, second] = [await received({ state: 'confirmed' }), await received({ state: 'confirmed' })];
    await attribute(door, first, intent);
    expect((await present(intent)).status).toBe('succeeded');
    expect(await detach(door, first)).toMatchObject({
      code: 'invalid_state',
      message: expect.stringMatching(/has succeeded with this payment/),
    });
    await attribute(door, second, intent);
    expect((await detach(door, first)).code).toBe('ok');
    expect(await present(intent)).toMatchObject({
      status: 'succeeded',
      amount_received_units: 12_500_000,
      payments_count: 1,
    });
    expect((await detach(door, second)).code).toBe('invalid_state');
  }
});

test('an unknown transfer, or one of the other mode, is not found', async () => {
  const intent = await intentIn(undefined);
  const id = await received();
  await attribute('json', id, intent);
  for (const door of doors) {
    for (const missing of ['tr_x', intent])
      expect((await detach(door, missing)).code).toBe('resource_missing');
    expect((await detach(door, id, service.merchant.keys.mainnet.apiKey)).code).toBe('resource_missing');
  }
});

test('a detached transfer that returns in another block stays unattributed, although one intent expects it', async () => {
  const chain = await startChain();
  const watcher = createTestWatcher(service, { urls: [chain.url] });
  onTestFinished(() => endWatch(service, { watcher, chain }));
  const mine = async () => {
    await watcher.catchUp(chain.mine());
  };
  const { address: from } = chain.accounts[0] as { address: Address };
  const amountUnits = 7_654_321;
  await chain.mint(from, BigInt(amountUnits));
  await mine();
  const to = service.merchant.wallets.testnet.base;
  const hash = await chain.transfer({ from, to, amountUnits: BigInt(amountUnits) });
  await mine();
  const transferOf = async () =>
    (await service.call('listTransfers', { transaction_hash: hash })).json.transfers[0] as TransferJson;
  const { id, block_hash } = await transferOf();

  const fields = { amount_units: amountUnits, chain: 'base' };
  const { id: intent } = (await service.call('createPaymentIntent', fields)).json;
  expect((await attribute('json', id, intent)).code).toBe('ok');
  expect((await detach('json', id)).code).toBe('ok');

  const method = 'eth_getRawTransactionByHash';
  const serializedTransaction = await chain.client.request({ method, params: [hash] } as never);
  const comeBack = async () => {
    await chain.reorg(1);
    await watcher.catchUp().catch(() => {});
    await watcher.catchUp();
    await chain.client.sendRawTransaction({ serializedTransaction });
    await mine();
  };
  await comeBack();

  const returned = await transferOf();
  expect(returned).toMatchObject({ id, status: 'unattributed' });
  expect(returned.block_hash).not.toBe(block_hash);
  expect(await present(intent)).toMatchObject({ status: 'requires_payment', payments_count: 0 });
  expect(await eventTypesOf(intent)).toEqual(['processing', 'payment_detached']);

  // One that is attributed by hand returns to its intent, and can still be detached.
  const other = await intentIn(undefined);
  expect((await attribute('json', id, other)).code).toBe('ok');
  await comeBack();
  expect(await transferOf()).toMatchObject({ id, status: 'attributed', payment_intent: other });
  expect((await detach('json', id)).code).toBe('ok');
});
