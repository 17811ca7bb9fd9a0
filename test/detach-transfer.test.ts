// Manual attribution to an intent that needs no further payment, and detaching it, through both doors.

import { afterAll, expect, test } from 'vitest';
import { parseIdentifier } from '../src/database/identifiers.ts';
import type { Door } from './support/doors.ts';
import { openIntentMethods, type PresentIntent } from './support/intent-methods.ts';
import type { TestService } from './support/service.ts';
import { openTransferMethods, type TransferJson, type TransferMethods } from './support/transfer-methods.ts';
import { insertTransfers, type TransferSettings } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

let service: TestService;
let doors: Door[];
let methods: TransferMethods[];
let intents: ReturnType<typeof openIntentMethods>;
let apiKey: string;

useService(
  (started, opened) => {
    service = started;
    doors = opened;
    methods = openTransferMethods(started);
    intents = openIntentMethods(started);
    apiKey = started.merchant.keys.testnet.apiKey;
  },
  { ROLES: 'api' },
);

afterAll(() => {
  for (const each of [...methods, ...intents]) each.close();
});

const uuidOf = (id: string) => parseIdentifier('pi', id);
const present = async (id: string): Promise<PresentIntent> => (await intents[0].get(id, apiKey)).json;
const received = async (settings: TransferSettings = {}) =>
  (await insertTransfers(service, service.merchant, [settings]))[0] as string;
const eventsOf = async (id: string) =>
  (
    await service.query<{ type: string }>(
      'select type from events where payment_intent = $1 order by sequence',
      [uuidOf(id)],
    )
  ).map(({ type }) => type.replace('payment_intent.', ''));

/** An intent of 12.50 USDC in a state that only its row has: nobody has paid it. */
async function intentIn(change: string | undefined): Promise<string> {
  const authorization = `Bearer ${apiKey}`;
  const { intent } = await (doors[0] as Door).create({ amount_units: 12_500_000 }, { authorization });
  const id = intent?.id ?? '';
  if (change) await service.query(`update payment_intents set ${change} where id = $1`, [uuidOf(id)]);
  return id;
}

const ended = (status: string) => `status = '${status}', ${status}_at = now()`;
const whole = 'amount_received_units = 12500000';
const needsNoMore: [string, string, RegExp][] = [
  ['that is fully paid', `status = 'processing', ${whole}`, /is fully paid/],
  ['that has succeeded', `${ended('succeeded')}, ${whole}`, /is succeeded/],
  ['that has expired', ended('expired'), /is expired/],
  ['that was canceled', ended('canceled'), /is canceled/],
];

test.each(needsNoMore)('attributing to an intent %s requires allow_ended', async (_, state, reason) => {
  for (const { attribute } of methods) {
    const intent = await intentIn(state);
    const id = await received();
    const before = await present(intent);
    const refused = await attribute(id, intent, apiKey, false);
    expect([refused.code, refused.message]).toEqual(['invalid_state', expect.stringMatching(reason)]);
    expect(refused.message).toMatch(/allow_ended/);
    expect([await present(intent), await eventsOf(intent)]).toEqual([before, []]);
    expect((await attribute(id, intent, apiKey, true)).code).toBe('ok');
    expect((await present(intent)).payments_count).toBe(1);
  }
});

test('attributing to an underpaid open intent does not require allow_ended', async () => {
  for (const { attribute } of methods) {
    const intent = await intentIn('amount_received_units = 12499999');
    expect((await attribute(await received(), intent, apiKey, false)).code).toBe('ok');
  }
});

const late = () => new Date(Date.now() + 3_600_000);
const states: [string, string | undefined, () => TransferSettings][] = [
  ['open', undefined, () => ({})],
  ['open, by a part', undefined, () => ({ amountUnits: 1 })],
  ['open, too late', undefined, () => ({ blockTime: late() })],
  ['being paid', `status = 'processing', ${whole}`, () => ({ amountUnits: 1 })],
  ['paid', `${ended('succeeded')}, ${whole}`, () => ({ amountUnits: 1 })],
  ['expired', ended('expired'), () => ({})],
  ['canceled', ended('canceled'), () => ({})],
  ['canceled, in another token', ended('canceled'), () => ({ tokenAddress: bridged })],
];
const bridged = '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174';

