import { constants, type Http2Stream } from 'node:http2';

/** Streams of HTTP/2 that no accepted key stands behind, on all connections of a door: some 20 to 100 KB each. */
const maxUnidentified = 1_024;

/**
 * The open streams of a door that have not shown an accepted API key: those being looked up, refused ones whose
 * answers are not taken, probes. Above the limit the oldest is closed: a stream with a good key, or one that takes its
 * answer, is never among the oldest.
 */
export class UnidentifiedStreams {
  /** In the order they were opened. */
  readonly #streams = new Set<Http2Stream>();

  /** Counts a stream until it is removed. */
  add(stream: Http2Stream): void {
    this.#streams.add(stream);
    if (this.#streams.size <= maxUnidentified) return;
    const [oldest] = this.#streams;
    if (oldest === undefined) return;
    this.remove(oldest);
    oldest.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // Closed alone, it would stay in memory for as long as its session.
    oldest.destroy();
  }

  /** For a stream that nobody else follows to its end. */
  removeWhenClosed(stream: Http2Stream): void {
    if (stream.closed || stream.destroyed) this.remove(stream);
    else stream.once('close', () => this.remove(stream));
  }

  /** The stream is a known client's, or is limited in another way. */
  remove(stream: Http2Stream): void {
    this.#streams.delete(stream);
  }
}
