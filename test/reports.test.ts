// The console's figures: to which day they belong, and that folding does not change them.
// `settlement-model.test.ts` compares them with a recount in random histories.

import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { beforeEach, describe, expect, test, vi } from 'vitest';
import { createReportFolding, getSummary } from '../src/console/reports.ts';
import type { ConsoleCaller } from '../src/console/rights.ts';
import { GetSummaryRequestSchema, SummarySchema } from '../src/contract/gen/console/v1/console_service_pb.ts';
import { migrate } from '../src/database/orm.ts';
import { withChecks } from '../src/requests/method.ts';
import { takeBackFigures } from './support/migrations.ts';
import { wrongFigures } from './support/report-recount.ts';
import { insertTransfers, type TransferSettings } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const { em } = service.database.orm;
const fold = createReportFolding(em);
const { run } = withChecks(getSummary(em));
const { merchant } = service;

beforeEach(() => service.query('truncate report_changes, report_hours, transfers, payment_intents'));

const noContext = { context: {} } as never;
const callerOf = (merchantId: string, mode: 'testnet' | 'mainnet') =>
  ({ merchant: { merchantId, mode } }) as ConsoleCaller;
const summarize = async (
  firstDay: string,
  lastDay = firstDay,
  timeZone = 'UTC',
  caller = callerOf(merchant.id, 'testnet'),
) => {
  const request = create(GetSummaryRequestSchema, { firstDay, lastDay, timeZone });
  return create(SummarySchema, await run(request, caller, noContext));
};

/** Records payments of a new intent, and then confirms them. */
async function receive(...payments: TransferSettings[]): Promise<void> {
  const { id: paymentIntent } = (await service.call('createPaymentIntent', { amount_units: 1 })).json;
  const rows = payments.map((each) => ({ paymentIntent, ...each }));
  await insertTransfers(service, merchant, rows);
  await service.query("update transfers set state = 'confirmed' where state = 'pending'");
}

const at = (time: string, amountUnits = 1): TransferSettings => ({ blockTime: new Date(time), amountUnits });

const otherToken = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';

/** `2026-11-24 base 2 of 30` for each day and chain. */
const linesOf = ({ days }: Awaited<ReturnType<typeof summarize>>): string[] =>
  days.flatMap(({ date, chains }) =>
    chains.map(
      ({ chain, receivedCount, receivedUnits }) => `${date} ${chain} ${receivedCount} of ${receivedUnits}`,
    ),
  );

