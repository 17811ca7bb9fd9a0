import type { EntityManager } from '@mikro-orm/postgresql';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { type Condition, pageOfScanned, scannedRows, Values } from '../database/scanned-page.ts';
import type { Identity } from '../requests/request-context.ts';
import { type CursorLimits, type EventCursor, limitColumns, limitsOf } from './event-cursor.ts';
import { newestEpoch } from './event-epochs.ts';

export interface EventFilter {
  type: string;
  /** UUID of an intent. */
  paymentIntent: string | undefined;
  /** UUID of a refund. */
  refund: string | undefined;
}

export interface EventPage {
  /** In order of their position. */
  rows: EventRow[];
  /** Where the next page begins; undefined on the last page. */
  next: EventCursor | undefined;
  /** Those of the cursor before the page; undefined if it is empty. */
  limits: CursorLimits | undefined;
}

/** Each event of a merchant and mode behind a cursor, up to another one. */
export interface EventsBehind {
  /** In order of their position. */
  rows: EventRow[];
  /** Where they end. */
  end: EventCursor;
  limits: CursorLimits;
}

export interface EventReader {
  /** Returns an event of this merchant and mode; undefined if there is none or it has no position yet. */
  find(id: string, identity: Identity): Promise<EventRow | undefined>;
  /** Returns at most `size` events of a merchant and mode behind a cursor. */
  page(identity: Identity, filter: EventFilter, after: EventCursor, size: number): Promise<EventPage>;
  /** Returns at most `size` events behind a cursor. If they are fewer, they end at the newest event of all merchants. */
  behind(identity: Identity, after: EventCursor, size: number): Promise<EventsBehind>;
}

/** A result of `pg`, whose numbers of 64 bits are text. */
interface ListedRow {
  [column: string]: unknown;
  position: string;
  epoch: string;
  matches: boolean;
  is_last_scanned: boolean;
}

export function createEventReader(em: EntityManager): EventReader {
  const columns = entityColumns<EventRow>(em, EventEntity);
  const listed = `${columns.of('e')}, ${newestEpoch} as epoch, ${limitColumns('$5')}`;
  const { read } = createPreparedStatements(em);
  const findOne = preparedStatement(
    'find_event',
    `select ${columns.of('e')} from events e
      where e.id = $1 and e.merchant_id = $2 and e.mode = $3 and e.position is not null`,
  );
  const inRange = 'e.merchant_id = $1 and e.mode = $2 and e.position > $3';
  const statement = (where: string, order: string) =>
    preparedStatement(
      'list_events',
      `select ${listed} from events e where ${where} order by ${order} limit $4`,
    );
  const listAll = statement(inRange, 'e.position');
  const listOf = ({ type, paymentIntent, refund }: EventFilter) => {
    const values = new Values(...Array.from({ length: 5 }));
    const of = values.and([['e.type = ?', type === '' ? undefined : type]]) || 'true';
    const where = `${inRange} and ${of}`;
    // Within an intent or a refund, the sequence has the same order and is in its index. The other index would scan all
    // events.
    const ofSubject = (...conditions: Condition[]) =>
      `select e.* from events e where ${where} and ${values.and(conditions)} order by e.sequence limit $4`;
    const ofRefunds = (intent: string) =>
      `select e.* from refunds r join events e on e.refund = r.id
        where ${where} and ${values.and([['r.merchant_id = e.merchant_id and r.payment_intent = ?', intent]])}
        order by e.position limit $4`;
    const isOfIntent = 'exists (select from refunds r where r.id = e.refund and r.payment_intent = ?)';
    const queries =
      refund !== undefined
        ? [ofSubject(['e.refund = ?', refund], [isOfIntent, paymentIntent])]
        : [ofSubject(['e.payment_intent = ?', paymentIntent]), ofRefunds(paymentIntent ?? '')];
    const from = queries.map((query) => `(${query})`).join(' union all ');
    const text = `select ${listed} from (${from}) e order by e.position limit $4`;
    return { statement: preparedStatement('list_events_of', text), values: values.list.slice(5) };
  };
  const listBehind = preparedStatement(
    'list_events_behind',
    `select ${listed}, p.last_position
       from event_progress p
       left join lateral (select * from events e where ${inRange} order by e.position limit $4) e on true
      order by e.position`,
  );
  const scan = { table: 'events', alias: 'e', range: inRange, order: 'e.position', matching: 'e.type = $6' };
  const listOfType = preparedStatement(
    'list_events_of_type',
    `select ${listed}, e.matches, e.is_last_scanned from ${scannedRows(scan)} order by e.position limit $4`,
  );
  const pageOf = (rows: ListedRow[], last: ListedRow | undefined): EventPage => ({
    rows: rows.map(columns.read),
    next: last && { epoch: BigInt(last.epoch), position: BigInt(last.position) },
    limits: rows[0] && limitsOf(rows[0]),
  });

  const rangeOf = (merchantId: string, mode: string, { position, epoch }: EventCursor, limit: number) => [
    merchantId,
    mode,
    String(position),
    limit,
    String(epoch),
  ];

  return {
    async find(id, { merchantId, mode }) {
      const { rows } = await read(merchantId, findOne, [id, merchantId, mode]);
      return rows[0] && columns.read(rows[0]);
    },
    async page({ merchantId, mode }, filter, after, size) {
      const list = async (
        statement: typeof listAll,
        limit: number,
        ...more: unknown[]
      ): Promise<ListedRow[]> =>
        (await read(merchantId, statement, [...rangeOf(merchantId, mode, after, limit), ...more])).rows;
      const isOfSubject = filter.paymentIntent !== undefined || filter.refund !== undefined;
      if (!isOfSubject && filter.type !== '') {
        const { rows, next } = pageOfScanned(await list(listOfType, size + 2, filter.type), size);
        return pageOf(rows, next);
      }
      const { statement, values } = isOfSubject ? listOf(filter) : { statement: listAll, values: [] };
      const found = await list(statement, size + 1, ...values);
      return pageOf(found.slice(0, size), found.length > size ? found[size - 1] : undefined);
    },
    async behind({ merchantId, mode }, after, size) {
      const { rows } = await read(merchantId, listBehind, rangeOf(merchantId, mode, after, size));
      // Without events there is one row, of the progress alone.
      const [first] = rows;
      const found: ListedRow[] = rows.filter(({ position }) => position !== null);
      const position = found.length < size ? first?.last_position : found.at(-1)?.position;
      return {
        rows: found.map(columns.read),
        end: { epoch: BigInt(first?.epoch), position: BigInt(position) },
        limits: limitsOf(first as ListedRow),
      };
    },
  };
}
