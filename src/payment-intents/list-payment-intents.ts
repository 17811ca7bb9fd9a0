import { create } from '@bufbuild/protobuf';
import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { chainOf, networks } from '../contract/chains.ts';
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
import {
  type LaneName,
  PaymentIntentEntity,
  type PaymentIntentRow,
  type StatusName,
} from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import { isIdempotencyKey } from '../requests/idempotency-key.ts';
import type { Method } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { type Identity, identityOf, requestContextOf } from '../requests/request-context.ts';
import { presentPaymentIntent, statusNameOf } from './payment-intent.ts';
import { paymentIntentText, type ShownColumns, shownColumns } from './payment-intent-text.ts';
import type { PaymentIntentReader } from './reader.ts';

const intentCodec = createJsonCodec(PaymentIntentSchema);

/** Most intents that one page looks through for those that match: some tens of milliseconds. */
const maxScanned = 10_000;

/** `ListPaymentIntents`: newest first. An id contains its time, so the pages go down the merchant's ids. */
export function listPaymentIntents(
  em: EntityManager,
  reader: PaymentIntentReader,
): Method<ListPaymentIntentsRequest, ListPaymentIntentsResponse> {
  const readPage = createPageReader(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);

  /** By way of rows and messages. */
  const present = async (found: readonly ShownColumns[]): Promise<PaymentIntent[]> => {
    const rows = found.map((row) => columns.read(row));
    const payments = await reader.paymentsOf(rows);
    return rows.map((row) => presentPaymentIntent(row, payments.get(row.id) ?? []));
  };

  /** Straight to JSON, but for those that take more. */
  const write = async (found: readonly ShownColumns[]): Promise<string> => {
    const texts = found.map((row) => paymentIntentText(row));
    const others = await present(found.filter((_, i) => texts[i] === undefined));
    return texts.map((text) => text ?? intentCodec.encode(others.shift() as PaymentIntent)).join(',');
  };

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
        return encodedAs(
          create(ListPaymentIntentsResponseSchema),
          `{"payment_intents":[${await write(rows)}]${end}}`,
        );
      }
      return create(ListPaymentIntentsResponseSchema, {
        paymentIntents: await present(rows),
        nextPageToken,
      });
    },
  };
}

interface Filter {
  status: StatusName | undefined;
  chain: Chain;
  lane: LaneName | undefined;
  idempotencyKey: string;
  createdFromMs: number | undefined;
  createdBeforeMs: number | undefined;
}

const laneNameOf = new Map<Lane, LaneName>([
  [Lane.SDK, 'sdk'],
  [Lane.MANUAL, 'manual'],
]);

function filterOf(request: ListPaymentIntentsRequest): Filter {
  return {
    status: statusNameOf(request.status),
    chain: request.chain,
    lane: laneNameOf.get(request.lane),
    idempotencyKey: request.idempotencyKey,
    createdFromMs: wholeMs(request.createdFrom),
    createdBeforeMs: wholeMs(request.createdBefore),
  };
}

/** Rounded up, as both bounds have it: an intent is created at a whole millisecond. */
function wholeMs(moment: Timestamp | undefined): number | undefined {
  if (moment === undefined) return undefined;
  return timestampMs(moment) + (moment.nanos % 1_000_000 > 0 ? 1 : 0);
}

function violationsOf(request: ListPaymentIntentsRequest): FieldViolation[] {
  const violations = [...unknownFieldViolations(request), ...pageSizeViolations(request.pageSize)];
  if (request.status !== PaymentIntentStatus.UNSPECIFIED && statusNameOf(request.status) === undefined) {
    violations.push({ field: 'status', message: 'must be a status of the contract' });
  }
  if (request.chain !== Chain.UNSPECIFIED && !Object.values<Chain>(chainOf).includes(request.chain)) {
    violations.push({ field: 'chain', message: 'must be "base" or "polygon"' });
  }
  for (const [field, moment] of [
    ['created_from', request.createdFrom],
    ['created_before', request.createdBefore],
  ] as const) {
    if (moment !== undefined && !isMoment(moment)) {
      violations.push({ field, message: 'must be a date and time of the years 1 to 9999' });
    }
  }
  const { idempotencyKey } = request;
  if (idempotencyKey !== '' && !isIdempotencyKey(idempotencyKey)) {
    violations.push({ field: 'idempotency_key', message: 'must be 1 to 255 visible ASCII characters' });
  }
  if (request.lane !== Lane.UNSPECIFIED && !laneNameOf.has(request.lane)) {
    violations.push({ field: 'lane', message: 'must be "sdk" or "manual"' });
  }
  return violations;
}

