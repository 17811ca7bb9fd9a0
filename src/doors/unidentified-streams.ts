import { constants, type Http2Stream } from 'node:http2';

/** Streams of HTTP/2 that no key of ours stands behind, on all connections of a door: some 20 to 100 KB each. */
const maxUnidentified = 1_024;

/**
 * The open streams of a door that have not shown a key of ours: those whose key is being looked up, those that were
 * refused and do not take their answer, probes. Above the limit one is closed: that which was answered first, and only
 * where none was answered the one that has asked first.
 */
export class UnidentifiedStreams {
  // Both in the order of time.
  readonly #asking = new Set<Http2Stream>();
  readonly #answered = new Set<Http2Stream>();

  /** Counts a stream until it is removed. */
  add(stream: Http2Stream): void {
    this.#asking.add(stream);
    this.#limit();
  }

  /** The stream has its answer, and no key has been accepted: it is counted, or counted again, until it is closed. */
  answered(stream: Http2Stream): void {
    this.#asking.delete(stream);
    if (stream.closed || stream.destroyed) return;
    this.#answered.add(stream);
    this.#limit();
  }

  /** For a stream that nobody else follows to its end. */
  removeWhenClosed(stream: Http2Stream): void {
    if (stream.closed || stream.destroyed) this.remove(stream);
    else stream.once('close', () => this.remove(stream));
  }

  /** The stream shows a key of ours, or is limited in another way. */
  remove(stream: Http2Stream): void {
    this.#asking.delete(stream);
    this.#answered.delete(stream);
  }

  #limit(): void {
    if (this.#asking.size + this.#answered.size <= maxUnidentified) return;
    const [first] = this.#answered.size > 0 ? this.#answered : this.#asking;
    if (first === undefined) return;
    this.remove(first);
    first.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // Closed alone, it would stay in memory for as long as its session.
    first.destroy();
  }
}
