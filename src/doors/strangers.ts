// The rule for strangers, clients that have not sent a valid key on their connection: what they may hold together, and
// how much is started for them in one turn of the event loop. Others wait for none of it. No library does this: Node
// starts everything that a read brings, and keeps it until it is answered. `listener.ts` bounds the connections themselves.

import { EventEmitter } from 'node:events';
import { constants, type Http2Session, type Http2Stream, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';

/** Time of one turn of the event loop after which no more work of strangers starts in it. */
const turnMs = 3;
/** Requests of strangers that were parsed and not answered, about 5 KB each. */
const maxRequests = 4_096;
/** Bytes of strangers that were read and not parsed. */
const maxUnparsedBytes = 16 * 1024 * 1024;
/** HTTP/2 streams of strangers that wait for their turn, about 10 KB each. */
const maxWaitingStreams = 2_048;
/** Those that were begun, answered or not, about 20 to 100 KB each. */
const maxStreams = 512;

/** An amount that holders have together. Above the limit, the one that has held some for longest is closed. */
class Bound<Holder extends object> {
  readonly #max: number;
  readonly #close: (holder: Holder) => void;
  /** The longest holding first. */
  readonly #held = new Map<Holder, number>();
  #total = 0;

  constructor(max: number, close: (holder: Holder) => void) {
    this.#max = max;
    this.#close = close;
  }

  add(holder: Holder, amount: number): void {
    this.set(holder, (this.#held.get(holder) ?? 0) + amount);
  }

  set(holder: Holder, amount: number): void {
    this.#total += amount - (this.#held.get(holder) ?? 0);
    if (amount > 0) this.#held.set(holder, amount);
    else this.#held.delete(holder);
    while (this.#total > this.#max) {
      const [longest] = this.#held.keys();
      if (longest === undefined) return;
      this.set(longest, 0);
      this.#close(longest);
    }
  }

  /** Does nothing if the holder was closed. */
  remove(holder: Holder, amount: number): void {
    const held = this.#held.get(holder);
    if (held !== undefined) this.set(holder, Math.max(held - amount, 0));
  }
}

/** The connection that a request came on. */
export type Connection = Duplex | Http2Session;

/** Emits `validKey` with each connection on which a valid key comes, once. */
export class Strangers extends EventEmitter<{ validKey: [connection: Connection] }> {
  readonly requests = new Bound<Duplex>(maxRequests, (socket) => socket.destroy());
  readonly unparsedBytes = new Bound<Duplex>(maxUnparsedBytes, (socket) => socket.destroy());
  readonly #streams = new Bound<Http2Stream>(maxStreams, (stream) => {
    stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // If it were only closed, it would stay in memory as long as its session.
    stream.destroy();
  });
  /** Nothing was done for them, so that their clients may try again. */
  readonly #waitingStreams = new Bound<Http2Stream>(maxWaitingStreams, (stream) =>
    stream.close(constants.NGHTTP2_REFUSED_STREAM),
  );
  readonly #withValidKey = new WeakSet<object>();
  /** Work that waits, by connection: first that of connections that have sent nothing before. */
  readonly #waiting = [new Map<object, (() => void)[]>(), new Map<object, (() => void)[]>()] as const;
  #turnStartedAtMs = 0;
  #isTurnScheduled = false;

  /** True unless a valid key has come on the connection. */
  has(connection: object): boolean {
    return !this.#withValidKey.has(connection);
  }

  /** A valid key came on the connection. */
  noteValidKey(connection: Connection): void {
    if (!this.has(connection)) return;
    this.#withValidKey.add(connection);
    this.requests.set(connection as Duplex, 0);
    this.unparsedBytes.set(connection as Duplex, 0);
    this.emit('validKey', connection);
  }

  /** Serves an HTTP/2 stream: a stranger's in its turn, and then counted until it closes or until `release`. */
  startStream(stream: ServerHttp2Stream, serve: () => void): void {
    const session = stream.session ?? stream;
    if (!this.has(session)) {
      serve();
      return;
    }
    this.#waitingStreams.set(stream, 1);
    stream.once('close', () => {
      this.#waitingStreams.set(stream, 0);
      this.release(stream);
    });
    this.start(session, stream.id === 1, () => {
      if (stream.destroyed || stream.closed) return;
      this.#waitingStreams.set(stream, 0);
      this.#streams.set(stream, 1);
      serve();
    });
  }

  /** The stream has a key issued here, or is limited in another way. */
  release(stream: Http2Stream): void {
    this.#streams.set(stream, 0);
  }

  /** Starts the work of a connection at once if the connection is not a stranger's, otherwise in its turn. */
  start(connection: object, isFirst: boolean, work: () => void): void {
    if (!this.has(connection) || this.#mayStart()) {
      work();
      return;
    }
    const queue = this.#waiting[isFirst ? 0 : 1];
    const own = queue.get(connection);
    if (own === undefined) queue.set(connection, [work]);
    else own.push(work);
  }

  /** The connection is closed: what it held is released, and what waits for it is dropped. */
  forget(connection: object): void {
    this.requests.set(connection as Duplex, 0);
    this.unparsedBytes.set(connection as Duplex, 0);
    for (const queue of this.#waiting) queue.delete(connection);
  }

  #mayStart(): boolean {
    if (!this.#isTurnScheduled) {
      this.#isTurnScheduled = true;
      this.#turnStartedAtMs = performance.now();
      setImmediate(this.#nextTurn);
      return true;
    }
    return this.#isIdle() && !this.#isTurnOver();
  }

  #isIdle(): boolean {
    return this.#waiting[0].size + this.#waiting[1].size === 0;
  }

  #isTurnOver(): boolean {
    return performance.now() - this.#turnStartedAtMs >= turnMs;
  }

  readonly #nextTurn = async (): Promise<void> => {
    this.#turnStartedAtMs = performance.now();
    while (!this.#isIdle() && !this.#isTurnOver()) {
      this.#takeNext()?.();
      // What the work has put off to a microtask belongs to this turn.
      await undefined;
    }
    if (this.#isIdle()) this.#isTurnScheduled = false;
    else setImmediate(this.#nextTurn);
  };

  /** Connections take turns; the work of each keeps its order. */
  #takeNext(): (() => void) | undefined {
    const queue = this.#waiting[0].size > 0 ? this.#waiting[0] : this.#waiting[1];
    for (const [connection, own] of queue) {
      const next = own.shift();
      queue.delete(connection);
      if (own.length > 0) queue.set(connection, own);
      return next;
    }
    return undefined;
  }
}
