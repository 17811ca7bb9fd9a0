import type { EntityManager } from '@mikro-orm/postgresql';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { pageOfScanned, scannedRows } from '../database/scanned-page.ts';
import type { Identity } from '../requests/request-context.ts';

export interface EventFilter {
  type: string;
  /** UUID of an intent. */
  paymentIntent: string | undefined;
}

export interface EventPage {
  /** In order of their position. */
  rows: EventRow[];
  /** The position after which the next page begins; undefined on the last page. */
  next: bigint | undefined;
}

export interface EventReader {
  /** Returns an event of this merchant and mode; undefined if there is none or it has no position yet. */
  find(id: string, identity: Identity): Promise<EventRow | undefined>;
  /** Returns at most `size` events of a merchant and mode after a position. */
  page(identity: Identity, filter: EventFilter, after: bigint, size: number): Promise<EventPage>;
}

export function createEventReader(em: EntityManager): EventReader {
  const columns = entityColumns<EventRow>(em, EventEntity);
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
      `select ${columns.of('e')} from events e where ${where} order by ${order} limit $4`,
    );
  const listAll = statement(inRange, 'e.position');
  // Within an intent, the sequence has the same order and is in the index by intent. The other index would scan all events.
  const listOfIntent = statement(`${inRange} and e.payment_intent = $5`, 'e.sequence');
  const scan = { table: 'events', alias: 'e', range: inRange, order: 'e.position', matching: 'e.type = $5' };
  const listOfType = preparedStatement(
    'list_events_of_type',
    `select ${columns.of('e')}, e.matches, e.is_last_scanned from ${scannedRows(scan)} order by e.position limit $4`,
  );
  const listOfTypeAndIntent = statement(`${inRange} and e.type = $5 and e.payment_intent = $6`, 'e.sequence');
  const pageOf = (found: EventRow[], size: number): EventPage => {
    const rows = found.slice(0, size);
    return { rows, next: found.length > size ? BigInt(rows.at(-1)?.position ?? 0) : undefined };
  };

  return {
    async find(id, { merchantId, mode }) {
      const { rows } = await read(merchantId, findOne, [id, merchantId, mode]);
      return rows[0] && columns.read(rows[0]);
    },
    async page({ merchantId, mode }, { type, paymentIntent }, after, size) {
      const range = [merchantId, mode, String(after)];
      const list = async (statement: typeof listAll, ...more: unknown[]) =>
        (await read(merchantId, statement, [...range, size + 1, ...more])).rows.map(columns.read);
      if (paymentIntent !== undefined) {
        const found =
          type === ''
            ? await list(listOfIntent, paymentIntent)
            : await list(listOfTypeAndIntent, type, paymentIntent);
        return pageOf(found, size);
      }
      if (type === '') return pageOf(await list(listAll), size);
      const { rows } = await read(merchantId, listOfType, [...range, size + 2, type]);
      const found = pageOfScanned(rows, size);
      return {
        rows: found.rows.map(columns.read),
        next: found.next === undefined ? undefined : BigInt(found.next.position),
      };
    },
  };
}
