import fc from 'fast-check';
import { expect, test } from 'vitest';
import { networks } from '../src/contract/chains.ts';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { createJsonCodec } from '../src/contract/json/json-codec.ts';
import type { PaymentIntentRow } from '../src/database/entities/payment-intent.ts';
import { presentPaymentIntent } from '../src/payment-intents/payment-intent.ts';
import { paymentIntentText } from '../src/payment-intents/payment-intent-text.ts';

const codec = createJsonCodec(PaymentIntentSchema);
const moment = fc.date({ min: new Date('0001-01-01'), max: new Date('9999-12-31'), noInvalidDate: true });
const optional = fc.option(moment, { nil: null });
const count = fc.bigInt({ min: 0n, max: 9007199254740991n });

const rows = fc
  .record({
    id: fc.uuid({ version: 7 }),
    status: fc.constantFrom('requires_payment', 'processing', 'succeeded', 'expired', 'canceled'),
    network: fc.constantFrom(...networks),
    amountUnits: count,
    lane: fc.constantFrom('sdk', 'manual'),
    metadata: fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()),
    createdAt: moment,
    minutes: fc.integer({ min: 5, max: 60 }),
    amountReceivedUnits: count,
    paymentsCount: fc.constantFrom(0, 0, 0, 3),
    labels: fc.option(fc.array(fc.constantFrom('late', 'underpaid')), { nil: null }),
    succeededAt: optional,
    canceledAt: optional,
    expiredAt: optional,
  })
  .map(
    ({ network, minutes, ...row }) =>
      ({
        ...row,
        merchantId: row.id,
        network: network.id,
        mode: network.mode,
        expectedWallet: network.usdcAddress,
        expiresAt: new Date(row.createdAt.getTime() + minutes * 60_000),
        clientSecretVersion: 1,
        eventCount: 0,
      }) as unknown as PaymentIntentRow,
  );

test('the text of a row is that of its message', () => {
  fc.assert(
    fc.property(rows, (row) => {
      expect(paymentIntentText(row, [])).toBe(codec.encode(presentPaymentIntent(row, [])));
    }),
    { numRuns: 1_000 },
  );
});

test.each([
  ['a status', { status: 'refunded' }],
  ['a lane', { lane: 'wire' }],
  ['a network', { network: 99 }],
  ['a mode', { mode: 'devnet' }],
])('%s that only a newer version knows is not shown as another', (_, change) => {
  const [row] = fc.sample(rows, 1);
  expect(() => paymentIntentText({ ...row, ...change } as PaymentIntentRow, [])).toThrow(
    /newer than this process/,
  );
});
