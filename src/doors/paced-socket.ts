// A connection as Node's HTTP/1.1 server sees it. Node parses everything that a read of 64 KiB brings, thousands of
// pipelined requests at once, and hands out all of them. Here its parser gets the bytes in small pieces, each in its
// turn, and none while too many requests of the connection wait. Node's servers take any stream as a connection.

import type http from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Strangers } from './strangers.ts';

/** Most requests of one connection in progress, including those with unread answers. */
const maxActive = 16;
/** Bytes parsed at once: a common request, or about forty of the smallest. */
const pieceBytes = 1_024;
/** Bytes of a body that Node keeps before it stops parsing: more than a common one. */
const bodyBufferBytes = 4_096;

const empty = Buffer.alloc(0);

type ParsedRequest = readonly [response: http.ServerResponse, serve: () => void];

export class PacedSocket extends Duplex {
  /** The responses to the two requests that were parsed last, the last one first. */
  latest: readonly http.ServerResponse[] = [];
  readonly #socket: Socket;
  readonly #strangers: Strangers;
  /** Read, but not parsed yet. */
  #unparsed: Buffer = empty;
  /** Parsed, but not served yet. */
  readonly #parsed: ParsedRequest[] = [];
  /** Requests whose answers are not read yet. */
  #active = 0;
  #isFirst = true;
  #isAdvancing = false;
  /** A piece waits for its turn. */
  #isWaiting = false;
  #isEnded = false;
  #isStopped = false;

  constructor(socket: Socket, strangers: Strangers) {
    super({ allowHalfOpen: true, readableHighWaterMark: bodyBufferBytes, decodeStrings: false });
    this.#socket = socket;
    this.#strangers = strangers;
    this.on('resume', this.#advance);
    socket
      .on('data', (bytes: Buffer) => this.#take(bytes))
      .on('end', () => {
        this.#isEnded = true;
        this.#advance();
      })
      .on('timeout', () => this.emit('timeout'))
      .on('error', (error) => this.destroy(error))
      .on('close', () => this.destroy());
  }

  /** Serves a request of the connection, at once unless too many are in progress. */
  begin(response: http.ServerResponse, serve: () => void): void {
    this.latest = [response, ...this.latest.slice(0, 1)];
    if (this.#strangers.has(this)) this.#strangers.requests.add(this, 1);
    if (this.#active < maxActive) this.#serve([response, serve]);
    else this.#parsed.push([response, serve]);
  }

  #serve([response, serve]: ParsedRequest): void {
    this.#active++;
    response.once('close', () => {
      this.#active--;
      this.#strangers.requests.remove(this, 1);
      if (this.#parsed.length + this.#unparsed.length > 0) setImmediate(this.#serveNext);
    });
    serve();
  }

  /** Runs in its own turn of the event loop, so that other connections get theirs. */
  readonly #serveNext = (): void => {
    const next = this.destroyed ? undefined : this.#parsed.shift();
    if (next !== undefined) this.#serve(next);
    this.#advance();
  };

  /** Nothing after this is parsed. */
  stopParsing(): void {
    this.#isStopped = true;
    this.#unparsed = empty;
  }

  /**
   * True if an answer can close the connection without losing another: no other request of the connection is in
   * progress, and nothing was read after this one.
   */
  get isLastRequest(): boolean {
    const waiting = this.#parsed.length + this.#unparsed.length + this.#socket.readableLength;
    return this.#active <= 1 && waiting === 0;
  }

  #take(bytes: Buffer): void {
    if (this.#isStopped) return;
    this.#unparsed = this.#unparsed.length === 0 ? bytes : Buffer.concat([this.#unparsed, bytes]);
    this.#advance();
    if (this.#unparsed.length === 0) return;
    this.#socket.pause();
    // A small view would keep the whole buffer in memory.
    if (this.#unparsed.length < this.#unparsed.buffer.byteLength / 2) {
      this.#unparsed = Buffer.from(this.#unparsed);
    }
  }

  readonly #advance = (): void => {
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    const before = this.#unparsed.length;
    while (this.#unparsed.length > 0 && this.#takesMore()) {
      this.#isWaiting = true;
      this.#strangers.start(this, this.#isFirst, this.#parsePiece);
    }
    this.#isAdvancing = false;
    const { length } = this.#unparsed;
    if (before > pieceBytes && this.#strangers.has(this)) this.#strangers.unparsedBytes.set(this, length);
    if (length > 0) return;
    if (this.#isEnded) {
      if (!this.#isStopped) this.push(null);
    } else if (this.#socket.isPaused()) {
      this.#socket.resume();
    }
  };

  /** Node pauses this stream while answers are not read, or while a body is not. */
  #takesMore(): boolean {
    return !this.#isWaiting && this.#active < maxActive && !this.isPaused();
  }

  readonly #parsePiece = (): void => {
    const bytes = this.#unparsed;
    this.#isFirst = false;
    if (bytes.length <= pieceBytes) {
      this.#unparsed = empty;
      this.push(bytes);
    } else {
      this.#unparsed = bytes.subarray(pieceBytes);
      this.push(bytes.subarray(0, pieceBytes));
    }
    this.#isWaiting = false;
    this.#advance();
  };

  override _read(): void {
    // The socket pushes by itself.
  }

  override _write(
    chunk: string | Buffer,
    encoding: BufferEncoding,
    callback: (error?: Error | null) => void,
  ): void {
    this.#socket.write(chunk, encoding, callback);
  }

  override _writev(
    chunks: { chunk: string | Buffer; encoding: BufferEncoding }[],
    callback: (error?: Error | null) => void,
  ): void {
    const last = chunks.pop();
    this.#socket.cork();
    for (const { chunk, encoding } of chunks) this.#socket.write(chunk, encoding);
    if (last !== undefined) this.#socket.write(last.chunk, last.encoding, callback);
    this.#socket.uncork();
  }

  override _final(callback: () => void): void {
    this.#socket.end(callback);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#unparsed = empty;
    this.#parsed.length = 0;
    this.#strangers.forget(this);
    this.#socket.destroy();
    callback(error);
  }

  // What Node's server and our doors ask of a socket beyond a stream.

  /** Ends the connection once everything is sent. */
  destroySoon(): void {
    this.end(() => this.destroy());
  }

  setTimeout(ms: number): this {
    this.#socket.setTimeout(ms);
    return this;
  }

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  get remotePort(): number | undefined {
    return this.#socket.remotePort;
  }

  get localAddress(): string | undefined {
    return this.#socket.localAddress;
  }

  get localPort(): number | undefined {
    return this.#socket.localPort;
  }
}

/** The paced connection of a request over HTTP/1.1. */
export function pacedSocketOf(request: { socket: object }): PacedSocket | undefined {
  return request.socket instanceof PacedSocket ? request.socket : undefined;
}
