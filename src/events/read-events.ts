// Reads a merchant's events from a cursor on: after an event, or at a position from a stream or a page token.

import type { EntityManager } from '@mikro-orm/postgresql';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, type PreparedStatement, preparedStatement } from '../database/prepared.ts';
import { type Condition, pageOfScanned, scannedRows, scanning, Values } from '../database/scanned-page.ts';
import { invalidField, ServiceError } from '../requests/errors.ts';
import { cursorOf, pageTokenOf } from '../requests/page-token.ts';
import type { Identity } from '../requests/request-context.ts';
import { firstEpoch, newestEpoch, validUpTo } from './event-epochs.ts';

/** A position, and the epoch in which the reader got it. */
export type EventCursor = { epoch: bigint; position: bigint };

/** Which cursors of an epoch are valid, according to the database. */
interface CursorLimits {
  /** The highest valid position. */
  validUpTo: bigint;
  /** The highest position of an event that retention has removed. */
  removed: bigint;
}

/** SQL for the limits, to be read together with the events: a second statement may go to another host. */
const limitColumns = (epoch: string) =>
  `${validUpTo(epoch)} as valid_up_to, (select removed_position from event_progress) as removed_position`;

/** Reads the columns of `limitColumns`. */
const limitsOf = (row: Record<string, unknown>): CursorLimits => ({
  validUpTo: BigInt(row.valid_up_to as string),
  removed: BigInt(row.removed_position as string),
});

/** The cursor before all events. */
export const beforeAll: EventCursor = { epoch: firstEpoch, position: 0n };

const wordBytes = 8;

/** Formats a cursor as a page token or as a stream's `position`. The first epoch is omitted. */
export function cursorToken(filter: readonly unknown[], { epoch, position }: EventCursor): string {
  const bytes = Buffer.alloc(epoch === firstEpoch ? wordBytes : 2 * wordBytes);
  bytes.writeBigInt64BE(position);
  if (epoch !== firstEpoch) bytes.writeBigInt64BE(epoch, wordBytes);
  return pageTokenOf(filter, bytes);
}

/** Parses a token. Throws `invalid_body` for `page_token` if it is not a token of this filter. */
export function cursorOfToken(token: string, filter: readonly unknown[]): EventCursor {
  const bytes = cursorOf(token, filter, wordBytes, 2 * wordBytes);
  return {
    position: bytes.readBigInt64BE(),
    epoch: bytes.length === wordBytes ? firstEpoch : bytes.readBigInt64BE(wordBytes),
  };
}

/** The filter that the positions of a merchant's stream belong to. */
export function streamFilter({ merchantId, mode }: Identity): readonly unknown[] {
  return ['stream', merchantId, mode];
}

/**
 * A cursor expires if retention has removed events after it, or if the database has lost events before it.
 * Both are `cursor_expired`. In the second case, a reader that continues after `resumeAfter` misses nothing.
 */
export type EventCursors = ReturnType<typeof createEventCursors>;

export function createEventCursors(em: EntityManager) {
  const { run } = createPreparedStatements(em);

  /** Returns the refusal of a lost cursor. `position` is the last one of its epoch that is still valid. */
  const lost = async (position: bigint, { merchantId, mode }: Identity) => {
    const [last] = (await run(findLastEvent, [merchantId, mode, String(position)])).rows;
    return new ServiceError('cursor_expired', {
      message: lostMessage,
      ...(last !== undefined && { resumeAfter: formatIdentifier('evt', last.id) }),
    });
  };
  const limitsNow = async ({ epoch }: EventCursor) => {
    const { rows } = await run(findLimits, [String(epoch)]);
    return limitsOf(rows[0] as Record<string, unknown>);
  };

  return {
    /**
     * Returns the cursor after an event. Throws `invalid_body` for `after` if the text is not an event's id,
     * `resource_missing` if the merchant has no such event in this mode, and `cursor_expired`.
     */
    async afterEvent(id: string, identity: Identity): Promise<EventCursor> {
      const uuid = parseIdentifier('evt', id);
      if (uuid === undefined) throw invalidField('after', 'must be the id of an event');
      const [row] = (await run(findCursor, [uuid, identity.merchantId, identity.mode])).rows;
      if (row === undefined) {
        const { rows: epochs } = await run(findEpochAfter, [uuid]);
        if (epochs[0] === undefined) throw new ServiceError('resource_missing');
        // Later events were removed by retention, so this one may have been removed, too, rather than lost.
        if (epochs[0].may_be_removed) throw new ServiceError('cursor_expired');
        throw await lost(BigInt(epochs[0].begins_after), identity);
      }
      if (row.is_removed) throw new ServiceError('cursor_expired');
      if (row.position === null) throw new ServiceError('resource_missing');
      const cursor = { epoch: BigInt(row.epoch), position: BigInt(row.position) };
      if (cursor.position < BigInt(row.removed_position)) throw new ServiceError('cursor_expired');
      return cursor;
    },
    /** The same for a stream's `after`: an event's id, or the `position` of an earlier stream. */
    async afterEventOrPosition(after: string, identity: Identity): Promise<EventCursor> {
      if (after.startsWith('evt_')) return this.afterEvent(after, identity);
      const cursor = streamPosition(after, identity);
      await this.assertKept(cursor, identity);
      return cursor;
    },
    /** Throws `cursor_expired` if the cursor is outside the limits. Reads the limits if none are given. */
    async assertKept(cursor: EventCursor, identity: Identity, limits?: CursorLimits): Promise<void> {
      const known = limits ?? (await limitsNow(cursor));
      await this.assertNotLost(cursor, identity, known);
      if (cursor.position < known.removed) throw new ServiceError('cursor_expired');
    },
    /** Throws `cursor_expired` for lost events only: the next page of a list may skip removed events. */
    async assertNotLost(cursor: EventCursor, identity: Identity, limits?: CursorLimits): Promise<void> {
      const known = limits ?? (await limitsNow(cursor));
      if (cursor.position > known.validUpTo) throw await lost(known.validUpTo, identity);
    },
    /** Returns the cursor after the newest event of all merchants. */
    async last(): Promise<EventCursor> {
      const { rows } = await run(findLast, []);
      return { epoch: BigInt(rows[0]?.epoch), position: BigInt(rows[0]?.last_position) };
    },
  };
}

