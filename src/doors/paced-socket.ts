// Wraps a connection for Node's HTTP/1.1 server. Node would parse a whole read of 64 KiB, up to thousands of
// pipelined requests, and emit them all. Here its parser gets small pieces, each in its turn, and none while
// too many of the connection's requests are in progress. The rest stays in the socket. Node's servers accept
// any stream as a connection.

import type http from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Strangers } from './strangers.ts';

/** Nothing is parsed while so many requests of a connection are in progress, or have unread answers. */
const maxActive = 16;
/** Bytes parsed at once: a common request, or about twenty of the smallest. */
const pieceBytes = 512;
/** Bytes of a body that Node keeps before it stops parsing: more than a common one. */
const bodyBufferBytes = 4_096;

export class PacedSocket extends Duplex {
  /** The responses to the two requests that were parsed last, the last one first. */
  latest: readonly http.ServerResponse[] = [];
  /** True once the client has sent anything. */
  hasInput = false;
  readonly #socket: Socket;
  readonly #strangers: Strangers;
  /** Requests in progress, including those whose answers are unread. */
  #active = 0;
  /** A piece waits for its turn. */
  #isWaiting = false;
  #isStopped = false;

  constructor(socket: Socket, strangers: Strangers) {
    super({ allowHalfOpen: true, readableHighWaterMark: bodyBufferBytes, decodeStrings: false });
    this.#socket = socket;
    this.#strangers = strangers;
    // What the doors need of a socket besides the stream.
    const { remoteAddress, remotePort, localAddress, localPort } = socket;
    Object.assign(this, { remoteAddress, remotePort, localAddress, localPort });
    this.on('resume', this.#advance);
    socket
      .on('readable', this.#advance)
      .on('end', () => {
        if (!this.#isStopped) this.push(null);
      })
      .on('timeout', () => this.emit('timeout'))
      .on('error', (error) => this.destroy(error))
      .on('close', () => this.destroy());
  }

  /** Serves a request of the connection. */
  begin(response: http.ServerResponse, serve: () => void): void {
    this.latest = [response, ...this.latest.slice(0, 1)];
    this.#count(1);
    response.once('close', () => {
      this.#count(-1);
      // In a turn of its own, so that other connections get theirs.
      if (this.#socket.readableLength > 0) setImmediate(this.#advance);
    });
    serve();
  }

  #count(more: 1 | 0 | -1): void {
    this.#active += more;
    if (!this.destroyed) this.#strangers.countUnanswered(this, this.#active, this.#socket.readableLength);
  }

  /** Nothing after this is parsed. */
  stopParsing(): void {
    this.#isStopped = true;
  }

  /** True if closing the connection loses no other answer: no other request is in progress or unparsed. */
  get isLastRequest(): boolean {
    return this.#active <= 1 && this.#socket.readableLength === 0;
  }

  readonly #advance = (): void => {
    this.#count(0);
    // Without this read, the socket would not emit `end`.
    if (this.#socket.readableLength === 0) this.#socket.read(0);
    // Node pauses this stream while answers or a body are unread.
    else if (!this.#isWaiting && !this.#isStopped && this.#active < maxActive && !this.isPaused()) {
      this.#isWaiting = true;
      this.#strangers.start(this, this.#parsePiece);
    }
  };

  readonly #parsePiece = (): void => {
    this.#isWaiting = false;
    const { readableLength } = this.#socket;
    if (this.#isStopped || this.destroyed || readableLength === 0) return;
    this.hasInput = true;
    this.push(this.#socket.read(Math.min(readableLength, pieceBytes)));
    this.#advance();
  };

  override _read(): void {
    // `#parsePiece` pushes.
  }

  override _write(
    chunk: string | Buffer,
    encoding: BufferEncoding,
    callback: (error?: Error | null) => void,
  ): void {
    this.#socket.write(chunk, encoding, callback);
  }

  override _final(callback: () => void): void {
    // Input that is no longer parsed is dropped, so that the client can read its answer.
    if (this.#isStopped) this.#socket.off('readable', this.#advance).resume();
    this.#socket.end(callback);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#strangers.release(this);
    // Otherwise its unparsed input would stay until the end of the loop's turn, in which thousands may close.
    this.#socket.read();
    this.#socket.destroy();
    callback(error);
  }

  // What Node's server needs of a socket besides the stream.

  /** Ends the connection once everything is sent. */
  destroySoon(): void {
    this.end(() => this.destroy());
  }

  setTimeout(ms: number): this {
    this.#socket.setTimeout(ms);
    return this;
  }
}
