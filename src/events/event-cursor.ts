// The position of a reader of events: that of an event, or one sent by a stream.

import type { EntityManager } from '@mikro-orm/postgresql';
import { parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { invalidBody, plainRefusal } from '../requests/errors.ts';
import { cursorOf, pageTokenOf } from '../requests/page-token.ts';
import type { Identity } from '../requests/request-context.ts';

const positionBytes = 8;

/** Formats a position as a page token or as a stream's `position`. */
export function positionToken(filter: readonly unknown[], position: bigint): string {
  const bytes = Buffer.alloc(positionBytes);
  bytes.writeBigInt64BE(position);
  return pageTokenOf(filter, bytes);
}

/** Parses a token. Throws `invalid_body` for `page_token` if it is not a token of this filter. */
export function positionOfToken(token: string, filter: readonly unknown[]): bigint {
  return cursorOf(token, filter, positionBytes).readBigInt64BE();
}

/** The filter that the positions of a merchant's stream belong to. */
export function streamFilter({ merchantId, mode }: Identity): readonly unknown[] {
  return ['stream', merchantId, mode];
}

export interface EventCursors {
  /**
   * Returns the position of an event. Throws `invalid_body` for `after` if the text is not an event's id,
   * `resource_missing` if the merchant has no such event in this mode, and `cursor_expired` if later events may have
   * been removed.
   */
  afterEvent(id: string, identity: Identity): Promise<bigint>;
  /** The same for a stream's `after`: an event's id, or the `position` of an earlier stream. */
  afterEventOrPosition(after: string, identity: Identity): Promise<bigint>;
  /**
   * Throws `cursor_expired` if events after this position may have been removed. Call it after reading them, so that a
   * concurrent removal is not missed.
   */
  assertKept(position: bigint): Promise<void>;
  /** The position of the newest event of all merchants. */
  last(): Promise<bigint>;
}

export function createEventCursors(em: EntityManager): EventCursors {
  const { run } = createPreparedStatements(em);
  return {
    async afterEvent(id, identity) {
      const uuid = parseIdentifier('evt', id);
      if (uuid === undefined) throw invalidBody([{ field: 'after', message: 'must be the id of an event' }]);
      const { rows } = await run(findCursor, [uuid, identity.merchantId, identity.mode]);
      const [row] = rows;
      if (row === undefined || row.position === null) {
        throw plainRefusal(row?.is_removed === true ? 'cursor_expired' : 'resource_missing');
      }
      if (BigInt(row.position) < BigInt(row.removed_position)) throw plainRefusal('cursor_expired');
      return BigInt(row.position);
    },
    async afterEventOrPosition(after, identity) {
      if (after.startsWith('evt_')) return this.afterEvent(after, identity);
      const position = streamPosition(after, identity);
      const { last, removed } = await findProgress(run);
      if (position > last) throw unknownPosition();
      if (position < removed) throw plainRefusal('cursor_expired');
      return position;
    },
    async assertKept(position) {
      if (position < (await findProgress(run)).removed) throw plainRefusal('cursor_expired');
    },
    last: async () => (await findProgress(run)).last,
  };
}

function streamPosition(text: string, identity: Identity): bigint {
  try {
    return positionOfToken(text, streamFilter(identity));
  } catch {
    throw unknownPosition();
  }
}

function unknownPosition() {
  return invalidBody([
    { field: 'after', message: 'must be the id of an event, or the position of a message of your stream' },
  ]);
}

async function findProgress(run: RunPrepared): Promise<{ last: bigint; removed: bigint }> {
  const { rows } = await run(findProgressStatement, []);
  return { last: BigInt(rows[0]?.last_position), removed: BigInt(rows[0]?.removed_position) };
}

const findProgressStatement = preparedStatement(
  'find_event_progress',
  'select last_position, removed_position from event_progress',
);

/** Returns one row if the event exists or was removed. */
const findCursor = preparedStatement(
  'find_event_cursor',
  `select e.position, p.removed_position, false as is_removed
     from events e, event_progress p where e.id = $1 and e.merchant_id = $2 and e.mode = $3
   union all
   select null, null, true from removed_events r where r.id = $1 and r.merchant_id = $2 and r.mode = $3`,
);
