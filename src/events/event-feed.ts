// Wakes the event streams of this process when there are new events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ModeName } from '../contract/words.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { ServiceError } from '../requests/errors.ts';
import { type Repeater, startRepeater } from '../scheduling/repeater.ts';
import { newestEpoch } from './event-epochs.ts';
import type { EventCursor } from './read-events.ts';

/** Polling interval while streams are open. A fallback: most new events are announced by a notification. */
const pollMs = 200;
/** How often the keys of open streams are checked. A stream outlives its key by at most twice this time. */
const keyCheckMs = 4_000;
/** Longest pause after a database failure, so that streams resume soon after it. */
const maxPauseMs = 2_000;
/** Maximum streams of this process. Each holds a page of events: 0.2 MB if they are large. */
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
