// Limits for strangers, clients that have not sent a valid key on their connection: the memory they hold, and
// the work started for them in one turn of the event loop. Others never wait for it. No library does this:
// Node starts all that a read brings, and keeps it until answered. `listener.ts` limits the connections.

import { EventEmitter } from 'node:events';
import { constants, type Http2Session, type Http2Stream, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';

/** After this time, no more work of strangers starts in a turn of the event loop. */
const turnMs = 3;
/**
 * KB that strangers may hold together. Above it, the one that has held memory for longest is closed: a payer
 * if payers hold more than half of it, otherwise another stranger.
 */
const maxHeldKb = 20_480;
/** Approximate size of an HTTP/1.1 request that is parsed and not answered. */
const kbOfRequest = 5;
/** Of an HTTP/2 stream that waits for its turn, or is a payer's: a payment may wait for 25 s. */
const kbOfWaitingStream = 10;
/** Of an HTTP/2 stream that was started, answered or not. In fact 20 to 100 KB. */
const kbOfStream = 40;

/** The connection that a request came on. */
export type Connection = Duplex | Http2Session;

type Holder = Connection | Http2Stream;

/** Emits `validKey` once for a connection that sends one, and `clientSecret` when one becomes a payer's. */
export class Strangers extends EventEmitter<Record<'validKey' | 'clientSecret', [connection: Connection]>> {
  readonly #withValidKey = new WeakSet<object>();
  /** Strangers that sent a client secret. Their work does not wait for a turn; their memory is limited. */
  readonly #payers = new WeakSet<object>();
  /** Those that sent a key that only we can have issued, while it is looked up. */
  readonly #withIssuedKey = new WeakSet<object>();
  /** The longest holding first. */
  readonly #heldKb = new Map<Holder, number>();
  /** The same for payers, once `#longestHolding` has passed over them. */
  readonly #heldByPayersKb = new Map<Holder, number>();
  #totalKb = 0;
  /** The part of it in `#heldByPayersKb`. */
  #totalOfPayersKb = 0;
  /** Work that waits for its turn. */
  readonly #waiting: (() => void)[] = [];

  /** True unless a valid key has come on the connection. */
  has(connection: object): boolean {
    return !this.#withValidKey.has(connection);
  }

  /** A valid key came on the connection. */
  noteValidKey(connection: Connection): void {
    if (!this.has(connection)) return;
    this.#withValidKey.add(connection);
    this.release(connection);
    this.emit('validKey', connection);
  }

  /** The client secret of an intent came on the connection. */
  noteClientSecret(connection: Connection): void {
    if (this.#payers.has(connection)) return;
    this.#payers.add(connection);
    this.emit('clientSecret', connection);
  }

  /** The connection sent a key that only we can have issued. It holds nothing while that is looked up. */
  noteIssuedKey(connection: Connection): void {
    this.#withIssuedKey.add(connection);
    this.release(connection);
  }

  /** A request was refused or had no credential: the connection is an ordinary stranger's until one has. */
  noteNoCredential(connection: Connection): void {
    this.#withIssuedKey.delete(connection);
    this.#payers.delete(connection);
  }

  /** Counts the connection's unanswered HTTP/1.1 requests, and the bytes that are read but not parsed. */
  countUnanswered(connection: Duplex, requests: number, bytes: number): void {
    if (this.has(connection) && !this.#withIssuedKey.has(connection))
      this.#hold(connection, requests * kbOfRequest + Math.ceil(bytes / 1024));
  }

  /** Serves an HTTP/2 stream. A stranger's waits for its turn, and counts until it closes or `release`. */
  startStream(stream: ServerHttp2Stream, serve: () => void): void {
    const session = stream.session ?? stream;
    if (!this.has(session)) {
      serve();
      return;
    }
    this.#hold(stream, kbOfWaitingStream);
    stream.once('close', () => this.release(stream));
    this.start(session, () => {
      if (stream.destroyed || stream.closed) return;
      if (!this.#payers.has(session)) this.#hold(stream, kbOfStream);
      serve();
    });
  }

  /** Stops counting a holder: it is closed, has a key issued here, or is limited in another way. */
  release(holder: Holder): void {
    this.#hold(holder, 0);
  }

  #hold(holder: Holder, kb: number): void {
    const isPayers = this.#heldByPayersKb.has(holder);
    const held = isPayers ? this.#heldByPayersKb : this.#heldKb;
    const moreKb = kb - (held.get(holder) ?? 0);
    this.#totalKb += moreKb;
    if (isPayers) this.#totalOfPayersKb += moreKb;
    if (kb > 0) held.set(holder, kb);
    else held.delete(holder);
    const longest = this.#totalKb > maxHeldKb ? this.#longestHolding() : undefined;
    if (longest === undefined) return;
    this.release(longest);
    if ('rstCode' in longest) (longest as Http2Stream).close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // A stream that is only closed would stay in memory as long as its session.
    longest.destroy();
  }

  #longestHolding(): Holder | undefined {
    let other: Holder | undefined;
    for (const [holder, kb] of this.#heldKb) {
      const connection = 'session' in holder ? holder.session : holder;
      if (connection === undefined || !this.#payers.has(connection)) {
        other = holder;
        break;
      }
      this.#heldKb.delete(holder);
      this.#heldByPayersKb.set(holder, kb);
      this.#totalOfPayersKb += kb;
    }
    const [payer] = this.#heldByPayersKb.keys();
    return this.#totalOfPayersKb > maxHeldKb / 2 ? payer : (other ?? payer);
  }

  /** Starts work at once for a merchant's or a payer's connection, otherwise in its turn. */
  start(connection: object, work: () => void): void {
    if (!this.has(connection) || this.#payers.has(connection)) work();
    else if (this.#waiting.push(work) === 1) setImmediate(this.#takeTurn);
  }

  readonly #takeTurn = async (): Promise<void> => {
    const endsAtMs = performance.now() + turnMs;
    while (this.#waiting.length > 0 && performance.now() < endsAtMs) {
      this.#waiting[0]?.();
      // Microtasks that the work has queued belong to this turn.
      await undefined;
      this.#waiting.shift();
    }
    if (this.#waiting.length > 0) setImmediate(this.#takeTurn);
  };
}
