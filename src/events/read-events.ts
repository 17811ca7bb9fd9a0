import type { EntityManager } from '@mikro-orm/postgresql';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import type { Identity } from '../requests/request-context.ts';

/** Most events that one page looks through for those of a type. */
const maxScanned = 10_000;

export interface EventFilter {
  type: string;
  /** UUID of an intent. */
  paymentIntent: string | undefined;
}

export interface EventPage {
  /** In order of their position. */
  rows: EventRow[];
  /** The position behind which the next page begins, unless this is the last one. */
  next: bigint | undefined;
}

export interface EventReader {
  /** Returns an event, or undefined if there is none of that merchant and mode, or it has no position yet. */
  find(id: string, identity: Identity): Promise<EventRow | undefined>;
  /** Returns at most `size` events of a merchant and mode behind a position. */
  page(identity: Identity, filter: EventFilter, after: bigint, size: number): Promise<EventPage>;
}

export function createEventReader(em: EntityManager): EventReader {
  const columns = entityColumns<EventRow>(em, EventEntity);
  const { run } = createPreparedStatements(em);
  const findOne = preparedStatement(
    'find_event',
    `select ${columns.of('e')} from events e
      where e.id = $1 and e.merchant_id = $2 and e.mode = $3 and e.position is not null`,
  );
  const inRange = 'e.merchant_id = $1 and e.mode = $2 and e.position > $3';
  const statement = (where: string, order: string) =>
    preparedStatement(
      'list_events',
      `select ${columns.of('e')} from events e where ${where} order by ${order} limit $4`,
    );
  const listAll = statement(inRange, 'e.position');
  // Within an intent the same order, and that of the index by intent: the other index leads through all events.
  const listOfIntent = statement(`${inRange} and e.payment_intent = $5`, 'e.sequence');
  const scanned = `(select * from events e where ${inRange} order by e.position limit ${maxScanned})`;
  const listOfType = preparedStatement(
    'list_events_of_type',
    `select ${columns.of('e')} from ${scanned} e where e.type = $5 order by e.position limit $4`,
  );
  const listOfTypeAndIntent = statement(`${inRange} and e.type = $5 and e.payment_intent = $6`, 'e.sequence');
  /** How far `listOfType` looks. Nothing is ever inserted before it, so the answer holds for both. */
  const findLastScanned = preparedStatement(
    'last_scanned_event',
    `select e.position from events e where ${inRange} order by e.position offset ${maxScanned - 1} limit 1`,
  );

  const pageOf = (found: EventRow[], size: number, last: bigint | undefined): EventPage => {
    const rows = found.slice(0, size);
    return { rows, next: found.length > size ? BigInt(rows.at(-1)?.position ?? 0) : last };
  };

  return {
    async find(id, { merchantId, mode }) {
      const { rows } = await run(findOne, [id, merchantId, mode]);
      return rows[0] && columns.read(rows[0]);
    },
    async page({ merchantId, mode }, { type, paymentIntent }, after, size) {
      const range = [merchantId, mode, String(after)];
      const read = async (list: typeof listAll, ...more: unknown[]) =>
        (await run(list, [...range, size + 1, ...more])).rows.map((row) => columns.read(row));
      if (paymentIntent !== undefined) {
        const found =
          type === ''
            ? await read(listOfIntent, paymentIntent)
            : await read(listOfTypeAndIntent, type, paymentIntent);
        return pageOf(found, size, undefined);
      }
      if (type === '') return pageOf(await read(listAll), size, undefined);
      const last = (await run(findLastScanned, range)).rows[0]?.position;
      return pageOf(await read(listOfType, type), size, last === undefined ? undefined : BigInt(last));
    },
  };
}