describe('a summary', () => {
  test('of each further forty days counts as another request', async () => {
    const charged = async (lastDay: string) => {
      const charge = vi.fn();
      const request = create(GetSummaryRequestSchema, { firstDay: '2026-01-01', lastDay, timeZone: 'UTC' });
      await run(request, callerOf(merchant.id, 'testnet'), { context: { charge } } as never);
      return charge.mock.calls.flat();
    };
    expect(await charged('2026-02-09')).toEqual([0]);
    expect(await charged('2026-02-10')).toEqual([1]);
    expect(await charged('2026-12-31')).toEqual([9]);
  });

  test('uses the days of the time zone and the times of blocks', async () => {
    await receive(
      at('2026-11-23T22:59:59Z', 1),
      at('2026-11-23T23:00:00Z', 10),
      at('2026-11-24T22:59:59Z', 100),
    );
    const berlin = await summarize('2026-11-23', '2026-11-24', 'Europe/Berlin');
    expect(linesOf(berlin)).toEqual(['2026-11-23 base 1 of 1', '2026-11-24 base 2 of 110']);
    expect(berlin.timeZone).toBe('Europe/Berlin');
    expect(linesOf(await summarize('2026-11-24', undefined, 'Europe/Berlin'))).toEqual([
      '2026-11-24 base 2 of 110',
    ]);
    expect(linesOf(await summarize('2026-11-23'))).toEqual(['2026-11-23 base 2 of 11']);
    // In summer.
    await receive(at('2026-06-23T22:30:00Z'));
    expect(linesOf(await summarize('2026-06-23', '2026-06-24', 'CET'))).toEqual(['2026-06-24 base 1 of 1']);
    // A day of 25 hours.
    await receive(at('2026-10-24T22:00:00Z'), at('2026-10-25T22:59:59Z'), at('2026-10-25T23:00:00Z'));
    expect(linesOf(await summarize('2026-10-25', undefined, 'Europe/Berlin'))).toEqual([
      '2026-10-25 base 2 of 2',
    ]);
  });

  // The embedded PostgreSQL has older rules for the first three, and takes the last three for abbreviations.
  test.each([
    ...['America/Edmonton', 'Africa/Casablanca', 'America/Yellowknife'],
    ...['America/Havana', 'Pacific/Kiritimati', 'Pacific/Pago_Pago', 'CET', 'ECT', 'BST'],
  ])('uses the days of %s as browsers do', async (zone) => {
    const hours = Array.from({ length: 72 }, (_, i) => Date.UTC(2026, 9, 31) + i * 3_600_000);
    await receive(...hours.map((ms) => ({ blockTime: new Date(ms), amountUnits: 1 })));
    const date = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short' });
    const dates = Map.groupBy(hours, (ms) => date.format(ms));
    const lines = [...dates].map(([day, { length }]) => `${day} base ${length} of ${length}`);
    expect(linesOf(await summarize('2026-10-29', '2026-11-04', zone))).toEqual(lines);
  });

  test.each(['Asia/Kolkata', 'Australia/Lord_Howe'])(
    'uses the days of UTC instead of %s, and says so',
    async (zone) => {
      await receive(at('2026-06-23T22:00:00Z'));
      const summary = await summarize('2026-06-23', '2026-06-24', zone);
      expect([summary.timeZone, ...linesOf(summary)]).toEqual(['UTC', '2026-06-23 base 1 of 1']);
    },
  );

  test('covers one merchant and mode', async () => {
    const other = await service.newMerchant();
    await receive(at('2026-11-24T12:00:00Z'));
    for (const caller of [callerOf(other.id, 'testnet'), callerOf(merchant.id, 'mainnet')]) {
      expect(linesOf(await summarize('2026-11-24', undefined, 'UTC', caller))).toEqual([]);
    }
  });

  test('counts each chain separately, ignores other tokens and unattributed transfers, and sums exactly', async () => {
    const time = { blockTime: new Date('2026-11-24T12:00:00Z') };
    await receive(
      { ...time, amountUnits: 9_007_199_254_740_991 },
      { ...time, amountUnits: 4 },
      { ...time, chain: 'polygon', amountUnits: 7 },
      { ...time, labels: ['late'], amountUnits: 100 },
      { ...time, tokenAddress: otherToken, labels: ['wrong_token'], amountUnits: 1_000 },
    );
    await insertTransfers(service, merchant, [{ ...time, state: 'confirmed' }]);
    expect(linesOf(await summarize('2026-11-24')).sort()).toEqual([
      '2026-11-24 base 3 of 9007199254741095',
      '2026-11-24 polygon 1 of 7',
    ]);
  });

  test('is the same before and after its changes are folded, and omits reverted payments', async () => {
    await receive(at('2026-11-24T12:00:00Z', 5), at('2026-11-24T12:59:00Z', 6));
    const before = await summarize('2026-11-24');
    expect(linesOf(before)).toEqual(['2026-11-24 base 2 of 11']);
    expect(await fold()).toBe(false);
    expect((await service.query('select from report_changes')).length).toBe(0);
    expect((await summarize('2026-11-24')).days).toEqual(before.days);
    await service.query("update transfers set state = 'reorged', block_time = now() where amount_units = 5");
    expect(linesOf(await summarize('2026-11-24'))).toEqual(['2026-11-24 base 1 of 6']);
    await fold();
    await service.query("update transfers set state = 'reorged'");
    await fold();
    expect((await summarize('2026-11-24')).days).toEqual([]);
  });

  test('counts canceled and succeeded intents', async () => {
    for (const amount_units of [1, 2, 3]) {
      const { id } = (await service.call('createPaymentIntent', { amount_units })).json;
      if (amount_units > 1) await service.call('cancelPaymentIntent', { id });
    }
    const today = new Date().toISOString().slice(0, 10);
    const { days, asOf } = await summarize(
      today,
      new Date(Date.now() + 86_400_000).toISOString().slice(0, 10),
    );
    expect(days.map(({ canceledCount, succeededCount }) => [canceledCount, succeededCount])).toEqual([
      [2n, 0n],
    ]);
    expect(Math.abs(timestampMs(asOf as NonNullable<typeof asOf>) - Date.now())).toBeLessThan(60_000);
    expect(await service.query(wrongFigures)).toEqual([]);
  });

  test.each([
    [{ firstDay: '2026-11-31' }, 'first_day'],
    [{ firstDay: '1.11.2026' }, 'first_day'],
    [{ lastDay: '' }, 'last_day'],
    [{ firstDay: '2026-11-25' }, 'last_day'],
    [{ firstDay: '2025-10-01' }, 'last_day'],
    [{ timeZone: '' }, 'time_zone'],
    [{ timeZone: '+05:00' }, 'time_zone'],
    [{ timeZone: 'Europe/Bonn' }, 'time_zone'],
    [{ timeZone: "UTC' or true" }, 'time_zone'],
  ])('refuses %o', async (fields, field) => {
    const request = { firstDay: '2026-11-24', lastDay: '2026-11-24', timeZone: 'UTC', ...fields };
    const answer = run(create(GetSummaryRequestSchema, request), callerOf(merchant.id, 'testnet'), noContext);
    await expect(answer).rejects.toMatchObject({ code: 'invalid_body', violations: [{ field }] });
  });
});

test('the migration that adds the figures counts older payments once', async () => {
  await receive(at('2026-11-24T12:00:00Z', 5), {
    ...at('2026-11-24T12:00:00Z', 6),
    tokenAddress: otherToken,
    labels: ['wrong_token'],
  });
  const { id } = (await service.call('createPaymentIntent', { amount_units: 1 })).json;
  await service.call('cancelPaymentIntent', { id });
  expect(await service.query(wrongFigures)).toEqual([]);
  await takeBackFigures(service);
  await migrate(service.location);
  expect(await service.query(wrongFigures)).toEqual([]);
  expect(linesOf(await summarize('2026-11-24'))).toEqual(['2026-11-24 base 1 of 5']);
});
