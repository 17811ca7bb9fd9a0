import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { Batcher } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, jsonOfRows, preparedStatement } from '../database/prepared.ts';
import { ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import { chargeRows } from '../requests/row-cost.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import { createTransfersReader, maxPayments } from './payments.ts';

/** `GetPaymentIntent`: the current state of the intent. */
export function getPaymentIntent(
  reader: PaymentIntentReader,
  clientSecretKeys: KeyRing,
): MethodsOf<typeof PaymentIntentService>['getPaymentIntent'] {
  return {
    ratePolicy: 'reads',
    async run(request, identity, { context }) {
      const row = await reader.find(request.id, identity, context);
      // Strangers decide how many there are.
      chargeRows(context, Math.min(row.paymentsCount, maxPayments));
      return presentPaymentIntent(row, await reader.paymentsOf(row), clientSecretKeys);
    },
  };
}

/** Concurrent statements that retrieve intents by id. */
const slots = 4;
const maxBatchSize = 128;

type IntentKey = Pick<PaymentIntentRow, 'id' | 'merchantId' | 'mode'>;

const keyOf = ({ id, merchantId, mode }: IntentKey) => `${id} ${merchantId} ${mode}`;

export type PaymentIntentReader = ReturnType<typeof createPaymentIntentReader>;

/** Retrieves intents by id. Concurrent requests share a statement. */
export function createPaymentIntentReader(em: EntityManager) {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createTransfersReader(em, 'payment_intent');
  // Each id is looked up separately: a join planned while the table was small, and kept until its statistics are
  // renewed, would read millions of rows for every batch.
  const find = preparedStatement(
    'find_payment_intents',
    `select ${columns.of('i')}
       from json_to_recordset($1) as wanted (id uuid, "merchantId" uuid, mode payment_mode)
      cross join lateral
            (select * from payment_intents i
              where i.id = wanted.id and i.merchant_id = wanted."merchantId" and i.mode = wanted.mode limit 1) i`,
  );
  const intents = new Batcher<IntentKey, PaymentIntentRow | undefined>({
    slots,
    maxBatchSize,
    async run(batch) {
      const { rows } = await run(find, [jsonOfRows(batch)]);
      const found = new Map(rows.map(columns.read).map((row) => [keyOf(row), row]));
      return batch.map((key) => found.get(keyOf(key)));
    },
  });
  return {
    /** Returns the intent, noted for the log. The same `resource_missing` for a malformed id, an unknown or another's. */
    async find(
      publicId: string,
      { merchantId, mode }: Identity,
      context: RequestContext,
    ): Promise<PaymentIntentRow> {
      const id = parseIdentifier('pi', publicId);
      if (id !== undefined) context.paymentIntent = publicId;
      const found = id === undefined ? undefined : await intents.add({ id, merchantId, mode });
      if (found === undefined) throw new ServiceError('resource_missing');
      return found;
    },
    /** Returns the payments of an intent. */
    async paymentsOf(row: PaymentIntentRow): Promise<Payment[]> {
      return (await readPayments(run, [row])).get(row.id) ?? [];
    },
  };
}
