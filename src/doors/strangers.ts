// The rule for strangers, clients that have not sent a valid key on their connection: what they may hold together, and
// how much is started for them in one turn of the event loop. Others wait for none of it. No library does this: Node
// starts everything that a read brings, and keeps it until it is answered. `listener.ts` bounds the connections themselves.

import { EventEmitter } from 'node:events';
import { constants, type Http2Session, type Http2Stream, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';

/** Time of one turn of the event loop after which no more work of strangers starts in it. */
const turnMs = 3;
/**
 * KB that strangers may hold together. Above it, the one that has held some for longest is closed: of payers while they hold
 * half of it, otherwise of the others.
 */
const maxHeldKb = 20_480;
/** What a request over HTTP/1.1 holds that was parsed and not answered, about. */
const kbOfRequest = 5;
/** An HTTP/2 stream that waits for its turn, or is a payer's: one payment waits for 25 s. */
const kbOfWaitingStream = 10;
/** One that was begun, answered or not: 20 to 100 KB. */
const kbOfStream = 40;

/** The connection that a request came on. */
export type Connection = Duplex | Http2Session;

type Holder = Connection | Http2Stream;

/** Emits `validKey` with each connection on which one comes, once, and `clientSecret` with each that becomes a payer's. */
export class Strangers extends EventEmitter<Record<'validKey' | 'clientSecret', [connection: Connection]>> {
  readonly #withValidKey = new WeakSet<object>();
  /** Anybody who opens a checkout is a payer: their work waits for no turn, and what they hold is bounded. */
  readonly #payers = new WeakSet<object>();
  /** On these a key was sent that only we can have issued, and that is being looked up. */
  readonly #withIssuedKey = new WeakSet<object>();
  /** The longest holding first. */
  readonly #heldKb = new Map<Holder, number>();
  /** The same of payers, once they were passed over. */
  readonly #heldByPayersKb = new Map<Holder, number>();
  #totalKb = 0;
  /** Of it, that of payers who were passed over. */
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

  /** A key came on the connection that only we can have issued: it holds nothing while that is looked up. */
  noteIssuedKey(connection: Connection): void {
    this.#withIssuedKey.add(connection);
    this.release(connection);
  }

  /** A request on the connection was refused, or had no secret: its work and what it holds are any stranger's until one has. */
  noteOther(connection: Connection): void {
    this.#withIssuedKey.delete(connection);
    this.#payers.delete(connection);
  }

  /** The connection has so many requests over HTTP/1.1 without an answer, and bytes that were read and not parsed. */
  countUnanswered(connection: Duplex, requests: number, bytes: number): void {
    if (this.has(connection) && !this.#withIssuedKey.has(connection))
      this.#hold(connection, requests * kbOfRequest + Math.ceil(bytes / 1024));
  }

  /** Serves an HTTP/2 stream: a stranger's in its turn, and then counted until it closes or until `release`. */
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

  /** The holder is closed, has a key issued here, or is limited in another way. */
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

  /** Starts the work of a connection at once if the connection is not a stranger's, otherwise in its turn. */
  start(connection: object, work: () => void): void {
    if (!this.has(connection) || this.#payers.has(connection)) work();
    else if (this.#waiting.push(work) === 1) setImmediate(this.#takeTurn);
  }

  readonly #takeTurn = async (): Promise<void> => {
    const endsAtMs = performance.now() + turnMs;
    while (this.#waiting.length > 0 && performance.now() < endsAtMs) {
      this.#waiting[0]?.();
      // What the work has put off to a microtask belongs to this turn.
      await undefined;
      this.#waiting.shift();
    }
    if (this.#waiting.length > 0) setImmediate(this.#takeTurn);
  };
}
