import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { chainOf } from '../contract/chains.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import {
  Chain,
  Lane,
  type PaymentIntent,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../contract/gen/payments/v1/payment_intent_pb.ts';
import {
  type ListPaymentIntentsRequest,
  type ListPaymentIntentsResponse,
  ListPaymentIntentsResponseSchema,
} from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { createJsonCodec, encodedAs } from '../contract/json/json-codec.ts';
import type { LaneName } from '../database/entities/payment-intent.ts';
import { refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import { isIdempotencyKey } from '../requests/idempotency-key.ts';
import type { Method } from '../requests/method.ts';
import { momentViolations, wholeMs } from '../requests/moments.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { identityOf, requestContextOf } from '../requests/request-context.ts';
import { presentPaymentIntent, statusNameOf } from './payment-intent.ts';
import { createPaymentIntentPageReader, type PaymentIntentFilter } from './payment-intent-pages.ts';
import { paymentIntentText, type ShownColumns } from './payment-intent-text.ts';
import type { PaymentIntentReader } from './reader.ts';

const intentCodec = createJsonCodec(PaymentIntentSchema);

/** `ListPaymentIntents`: newest first. An id begins with its time, so pages go down the merchant's ids. */
export function listPaymentIntents(
  em: EntityManager,
  reader: PaymentIntentReader,
): Method<ListPaymentIntentsRequest, ListPaymentIntentsResponse> {
  const readPage = createPaymentIntentPageReader(em);

  /** Converts rows to messages. */
  const present = async (found: readonly ShownColumns[]): Promise<PaymentIntent[]> => {
    const rows = found.map(reader.rowOf);
    const payments = await reader.paymentsOf(rows);
    return rows.map((row) => presentPaymentIntent(row, payments.get(row.id) ?? []));
  };

  /** Writes JSON directly, except for intents that need a message. */
  const write = async (found: readonly ShownColumns[]): Promise<string> => {
    const texts = found.map((row) => paymentIntentText(row));
    const others = await present(found.filter((_, i) => texts[i] === undefined));
    return texts.map((text) => text ?? intentCodec.encode(others.shift() as PaymentIntent)).join(',');
  };

  /** Requests that share a page share its text. */
  const texts = new WeakMap<readonly ShownColumns[], Promise<string>>();

  return {
    ratePolicy: 'reads',
    violations: (request) => violationsOf(request),
    async run(request, { values }) {
      refuseInvalid(violationsOf(request));
      const identity = identityOf(values);
      const filter = filterOf(request);
      const token = ['payment_intents', identity.merchantId, identity.mode, filter];
      const below = uuidCursorOf(request.pageToken, token);
      const { rows, next } = await readPage(identity, filter, below, pageSizeOf(request.pageSize));
      const nextPageToken = uuidPageTokenOf(token, next);
      if (requestContextOf(values).door === 'public') {
        const end = nextPageToken === '' ? '' : `,"next_page_token":"${nextPageToken}"`;
        const text = texts.get(rows) ?? write(rows);
        texts.set(rows, text);
        return encodedAs(
          create(ListPaymentIntentsResponseSchema),
          `{"payment_intents":[${await text}]${end}}`,
        );
      }
      return create(ListPaymentIntentsResponseSchema, {
        paymentIntents: await present(rows),
        nextPageToken,
      });
    },
  };
}

const laneNameOf = new Map<Lane, LaneName>([
  [Lane.SDK, 'sdk'],
  [Lane.MANUAL, 'manual'],
]);

function filterOf(request: ListPaymentIntentsRequest): PaymentIntentFilter {
  return {
    status: statusNameOf(request.status),
    chain: request.chain,
    lane: laneNameOf.get(request.lane),
    idempotencyKey: request.idempotencyKey,
    createdFromMs: wholeMs(request.createdFrom),
    createdBeforeMs: wholeMs(request.createdBefore),
  };
}

function violationsOf(request: ListPaymentIntentsRequest): FieldViolation[] {
  const violations = [...unknownFieldViolations(request), ...pageSizeViolations(request.pageSize)];
  if (request.status !== PaymentIntentStatus.UNSPECIFIED && statusNameOf(request.status) === undefined) {
    violations.push({ field: 'status', message: 'must be a status of the contract' });
  }
  if (request.chain !== Chain.UNSPECIFIED && !Object.values<Chain>(chainOf).includes(request.chain)) {
    violations.push({ field: 'chain', message: 'must be "base" or "polygon"' });
  }
  const { createdFrom: created_from, createdBefore: created_before } = request;
  violations.push(...momentViolations({ created_from, created_before }));
  const { idempotencyKey } = request;
  if (idempotencyKey !== '' && !isIdempotencyKey(idempotencyKey)) {
    violations.push({ field: 'idempotency_key', message: 'must be 1 to 255 visible ASCII characters' });
  }
  if (request.lane !== Lane.UNSPECIFIED && !laneNameOf.has(request.lane)) {
    violations.push({ field: 'lane', message: 'must be "sdk" or "manual"' });
  }
  return violations;
}
