// Wakes the event streams of this process when there are new events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ModeName } from '../contract/words.ts';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, type PreparedStatement, preparedStatement } from '../database/prepared.ts';
import { type Condition, pageOfScanned, scannedRows, Values } from '../database/scanned-page.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Identity } from '../requests/request-context.ts';
import { type Repeater, startRepeater } from '../scheduling/repeater.ts';
import { type EventCursor, limitColumns, limitsOf } from './event-cursor.ts';
import { newestEpoch } from './event-epochs.ts';

/** Polling interval while streams are open. A fallback: most new events are announced by a notification. */
const pollMs = 200;
/** How often the keys of open streams are checked. A stream outlives its key by at most twice this time. */
const keyCheckMs = 4_000;
/** Longest pause after a database failure, so that streams resume soon after it. */
const maxPauseMs = 2_000;
/** Maximum streams of this process. Each holds one page of events and some tens of KB. */
const maxStreams = 1_024;
/** Maximum streams of one API key. */
const maxStreamsOfKey = 32;

/** The API key that reads a stream, with its merchant and mode. */
type Reader = { keyId: string; merchantId: string; mode: ModeName };

/** An open stream. */
interface Stream extends Reader {
  /** Resolves when there may be new events for the stream, after `timeoutMs`, or when the signal aborts. */
  wait(timeoutMs: number, signal: AbortSignal): Promise<void>;
  wake(): void;
  /** Set when the key was revoked or has expired. */
  refusal: ServiceError | undefined;
  close(): void;
}

export type EventFeed = ReturnType<typeof createEventFeed>;

export function createEventFeed(em: EntityManager, logger: Logger) {
  const { run } = createPreparedStatements(em);
  const streams = new Set<Stream>();
  /** Undefined while no stream is open: nothing is polled then. */
  let last: EventCursor | undefined;
  /** Defined while streams are open. */
  let work: { looking: Repeater; keyCheck: Repeater } | undefined;
  let stopping: Promise<unknown> | undefined;

  const readNewEvents = async () => {
    const { rows } = await run(findNew, [String(last?.position ?? -1n)]);
    const newest = { epoch: BigInt(rows[0]?.epoch), position: BigInt(rows[0]?.last_position) };
    if (last === undefined || newest.epoch !== last.epoch || newest.position < last.position) {
      for (const stream of streams) stream.wake();
    } else {
      const changed = new Set(rows.map(({ merchant_id, mode }) => `${merchant_id} ${mode}`));
      for (const stream of streams) {
        if (changed.has(`${stream.merchantId} ${stream.mode}`)) stream.wake();
      }
    }
    last = newest;
  };

  const checkKeys = async () => {
    const { rows } = await run(findEndedKeys, [[...new Set([...streams].map(({ keyId }) => keyId))]]);
    const ended = new Set(rows.map(({ id }) => id));
    for (const stream of streams) {
      if (!ended.has(stream.keyId)) continue;
      stream.refusal = new ServiceError('api_key_invalid');
      // A client that has stopped reading might not close the stream for a long time.
      streams.delete(stream);
      stream.wake();
    }
  };

  const repeat = (name: string, work: () => Promise<void>, intervalMs: number, maxRetryMs: number) =>
    startRepeater({ name, work, intervalMs, maxRetryMs, logger });
  const begin = () => {
    work ??= {
      looking: repeat('new events for streams', readNewEvents, pollMs, maxPauseMs),
      keyCheck: repeat('keys of streams', checkKeys, keyCheckMs, keyCheckMs),
    };
  };

  const end = () => {
    // Resolves with nothing: otherwise each promise would retain the results of the earlier ones.
    stopping = Promise.all([stopping, work?.looking.stop(), work?.keyCheck.stop()]).then(() => undefined);
    work = undefined;
    last = undefined;
  };

  return {
    /** Opens a stream for this key. Throws `rate_limited` if there are too many. */
    subscribe(reader: Reader): Stream {
      assertRoom(streams, reader.keyId);
      const stream = openStream(reader, () => {
        streams.delete(stream);
        if (streams.size === 0) end();
      });
      streams.add(stream);
      begin();
      return stream;
    },
    notify: () => work?.looking.wake(),
    streams: () => streams.size,
    async stop(): Promise<void> {
      end();
      await stopping;
    },
  };
}

/** Throws `rate_limited` if too many streams are open, for this key or in total. */
function assertRoom(streams: ReadonlySet<Stream>, keyId: string): void {
  const ofKey = [...streams].filter((open) => open.keyId === keyId).length;
  if (streams.size < maxStreams && ofKey < maxStreamsOfKey) return;
  throw new ServiceError('rate_limited', {
    message:
      ofKey >= maxStreamsOfKey
        ? `This API key has ${ofKey} streams open already, the most it may have. One stream carries all events.`
        : 'Too many streams are open. Wait and connect again, or list the events.',
  });
}

function openStream(reader: Reader, close: () => void): Stream {
  let isStale = true;
  let done = () => {};
  return {
    ...reader,
    refusal: undefined,
    close,
    wake() {
      isStale = true;
      done();
    },
    async wait(timeoutMs, signal) {
      if (!isStale && !signal.aborted) {
        const { promise, resolve } = Promise.withResolvers<void>();
        done = () => resolve();
        const timer = setTimeout(done, timeoutMs);
        signal.addEventListener('abort', done);
        await promise;
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
      }
      isStale = false;
    },
  };
}

/** The newest epoch and position, and each merchant and mode with events after `$1`. */
const findNew = preparedStatement(
  'find_new_events',
  `select ${newestEpoch} as epoch, p.last_position, e.merchant_id, e.mode
     from event_progress p
     left join lateral (
       select distinct merchant_id, mode from events where position > $1 and $1 >= 0 and position <= p.last_position
     ) e on true`,
);

const findEndedKeys = preparedStatement(
  'find_ended_keys',
  `select id from api_keys
    where id = any ($1::uuid[]) and (revoked_at is not null or expires_at <= now())`,
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
      const { statement, values } = isOfSubject ? listOf(filter) : { statement: listAll, values: [] };
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
