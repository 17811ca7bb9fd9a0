import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { type PaymentIntent, PaymentIntentSchema } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import {
  type ListPaymentIntentsRequest,
  ListPaymentIntentsResponseSchema,
  type PaymentIntentService,
} from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { chainWords, laneWords, paymentIntentStatusWords } from '../contract/gen/words.ts';
import { createJsonCodec, encodedAs } from '../contract/json/json-codec.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements } from '../database/prepared.ts';
import { addressViolations, wordViolations } from '../requests/filters.ts';
import { isIdempotencyKey } from '../requests/idempotency-key.ts';
import type { MethodsOf } from '../requests/method.ts';
import { momentViolations } from '../requests/moments.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { chargedByRows, rowsOfText } from '../requests/row-cost.ts';
import { mapLargeInSlices } from '../scheduling/slices.ts';
import { searchedTextProblem } from './metadata-index.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import { createPaymentIntentPageReader, filtersOf } from './payment-intent-pages.ts';
import { parseShownColumns, paymentIntentText, type ShownColumns } from './payment-intent-text.ts';
import { createTransfersReader, maxPayments } from './payments.ts';

const intentCodec = createJsonCodec(PaymentIntentSchema);

/** `ListPaymentIntents`: newest first. An id begins with its time, so pages go down the merchant's ids. */
export function listPaymentIntents(
  em: EntityManager,
): MethodsOf<typeof PaymentIntentService>['listPaymentIntents'] {
  const readPage = createPaymentIntentPageReader(em);
  const readPayments = createTransfersReader(em, 'payment_intent');
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);

  /** Converts rows to messages. */
  const present = async (found: readonly ShownColumns[]): Promise<PaymentIntent[]> => {
    const rows = found.map((shown) => columns.read(parseShownColumns(shown)));
    const payments = await readPayments(run, rows);
    return mapLargeInSlices(
      rows,
      ({ id }) => 1 + (payments.get(id)?.length ?? 0),
      (row) => presentPaymentIntent(row, payments.get(row.id) ?? []),
    );
  };

  /** Writes JSON directly, except for intents that need a message. */
  const write = async (found: readonly ShownColumns[]): Promise<string> => {
    const texts = found.map((row) => paymentIntentText(row));
    const others = await mapLargeInSlices(
      await present(found.filter((_, i) => texts[i] === undefined)),
      ({ payments }) => 1 + payments.length,
      intentCodec.encode,
    );
    return texts.map((text) => text ?? others.shift()).join(',');
  };

  /** Requests that share a page share its text. */
  const texts = new WeakMap<readonly ShownColumns[], Promise<string>>();

  return {
    ratePolicy: 'reads',
    violations: violationsOf,
    async run(request, identity, { context }) {
      const token = ['payment_intents', identity.merchantId, identity.mode, filtersOf(request)];
      const below = uuidCursorOf(request.pageToken, token);
      const size = pageSizeOf(request.pageSize);
      const { rows, next } = await chargedByRows(
        context,
        size,
        () => readPage(identity, request, below, size),
        (page) => page.rows.reduce((sum, row) => sum + rowsOf(row), 0),
      );
      const nextPageToken = uuidPageTokenOf(token, next);
      if (context.door === 'public') {
        const end = nextPageToken === '' ? '' : `,"next_page_token":"${nextPageToken}"`;
        const text = texts.get(rows) ?? write(rows);
        texts.set(rows, text);
        return encodedAs(
          create(ListPaymentIntentsResponseSchema),
          `{"payment_intents":[${await text}]${end}}`,
        );
      }
      return create(ListPaymentIntentsResponseSchema, { paymentIntents: await present(rows), nextPageToken });
    },
  };
}

/** The rows that an intent counts as in the rate limit: one, or one for each payment shown or each 2 KiB of metadata. */
function rowsOf({ payments_count, metadata }: ShownColumns): number {
  return Math.max(1, Math.min(Number(payments_count), maxPayments), rowsOfText(metadata));
}

function violationsOf(request: ListPaymentIntentsRequest): FieldViolation[] {
  const { status, chain, lane, idempotencyKey, expectedWallet, metadataKey, metadataValue } = request;
  const { createdFrom: created_from, createdBefore: created_before } = request;
  const { succeededFrom: succeeded_from, succeededBefore: succeeded_before } = request;
  const violations = [
    ...pageSizeViolations(request.pageSize),
    ...wordViolations({
      status: [status, paymentIntentStatusWords],
      chain: [chain, chainWords],
      lane: [lane, laneWords],
    }),
    ...momentViolations({ created_from, created_before, succeeded_from, succeeded_before }),
    ...addressViolations({ expected_wallet: expectedWallet }),
  ];
  if (idempotencyKey !== '' && !isIdempotencyKey(idempotencyKey)) {
    violations.push({ field: 'idempotency_key', message: 'must be 1 to 255 visible ASCII characters' });
  }
  if (!/^[a-z_]{0,64}$/.test(request.label)) {
    violations.push({ field: 'label', message: 'must be a label, such as overpaid' });
  }
  if (metadataKey === '' && metadataValue !== '') {
    violations.push({ field: 'metadata_key', message: 'is required with metadata_value' });
  }
  for (const [field, text] of Object.entries({ metadata_key: metadataKey, metadata_value: metadataValue })) {
    const problem = metadataKey === '' ? undefined : searchedTextProblem(text);
    if (problem !== undefined) violations.push({ field, message: problem });
  }
  return violations;
}
