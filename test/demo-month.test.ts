import { expect, test } from 'vitest';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { hasDemoMonth, writeDemoMonth } from '../src/embedded/demo-month.ts';
import { findBrokenRules } from '../src/payment-intents/intent-rules.ts';
import { createMetadataIndexing } from '../src/payment-intents/metadata-index.ts';
import { readReturnedMoney } from '../src/refunds/returned-money.ts';
import { consoleOf } from './support/console.ts';
import { wrongFigures } from './support/report-recount.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });

test('the demo month is what the service itself would have written', { timeout: 120_000 }, async () => {
  const { em } = service.database.orm;
  const { id: merchantId } = service.merchant;
  const wallet = service.merchant.wallets.testnet.base;
  const progress: number[] = [];
  expect(await hasDemoMonth(em, merchantId)).toBe(false);
  const webhookKeys = service.database.keyRing('WEBHOOK_SECRET_KEYS');
  const options = { merchantId, wallet, count: 1_200, webhookKeys };
  const enter = createMetadataIndexing(em);
  await service.call('createPaymentIntent', { amount_units: 1 });
  expect(await enter()).toBe(false);
  await writeDemoMonth(em, { ...options, onProgress: (count) => progress.push(count) });
  expect(await hasDemoMonth(em, merchantId)).toBe(true);
  expect(progress.at(-1)).toBe(1_200);

  expect(await service.query(wrongFigures)).toEqual([]);
  expect(await findBrokenRules(em, 'all')).toMatchObject({ broken: [] });
  const seen = await service.query<{ what: string }>(
    `select status::text as what from payment_intents union select unnest(labels) from payment_intents
     union select 'refund ' || status from refunds union select 'transfer ' || state from transfers
     union select 'delivery ' || status from webhook_deliveries`,
  );
  expect(seen.map(({ what }) => what)).toEqual(
    expect.arrayContaining([
      ...['succeeded', 'expired', 'canceled', 'overpaid', 'underpaid', 'late', 'after_cancel', 'reorged'],
      ...['refund succeeded', 'refund requires_transfer', 'transfer confirmed', 'transfer reorged'],
      ...['delivery delivered', 'delivery failed'],
    ]),
  );
  // Sums and counts of every intent are those of its transfers and events.
  const wrong = await service.query(
    `select i.id from payment_intents i
      where i.amount_received_units <> (select coalesce(sum(t.amount_units), 0) from transfers t
                                         where t.payment_intent = i.id and t.counts and t.state <> 'reorged')
         or i.payments_count <> (select count(*) from transfers t where t.payment_intent = i.id)
         or i.event_count <> (select count(*) from events e where e.payment_intent = i.id)
         or i.created_at > now() or i.expired_at > now()`,
  );
  expect(wrong).toEqual([]);
  // The console shows them by their time.
  const disordered = await service.query(
    `select events.id from events join events earlier using (payment_intent)
      where earlier.sequence = events.sequence - 1 and earlier.created_at > events.created_at`,
  );
  expect(disordered).toEqual([]);
  const refunded = await service.query<{ id: string; units: string }>(
    'select id, amount_refunded_units as units from payment_intents where amount_refunded_units > 0',
  );
  const { transaction } = createPreparedStatements(em);
  const ids = refunded.map(({ id }) => id);
  const money = await transaction((run) => readReturnedMoney(run, ids));
  for (const { id, units } of refunded) {
    const { refundedUnits, refundableUnits } = money.get(id) ?? { refundedUnits: -1n, refundableUnits: -1n };
    expect([refundedUnits, refundableUnits >= 0n]).toEqual([BigInt(units), true]);
  }

  while (await enter());
  const found = await service.call('listPaymentIntents', {
    metadata_key: 'order_id',
    metadata_value: 'order-2000',
  });
  expect(found.json.payment_intents).toHaveLength(1);
  const { open, merchant } = consoleOf(service);
  const { call } = await open({ merchant });
  const { items } = (await call('ConsoleService/ListAttention')).json;
  expect(new Set(items.map(({ kind }: { kind: string }) => kind)).size).toBeGreaterThanOrEqual(4);
});
