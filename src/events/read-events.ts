import type { EntityManager } from '@mikro-orm/postgresql';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, type PreparedStatement, preparedStatement } from '../database/prepared.ts';
import { type Condition, pageOfScanned, scannedRows, Values } from '../database/scanned-page.ts';
import type { Identity } from '../requests/request-context.ts';
import { type EventCursor, limitColumns, limitsOf } from './event-cursor.ts';
import { newestEpoch } from './event-epochs.ts';

interface EventFilter {
  type: string;
  /** UUID of an intent. */
  paymentIntent: string | undefined;
  /** UUID of a refund. */
  refund: string | undefined;
}

export type EventReader = ReturnType<typeof createEventReader>;

/** A result of `pg`, whose numbers of 64 bits are text. */
interface ListedRow {
  [column: string]: unknown;
  position: string;
  epoch: string;
  matches: boolean;
  is_last_scanned: boolean;
}

export function createEventReader(em: EntityManager) {
  const columns = entityColumns<EventRow>(em, EventEntity);
  const listed = `${columns.of('e')}, ${newestEpoch} as epoch, ${limitColumns('$5')}`;
  const { read } = createPreparedStatements(em);
  const findOne = preparedStatement(
    'find_event',
    `select ${columns.of('e')} from events e
      where e.id = $1 and e.merchant_id = $2 and e.mode = $3 and e.position is not null`,
  );
  const inRange = 'e.merchant_id = $1 and e.mode = $2 and e.position > $3';
  const listAll = preparedStatement(
    'list_events',
    `select ${listed} from events e where ${inRange} order by e.position limit $4`,
  );
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
  const pageOf = (rows: ListedRow[], last: ListedRow | undefined) => ({
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
    /** Returns an event of this merchant and mode; undefined if there is none or it has no position yet. */
    async find(id: string, { merchantId, mode }: Identity): Promise<EventRow | undefined> {
      const { rows } = await read(merchantId, findOne, [id, merchantId, mode]);
      return rows[0] && columns.read(rows[0]);
    },
    /**
     * Returns at most `size` events of a merchant and mode behind a cursor, in order of their position. `next` is where
     * the next page begins; `limits` are those of the cursor, undefined if the page is empty.
     */
    async page({ merchantId, mode }: Identity, filter: EventFilter, after: EventCursor, size: number) {
      const list = async (statement: PreparedStatement, limit: number, ...more: unknown[]) => {
        const values = [...rangeOf(merchantId, mode, after, limit), ...more];
        return (await read(merchantId, statement, values)).rows as ListedRow[];
      };
      const isOfSubject = filter.paymentIntent !== undefined || filter.refund !== undefined;
      if (!isOfSubject && filter.type !== '') {
        const { rows, next } = pageOfScanned(await list(listOfType, size + 2, filter.type), size);
        return pageOf(rows, next);
      }
      const { statement, values } = isOfSubject ? listOf(filter) : { statement: listAll, values: [] };
      const found = await list(statement, size + 1, ...values);
      return pageOf(found.slice(0, size), found.length > size ? found[size - 1] : undefined);
    },
    /** The same without a filter, and where they end: if they are fewer, at the newest event of all merchants. */
    async behind({ merchantId, mode }: Identity, after: EventCursor, size: number) {
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
