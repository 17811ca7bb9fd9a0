import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type Checkout, CheckoutSchema } from '../contract/gen/payments/v1/checkout_pb.ts';
import type { GetCheckoutRequest } from '../contract/gen/payments/v1/checkout_service_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { type Batcher, createBatcher, waitingReads } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { presentPaymentIntent } from '../payment-intents/payment-intent.ts';
import { createPaymentsReader } from '../payment-intents/payments.ts';
import { plainRefusal } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import { openedIntentOf } from '../requests/request-context.ts';

/** Open checkouts ask every few seconds: those that ask while the statements in flight last share the next one. */
const slots = 2;
const maxBatchSize = 256;

/** `GetCheckout`: what a payer may know of the intent that the client secret opens. */
export function getCheckout(em: EntityManager): Method<GetCheckoutRequest, Checkout> {
  const checkouts = createCheckoutReader(em);
  return {
    ratePolicy: 'checkout',
    async run(_, { values }) {
      const checkout = await checkouts.add(openedIntentOf(values).id);
      // A secret that we have made, of an intent that was never stored.
      if (checkout === undefined) throw plainRefusal('client_secret_invalid');
      return checkout;
    },
  };
}

/** Reads checkouts by the UUIDs of their intents. */
function createCheckoutReader(em: EntityManager): Batcher<string, Checkout | undefined> {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const { run } = createPreparedStatements(em);
  const readPayments = createPaymentsReader(em);
  const find = preparedStatement(
    'find_checkouts',
    `select ${columns.of('i')}, m.name as merchant_name, s.allowed_origins
       from unnest($1::uuid[]) as wanted (id)
       join payment_intents i on i.id = wanted.id
       join merchants m on m.id = i.merchant_id
       left join checkout_settings s on s.merchant_id = i.merchant_id and s.mode = i.mode::text`,
  );
  return createBatcher({
    slots,
    maxBatchSize,
    ...waitingReads,
    run: (ids) =>
      orUnavailable(async () => {
        const { rows } = await run(find, [[...new Set(ids)]]);
        const found = rows.map(({ merchant_name, allowed_origins, ...columnValues }) => ({
          merchantName: merchant_name as string,
          allowedOrigins: (allowed_origins ?? []) as string[],
          row: columns.read(columnValues),
        }));
        const payments = await readPayments(
          run,
          found.map(({ row }) => row),
        );
        const byId = new Map(
          found.map(({ row, ...merchant }) => [
            row.id,
            create(CheckoutSchema, { ...shownOf(row, payments.get(row.id) ?? []), ...merchant }),
          ]),
        );
        return ids.map((id) => byId.get(id)) as Checkout[];
      }),
  });
}

/** The fields of an intent that its payer may know: neither its metadata, nor its secret. */
function shownOf(row: PaymentIntentRow, payments: readonly Payment[]) {
  const intent = presentPaymentIntent(row, payments);
  return {
    id: intent.id,
    status: intent.status,
    mode: intent.mode,
    lane: intent.lane,
    chain: intent.chain,
    chainId: intent.chainId,
    confirmationsRequired: intent.confirmationsRequired,
    amountUnits: intent.amountUnits,
    decimals: intent.decimals,
    tokenSymbol: intent.tokenSymbol,
    tokenAddress: intent.tokenAddress,
    expectedWallet: intent.expectedWallet,
    amountReceivedUnits: intent.amountReceivedUnits ?? 0n,
    payments: intent.payments,
    paymentsCount: intent.paymentsCount ?? 0,
    labels: intent.labels,
    ...(intent.expiresAt && { expiresAt: intent.expiresAt }),
  };
}