const minSeconds = BigInt(Date.parse('0001-01-01T00:00:00Z')) / 1000n;
const maxSeconds = BigInt(Date.parse('9999-12-31T23:59:59Z')) / 1000n;

/** True for a `google.protobuf.Timestamp` as its definition has it: a binary one may hold anything. */
function isMoment({ seconds, nanos }: Timestamp): boolean {
  return seconds >= minSeconds && seconds <= maxSeconds && nanos >= 0 && nanos < 1_000_000_000;
}

interface Page {
  rows: ShownColumns[];
  /** The id below which the next page begins, unless this is the last one. */
  next: string | undefined;
}

function createPageReader(em: EntityManager) {
  const columns = shownColumns('i');
  const { run } = createPreparedStatements(em);
  const list = async (query: Query, limit: number, lowest?: string): Promise<ShownColumns[]> => {
    const values = [...query.rangeValues];
    const and = (condition: string, value: unknown) =>
      ` and ${condition.replace('?', `$${values.push(value)}`)}`;
    const range = query.range + (lowest === undefined ? '' : and('i.id >= ?', lowest));
    // Down to a fixed id there is no limit: intents that were created meanwhile would push others out at its end.
    const limitScanned = lowest === undefined ? ` limit ${maxScanned}` : '';
    const scanned = `select * from payment_intents i where ${range} order by i.id desc${limitScanned}`;
    const matching = query.conditions.map(([condition, value]) => and(condition, value)).join('');
    const from =
      matching === '' ? `payment_intents i where ${range}` : `(${scanned}) i where true${matching}`;
    const text = `select ${columns} from ${from} order by i.id desc limit $${values.push(limit)}`;
    const { rows } = await run(preparedStatement('list_payment_intents', text), values);
    return rows;
  };
  const findLastScanned = async ({ range, rangeValues }: Query): Promise<string | undefined> => {
    const text = `select i.id from payment_intents i where ${range} order by i.id desc offset ${maxScanned - 1} limit 1`;
    const { rows } = await run(preparedStatement('last_scanned_payment_intent', text), [...rangeValues]);
    return rows[0]?.id;
  };

  return (identity: Identity, filter: Filter, below: string | undefined, size: number): Promise<Page> =>
    orUnavailable(async () => {
      const query = queryOf(identity, filter, below);
      const found = await list(query, size + 1);
      if (found.length > size) return pageOf(found, size, undefined);
      const lowest = query.conditions.length === 0 ? undefined : await findLastScanned(query);
      if (lowest === undefined) return { rows: found, next: undefined };
      // There is more to look through. Asked again down to a fixed id, so that what has been committed since then comes
      // on this page or on a later one, and never on both.
      return pageOf(await list(query, size + 1, lowest), size, lowest);
    });
}

/** `lowest`: how far down was looked, if there may be more below. */
function pageOf(found: ShownColumns[], size: number, lowest: string | undefined): Page {
  const rows = found.slice(0, size);
  return { rows, next: found.length > size ? (rows.at(-1)?.id as string) : lowest };
}

interface Query {
  /** What the index finds. */
  range: string;
  rangeValues: readonly unknown[];
  /** What has to hold besides, with a `?` for its value. */
  conditions: readonly (readonly [condition: string, value: unknown])[];
}

function queryOf(identity: Identity, filter: Filter, below: string | undefined): Query {
  const rangeValues: unknown[] = [identity.merchantId, identity.mode];
  let range = 'i.merchant_id = $1 and i.mode = $2';
  const and = (condition: string, value: unknown) => {
    if (value !== undefined) range += ` and ${condition} $${rangeValues.push(value)}`;
  };
  and('i.id <', below);
  and('i.id <', filter.createdBeforeMs === undefined ? undefined : lowestUuid(filter.createdBeforeMs));
  and('i.id >=', filter.createdFromMs === undefined ? undefined : lowestUuid(filter.createdFromMs));
  and('i.idempotency_key =', filter.idempotencyKey === '' ? undefined : filter.idempotencyKey);
  const conditions: [string, unknown][] = [];
  if (filter.status !== undefined) conditions.push(['i.status = ?::payment_intent_status', filter.status]);
  if (filter.lane !== undefined) conditions.push(['i.lane = ?::payment_lane', filter.lane]);
  if (filter.chain !== Chain.UNSPECIFIED) {
    conditions.push(['i.network = any (?::smallint[])', networkIdsOf(filter.chain)]);
  }
  return { range, rangeValues, conditions };
}

function networkIdsOf(chain: Chain): number[] {
  return networks.filter((network) => chainOf[network.chain] === chain).map(({ id }) => id);
}