const lostMessage =
  'The database lost events in a failover, or was restored from a backup. Begin after the event in resume_after, or without after if there is none, and then retrieve what you follow: you will see some events again.';

function streamPosition(text: string, identity: Identity): EventCursor {
  try {
    return cursorOfToken(text, streamFilter(identity));
  } catch {
    throw invalidField('after', 'must be the id of an event, or the position of a message of your stream');
  }
}

const findLast = preparedStatement(
  'find_last_position',
  `select ${newestEpoch} as epoch, last_position from event_progress`,
);

const findLimits = preparedStatement('find_cursor_limits', `select ${limitColumns('$1')}`);

/** Returns one row if the event exists or was removed. */
const findCursor = preparedStatement(
  'find_event_cursor',
  `select e.position, ${newestEpoch} as epoch, p.removed_position, false as is_removed
     from events e, event_progress p where e.id = $1 and e.merchant_id = $2 and e.mode = $3
   union all
   select null, null, null, true from removed_events r where r.id = $1 and r.merchant_id = $2 and r.mode = $3`,
);

/** The first epoch after the time in an event's id. An unknown event may have been lost when it began. */
const findEpochAfter = preparedStatement(
  'find_epoch_after_event',
  `select begins_after, exists (select from removed_events where id > $1) as may_be_removed from event_epochs
    where id <> ${firstEpoch} and begins_at > to_timestamp(('x' || left(replace($1::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
    order by number limit 1`,
);

const findLastEvent = preparedStatement(
  'find_last_event',
  `select id from events where merchant_id = $1 and mode = $2 and position <= $3 order by position desc limit 1`,
);

interface EventFilter {
  type: string;
  /** UUID of an intent. */
  paymentIntent: string | undefined;
  /** UUID of a refund. */
  refund: string | undefined;
}

export type EventReader = ReturnType<typeof createEventReader>;

/** A row from `pg`, which returns 64-bit numbers as text. */
interface ListedRow {
  [column: string]: unknown;
  position: string;
  epoch: string;
  matches: boolean;
  is_last_scanned: boolean;
}

const inRange = 'e.merchant_id = $1 and e.mode = $2 and e.position > $3';
/** Ordered by the mode, too, so that only the index by merchant gives the order: see `firstRows`. */
const firstEvents = `(select * from events e
      where e.merchant_id = $1 and (e.mode, e.position) > ($2, $3) and (e.mode, e.position) <= ($2, ${2n ** 63n - 1n})
        and e.position is not null
      order by e.mode, e.position limit $4) e`;

/** The statement for the events of an intent or a refund, and its values after the range. */
function listOf(listed: string, { type, paymentIntent, refund }: EventFilter) {
  const values = new Values(...Array.from({ length: 5 }));
  const of = values.and([['e.type = ?', type === '' ? undefined : type]]) || 'true';
  const where = `${inRange} and ${of}`;
  // Within an intent or a refund, the sequence gives the same order and has an index. By position, all
  // events would be scanned.
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
  const listAll = preparedStatement(
    'list_events',
    `select ${listed} from ${firstEvents} order by e.position`,
  );
  const listBehind = preparedStatement(
    'list_events_behind',
    `select ${listed}, p.last_position
       from event_progress p
       left join lateral ${firstEvents} on true
      order by e.position`,
  );
  const keyed = { table: 'events', alias: 'e', key: 'position', isAscending: true };
  const scan = { ...keyed, range: inRange, matching: 'e.type = $6' };
  const listOfType = scanning(
    `select ${listed}, e.matches, e.is_last_scanned from ${scannedRows(scan)} order by e.key limit $4`,
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
     * Returns at most `size` events of a merchant and mode after a cursor, by position. `next` is the cursor
     * of the next page; `limits` are those of the cursor, undefined if the page is empty.
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
      const { statement, values } = isOfSubject ? listOf(listed, filter) : { statement: listAll, values: [] };
      const found = await list(statement, size + 1, ...values);
      return pageOf(found.slice(0, size), found.length > size ? found[size - 1] : undefined);
    },
    /** The same, unfiltered. `end` is after the last event, or after all merchants' if fewer than `size`. */
    async behind({ merchantId, mode }: Identity, after: EventCursor, size: number) {
      const { rows } = await read(merchantId, listBehind, rangeOf(merchantId, mode, after, size));
      // Without events there is one row, with only the columns of `event_progress`.
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