test.each(states)('detaching restores an intent that is %s', async (_, state, settings) => {
  for (const { attribute, detach, list } of methods) {
    const intent = await intentIn(state);
    if (state?.includes(whole)) await pays(intent, 12_500_000, state.includes('succeeded'));
    const before = await present(intent);
    const id = await received(settings());
    const [unattributed] = (await list({ page_size: 1 }, apiKey)).json.transfers as [TransferJson];
    await attribute(id, intent, apiKey);
    expect(await present(intent)).not.toEqual(before);
    const events = await eventsOf(intent);

    const detached = await detach(id, apiKey);
    const { labels, ...rest } = unattributed;
    expect(detached).toMatchObject({ code: 'ok', json: rest });
    expect(await present(intent)).toEqual(before);
    expect(await eventsOf(intent)).toEqual([...events, 'payment_detached']);
    // Again without an effect, and free for another intent.
    for (const each of methods) expect((await each.detach(id, apiKey)).json).toEqual(detached.json);
    expect(await eventsOf(intent)).toHaveLength(events.length + 1);
    const other = await intentIn(undefined);
    expect((await attribute(id, other, apiKey)).code).toBe('ok');
    expect(await present(intent)).toEqual(before);
  }
});

/** A payment that was attributed automatically. */
async function pays(paymentIntent: string, amountUnits: number, isConfirmed: boolean): Promise<string> {
  const id = await received({ paymentIntent, amountUnits, state: isConfirmed ? 'confirmed' : 'pending' });
  await service.query('update transfers set counts = true where id = $1', [parseIdentifier('tr', id)]);
  await service.query('update payment_intents set payments_count = 1 where id = $1', [uuidOf(paymentIntent)]);
  return id;
}

test('a payment that was attributed automatically cannot be detached', async () => {
  for (const { detach } of methods) {
    const intent = await intentIn(`status = 'processing', ${whole}`);
    const id = await pays(intent, 12_500_000, false);
    const before = await present(intent);
    expect(await detach(id, apiKey)).toMatchObject({
      code: 'invalid_state',
      message: expect.stringMatching(/attributed automatically/),
    });
    expect([await present(intent), await eventsOf(intent)]).toEqual([before, []]);
  }
});

test('a payment that an intent succeeded with cannot be detached, a surplus payment can', async () => {
  for (const { attribute, detach } of methods) {
    const intent = await intentIn(undefined);
    const [first, second] = [await received({ state: 'confirmed' }), await received({ state: 'confirmed' })];
    await attribute(first, intent, apiKey);
    expect((await present(intent)).status).toBe('succeeded');
    expect(await detach(first, apiKey)).toMatchObject({
      code: 'invalid_state',
      message: expect.stringMatching(/has succeeded with this payment/),
    });
    await attribute(second, intent, apiKey);
    expect((await detach(first, apiKey)).code).toBe('ok');
    expect(await present(intent)).toMatchObject({
      status: 'succeeded',
      amount_received_units: 12_500_000,
      payments_count: 1,
    });
    expect((await detach(second, apiKey)).code).toBe('invalid_state');
  }
});

test('a transfer of another merchant is not found', async () => {
  const intent = await intentIn(undefined);
  const id = await received();
  await methods[0]?.attribute(id, intent, apiKey);
  for (const { detach } of methods) {
    for (const missing of ['tr_x', intent])
      expect((await detach(missing, apiKey)).code).toBe('resource_missing');
    expect((await detach(id, service.merchant.keys.mainnet.apiKey)).code).toBe('resource_missing');
  }
});
