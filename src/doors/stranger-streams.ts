import { constants, type Http2Stream } from 'node:http2';

/** Most HTTP/2 streams of strangers on all connections of a door, about 20 to 100 KB each. */
const maxStrangers = 512;

/**
 * The open HTTP/2 streams of strangers on a door: key lookups in progress, unread refusals, and probes. Above the
 * limit one is closed: the one answered first or, if none was answered, the oldest.
 */
export class StrangerStreams {
  // Both in chronological order.
  readonly #asking = new Set<Http2Stream>();
  readonly #answered = new Set<Http2Stream>();

  /** Counts a stream until it is removed. */
  add(stream: Http2Stream): void {
    this.#asking.add(stream);
    this.#limit();
  }

  /** The stream was answered without an accepted key. It is counted until it closes. */
  answered(stream: Http2Stream): void {
    this.#asking.delete(stream);
    if (stream.closed || stream.destroyed) return;
    this.#answered.add(stream);
    this.#limit();
  }

  /** Removes the stream when it closes, for callers that do not track it to its end. */
  removeWhenClosed(stream: Http2Stream): void {
    if (stream.closed || stream.destroyed) this.remove(stream);
    else stream.once('close', () => this.remove(stream));
  }

  /** The stream has a key issued here, or is limited in another way. */
  remove(stream: Http2Stream): void {
    this.#asking.delete(stream);
    this.#answered.delete(stream);
  }

  #limit(): void {
    if (this.#asking.size + this.#answered.size <= maxStrangers) return;
    const [first] = this.#answered.size > 0 ? this.#answered : this.#asking;
    if (first === undefined) return;
    this.remove(first);
    first.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // If it were only closed, it would stay in memory as long as its session.
    first.destroy();
  }
}
