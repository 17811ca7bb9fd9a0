import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { networks } from '../src/contract/chains.ts';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { createJsonCodec } from '../src/contract/json/json-codec.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../src/database/entities/payment-intent.ts';
import { entityColumns } from '../src/database/entity-columns.ts';
import {
  parseShownColumns,
  paymentIntentText,
  presentPaymentIntent,
  readShownRow,
  type ShownColumns,
  shownRow,
} from '../src/payment-intents/payment-intent.ts';
import { useService } from './support/use-service.ts';

const codec = createJsonCodec(PaymentIntentSchema);
const moment = fc.date({ min: new Date('2000-01-01'), max: new Date('9999-01-01'), noInvalidDate: true });
const optional = fc.option(moment, { nil: null });
const count = fc.bigInt({ min: 1n, max: 9007199254740991n });

const intents = fc.record({
  id: fc.uuid({ version: 7 }),
  status: fc.constantFrom('requires_payment', 'processing', 'succeeded', 'expired', 'canceled'),
  network: fc.constantFrom(...networks),
  amount: count,
  received: count,
  lane: fc.constantFrom('sdk', 'manual'),
  wallet: fc.uint8Array({ minLength: 20, maxLength: 20 }),
  // What PostgreSQL takes: no NUL, and whole characters.
  metadata: fc.dictionary(fc.string({ unit: 'grapheme' }), fc.jsonValue({ stringUnit: 'grapheme' })),
  createdAt: moment,
  minutes: fc.integer({ min: 5, max: 60 }),
  labels: fc.option(fc.array(fc.constantFrom('late', 'underpaid')), { nil: null }),
  succeededAt: optional,
  canceledAt: optional,
  expiredAt: optional,
});

const service = await useService({ ROLES: 'api' });

/** Returns what PostgreSQL returns for these values, over the connection that lists are read with. */
async function stored(samples: readonly (typeof intents extends fc.Arbitrary<infer T> ? T : never)[]) {
  const em = service.database.orm.em.fork();
  await em.execute('delete from payment_intents');
  for (const { id, network, ...intent } of samples) {
    await em.execute(
      `insert into payment_intents (id, merchant_id, mode, status, network, amount_units, expected_wallet, lane, metadata,
                                    created_at, expires_at, client_secret_version, amount_received_units, labels,
                                    succeeded_at, canceled_at, expired_at)
       values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?) on conflict do nothing`,
      [
        ...[id, service.merchant.id, network.mode, intent.status, network.id, String(intent.amount)],
        ...[Buffer.from(intent.wallet), intent.lane, JSON.stringify(intent.metadata), intent.createdAt],
        ...[new Date(intent.createdAt.getTime() + intent.minutes * 60_000), String(intent.received)],
        ...[
          intent.labels && `{${intent.labels.join(',')}}`,
          intent.succeededAt,
          intent.canceledAt,
          intent.expiredAt,
        ],
      ],
    );
  }
  const pool = await em.getConnection().getNativeClient();
  const { rows } = await pool.query(`select ${shownRow('i')} from payment_intents i`);
  return rows.map(readShownRow);
}

describe('an intent written straight from its columns', () => {
  test('equals the JSON of the message', async () => {
    const columns = entityColumns<PaymentIntentRow>(service.database.orm.em, PaymentIntentEntity);
    const rows = await stored(fc.sample(intents, 500));
    expect(rows.length).toBeGreaterThan(400);
    for (const shown of rows) {
      const row = columns.read(parseShownColumns(shown));
      expect(paymentIntentText(shown)).toBe(codec.encode(presentPaymentIntent(row, [])));
    }
  });

  test.each([
    ['a status of a newer version', { status: 'refunded' }],
    ['a lane of a newer version', { lane: 'wire' }],
    ['a network of a newer version', { network: '99' }],
    ['a mode of a newer version', { mode: 'devnet' }],
    ['payments', { payments_count: '1' }],
    ['a time that is not whole minutes', { expires_at: '2026-01-01 00:05:01+00' }],
  ])('%s is left to the conversion through the message', async (_, change) => {
    const [row] = await stored(fc.sample(intents, 1));
    expect(
      paymentIntentText({ ...(row as ShownColumns), created_at: '2026-01-01 00:00:00+00', ...change }),
    ).toBe(undefined);
  });
});
