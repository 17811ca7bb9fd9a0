import type { EntityManager } from '@mikro-orm/postgresql';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { pageOfScanned, scannedRows } from '../database/scanned-page.ts';
import type { Identity } from '../requests/request-context.ts';
import type { EventCursor } from './event-cursor.ts';
import { newestEpoch } from './event-epochs.ts';

export interface EventFilter {
  type: string;
  /** UUID of an intent. */
  paymentIntent: string | undefined;
}

export interface EventPage {
  /** In order of their position. */
  rows: EventRow[];
  /** Where the next page begins; undefined on the last page. */
  next: EventCursor | undefined;
}

/** Each event of a merchant and mode behind a position, up to another one. */
export interface EventsBehind {
  /** In order of their position. */
  rows: EventRow[];
  /** Where they end, read by the same statement: another one may be sent to another host. */
  end: EventCursor;
}

export interface EventReader {
  /** Returns an event of this merchant and mode; undefined if there is none or it has no position yet. */
  find(id: string, identity: Identity): Promise<EventRow | undefined>;
  /** Returns at most `size` events of a merchant and mode after a position. */
  page(identity: Identity, filter: EventFilter, after: bigint, size: number): Promise<EventPage>;
  /** Returns at most `size` events behind a position. If they are fewer, they end at the newest event of all merchants. */
  behind(identity: Identity, after: bigint, size: number): Promise<EventsBehind>;
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
  const listed = `${columns.of('e')}, ${newestEpoch} as epoch`;
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
  // Within an intent, the sequence has the same order and is in the index by intent. The other index would scan all events.
  const listOfIntent = statement(`${inRange} and e.payment_intent = $5`, 'e.sequence');
  const listBehind = preparedStatement(
    'list_events_behind',
    `select ${columns.of('e')}, ${newestEpoch} as epoch, p.last_position
       from event_progress p
       left join lateral (select * from events e where ${inRange} order by e.position limit $4) e on true
      order by e.position`,
  );
  const scan = { table: 'events', alias: 'e', range: inRange, order: 'e.position', matching: 'e.type = $5' };
  const listOfType = preparedStatement(
    'list_events_of_type',
    `select ${listed}, e.matches, e.is_last_scanned from ${scannedRows(scan)} order by e.position limit $4`,
  );
  const listOfTypeAndIntent = statement(`${inRange} and e.type = $5 and e.payment_intent = $6`, 'e.sequence');
  const pageOf = (rows: ListedRow[], last: ListedRow | undefined): EventPage => ({
    rows: rows.map(columns.read),
    next: last && { epoch: BigInt(last.epoch), position: BigInt(last.position) },
  });

  return {
    async find(id, { merchantId, mode }) {
      const { rows } = await read(merchantId, findOne, [id, merchantId, mode]);
      return rows[0] && columns.read(rows[0]);
    },
    async page({ merchantId, mode }, { type, paymentIntent }, after, size) {
      const list = async (
        statement: typeof listAll,
        limit: number,
        ...more: unknown[]
      ): Promise<ListedRow[]> =>
        (await read(merchantId, statement, [merchantId, mode, String(after), limit, ...more])).rows;
      if (paymentIntent === undefined && type !== '') {
        const { rows, next } = pageOfScanned(await list(listOfType, size + 2, type), size);
        return pageOf(rows, next);
      }
      const found =
        paymentIntent === undefined
          ? await list(listAll, size + 1)
          : type === ''
            ? await list(listOfIntent, size + 1, paymentIntent)
            : await list(listOfTypeAndIntent, size + 1, type, paymentIntent);
      return pageOf(found.slice(0, size), found.length > size ? found[size - 1] : undefined);
    },
    async behind({ merchantId, mode }, after, size) {
      const { rows } = await read(merchantId, listBehind, [merchantId, mode, String(after), size]);
      // Without events there is one row, of the progress alone.
      const found: ListedRow[] = rows.filter(({ position }) => position !== null);
      const position = found.length < size ? rows[0]?.last_position : found.at(-1)?.position;
      return {
        rows: found.map(columns.read),
        end: { epoch: BigInt(rows[0]?.epoch), position: BigInt(position) },
      };
    },
  };
}
