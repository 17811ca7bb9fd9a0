// Bounds the memory of an HTTP/1.1 connection. Node's server parses everything that a read brings, thousands of
// pipelined requests at once, and hands out all of them. Here its parser gets the bytes in small pieces, the requests
// of a connection wait for each other, and nothing more is parsed or read while some wait.

import type http from 'node:http';
import { constants, type Http2SecureServer, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import tls from 'node:tls';
import { cost, type FairTurns } from './fair-turns.ts';
import type { NodeRequest, NodeResponse } from './node-headers.ts';

/** Most requests of one connection in progress, including those with unread answers. */
const maxActive = 16;
/** Bytes parsed at once: a common request, or about forty of the smallest. */
const pieceBytes = 1_024;
/**
 * Most requests that were parsed and not answered, of all connections, about 5 KB each. Above it, the stranger's
 * connection that has had some for longest is closed.
 */
const maxUnanswered = 4_096;
/**
 * Most bytes that were read and not parsed, of all connections. Above it, the connection that has held some for
 * longest is closed, strangers' first. A well-behaved client holds them for milliseconds.
 */
const maxUnparsedBytes = 16 * 1024 * 1024;
/** Expected time to parse a piece and start its requests. Longer ones are charged to the turn. */
const commonPieceMs = 1;
/** Most bytes that wait for their turn before the socket is paused. */
const maxWaitingBytes = 16 * 1024;

interface PipelinedConnection {
  /** Requests whose answers are not read yet. */
  active: number;
  /** How many of the active requests, and the next piece of bytes, wait for their turn. */
  notStarted: number;
  /** The turn of the next piece has come, which includes its first request. */
  hasTurn: boolean;
  /** The last parsed request. Its body may still be arriving. */
  latest: NodeRequest | undefined;
  /** The request whose body must be read before more is parsed. */
  awaited: NodeRequest | undefined;
  /** The number of requests parsed so far. */
  requests: number;
  /** The client has closed its side. Passed on to Node once everything before it is parsed. */
  isEnded: boolean;
  /** Parsed requests, in order. */
  waiting: [NodeRequest, NodeResponse][];
  /** Read, but not parsed yet. */
  unparsed: Buffer;
  /** The input was not HTTP: nothing more is parsed. */
  isMalformed: boolean;
  /** Node's own listeners for `data`, which parses, and for `end`. */
  parse(bytes: Buffer): void;
  end(): void;
}

/** Open HTTP/1.1 connections. */
const connections = new WeakMap<object, PipelinedConnection>();

/**
 * True if an answer can close the connection without losing another: no other request of the connection is in
 * progress, and nothing was read after this one.
 */
export function isLastOfConnection({ socket }: NodeRequest): boolean {
  const connection = connections.get(socket);
  return (
    connection === undefined ||
    (connection.active + connection.waiting.length <= 1 &&
      connection.unparsed.length === 0 &&
      socket.readableLength === 0)
  );
}

/** Nothing after a parse error is read. */
export function stopParsing(socket: object): void {
  const connection = connections.get(socket);
  if (connection !== undefined) connection.isMalformed = true;
}

/**
 * Calls `handle` for the server's requests, including those with `Expect: 100-continue`, but for at most `maxActive`
 * of one HTTP/1.1 connection at a time, and each in its turn. HTTP/2 streams that get no turn are refused.
 * `isStranger`: no valid key has come on the connection. Strangers are closed first.
 */
export function handlePipelined<Request extends NodeRequest, Response extends NodeResponse>(
  server: http.Server | Http2SecureServer,
  handle: (request: Request, response: Response) => void,
  turns: FairTurns,
  isStranger: (socket: Socket) => boolean = () => true,
): void {
  // A client may close its side after its requests and still gets its answers (RFC 9112, section 9.6).
  Object.assign(server, { httpAllowHalfOpen: true });
  const pipelines = new Pipelines(handle as Handle, turns, isStranger);
  // After Node's own listeners, which attach the parser. The two kinds of servers share these events, not their types.
  (server as http.Server)
    .on(server instanceof tls.Server ? 'secureConnection' : 'connection', pipelines.open)
    .on('request', pipelines.onRequest)
    .on('checkContinue', pipelines.onRequest)
    .on('checkExpectation', pipelines.onRequest);
}

type Handle = (request: NodeRequest, response: NodeResponse) => void;

class Pipelines {
  readonly #handle: Handle;
  readonly #turns: FairTurns;
  readonly #isStranger: (socket: Socket) => boolean;
  /** Connections with unanswered requests, the longest waiting first. */
  readonly #owed = new Map<Socket, PipelinedConnection>();
  /** Connections with unparsed bytes, the longest held first. */
  readonly #held = new Map<Socket, PipelinedConnection>();
  #unanswered = 0;
  #unparsedBytes = 0;

  constructor(handle: Handle, turns: FairTurns, isStranger: (socket: Socket) => boolean) {
    this.#handle = handle;
    this.#turns = turns;
    this.#isStranger = isStranger;
  }

  readonly open = (socket: Socket): void => {
    const [parse] = socket.listeners('data') as [((bytes: Buffer) => void)?];
    const end = socket.listeners('end').at(-1) as (() => void) | undefined;
    // An HTTP/2 session on a port that speaks both.
    if (parse === undefined || end === undefined) return;
    const connection: PipelinedConnection = {
      active: 0,
      notStarted: 0,
      hasTurn: false,
      latest: undefined,
      awaited: undefined,
      requests: 0,
      isEnded: false,
      waiting: [],
      unparsed: empty,
      isMalformed: false,
      parse,
      end,
    };
    connections.set(socket, connection);
    socket
      .removeListener('data', parse)
      .removeListener('end', end)
      .on('end', () => {
        connection.isEnded = true;
        this.#parseOn(socket, connection);
      })
      .on('data', (bytes: Buffer) => {
        // The common case: one request, and none waiting before it.
        if (
          bytes.length <= pieceBytes &&
          connection.unparsed.length === 0 &&
          !connection.isMalformed &&
          !this.#turns.isOver &&
          !this.#mustWait(socket, connection)
        ) {
          return this.#parsePiece(connection, bytes);
        }
        this.#unparsedBytes += bytes.length;
        connection.unparsed =
          connection.unparsed.length === 0 ? bytes : Buffer.concat([connection.unparsed, bytes]);
        this.#parseOn(socket, connection);
      })
      // Also emitted when answers were read and Node resumes the socket.
      .on('resume', () => this.#parseOn(socket, connection))
      .once('close', () => this.#forget(socket, connection));
  };

  #mustWait(socket: Socket, { waiting, notStarted, latest }: PipelinedConnection): boolean {
    return waiting.length > 0 || notStarted > 0 || isPausedByNode(socket) || isUnread(latest);
  }

  #parsePiece(connection: PipelinedConnection, piece: Buffer) {
    const startedAtMs = performance.now();
    connection.parse(piece);
    const tookMs = performance.now() - startedAtMs;
    if (tookMs > commonPieceMs) this.#turns.charge(tookMs - commonPieceMs);
  }

  #forget(socket: Socket, connection: PipelinedConnection) {
    if (connections.get(socket) !== connection) return;
    connections.delete(socket);
    this.#owed.delete(socket);
    this.#turns.forget(socket);
    this.#unanswered -= connection.active + connection.waiting.length;
    connection.active = 0;
    connection.waiting = [];
    this.#drop(socket, connection);
  }

  #parseOn(socket: Socket, connection: PipelinedConnection) {
    while (connection.unparsed.length > 0 && socket.writable && !connection.isMalformed) {
      if (this.#mustWait(socket, connection)) return this.#hold(socket, connection);
      if (!connection.hasTurn && this.#turns.isOver) return this.#waitForTurn(socket, connection);
      const piece = connection.unparsed.subarray(0, pieceBytes);
      this.#unparsedBytes -= piece.length;
      connection.unparsed = connection.unparsed.subarray(piece.length);
      this.#parsePiece(connection, piece);
      connection.hasTurn = false;
    }
    // After an answer that closes the connection, nothing is answered.
    this.#drop(socket, connection);
    if (connection.isEnded) {
      connection.isEnded = false;
      if (!connection.isMalformed) connection.end();
    } else if (connection.waiting.length > 0) {
      socket.pause();
    } else if (socket.isPaused() && !isPausedByNode(socket)) {
      socket.resume();
    }
  }

  #waitForTurn(socket: Socket, connection: PipelinedConnection) {
    connection.notStarted++;
    // Pausing and resuming the socket costs more than a common turn.
    if (connection.unparsed.length > maxWaitingBytes) this.#hold(socket, connection);
    const isWaiting = this.#turns.wait(
      socket,
      cost.plain,
      () => {
        connection.notStarted--;
        connection.hasTurn = true;
        this.#continue(socket, connection);
      },
      connection.requests > 0 && this.#isStranger(socket),
    );
    if (!isWaiting) this.#close(socket, connection);
  }

  #hold(socket: Socket, connection: PipelinedConnection) {
    socket.pause();
    // Copy: a small view would keep the whole buffer in memory.
    if (connection.unparsed.length < connection.unparsed.buffer.byteLength / 2) {
      connection.unparsed = Buffer.from(connection.unparsed);
    }
    this.#held.set(socket, connection);
    const { latest } = connection;
    if (isUnread(latest) && connection.awaited !== latest) {
      connection.awaited = latest;
      latest.once('resume', () => this.#continue(socket, connection));
    }
    while (this.#unparsedBytes > maxUnparsedBytes) {
      const [first] = this.#held;
      const longest = this.#firstStranger(this.#held) ?? first;
      if (longest === undefined) return;
      this.#close(...longest);
    }
  }

  #firstStranger(of: ReadonlyMap<Socket, PipelinedConnection>): [Socket, PipelinedConnection] | undefined {
    for (const entry of of) if (this.#isStranger(entry[0])) return entry;
    return undefined;
  }

  #drop(socket: Socket, connection: PipelinedConnection) {
    this.#held.delete(socket);
    this.#unparsedBytes -= connection.unparsed.length;
    connection.unparsed = empty;
  }

  #close(socket: Socket, connection: PipelinedConnection) {
    this.#forget(socket, connection);
    socket.destroy();
  }

  #start(socket: Socket, connection: PipelinedConnection, [request, response]: [NodeRequest, NodeResponse]) {
    connection.active++;
    response.once('close', () => {
      // A closed connection has been accounted for already.
      if (connections.get(socket) !== connection) return;
      connection.active--;
      this.#unanswered--;
      if (connection.active + connection.waiting.length === 0) this.#owed.delete(socket);
      if (connection.waiting.length > 0) setImmediate(this.#startNext, socket, connection);
    });
    if (connection.hasTurn || this.#turns.take(cost.plain)) {
      connection.hasTurn = false;
      return this.#handle(request, response);
    }
    connection.notStarted++;
    const begin = () => {
      connection.notStarted--;
      // The connection was closed by an earlier answer.
      if (!socket.writable) return;
      this.#handle(request, response);
      this.#continue(socket, connection);
    };
    // A new client may have a valid key, so its first request is not treated as a stranger's.
    const isStranger = connection.requests > 1 && this.#isStranger(socket);
    if (!this.#turns.wait(socket, cost.plain, begin, isStranger)) this.#close(socket, connection);
  }

  /** Runs in its own turn of the event loop, so that other connections get theirs. */
  readonly #startNext = (socket: Socket, connection: PipelinedConnection) => {
    if (!socket.writable) return;
    const next = connection.waiting.shift();
    if (next === undefined) return;
    this.#start(socket, connection, next);
    this.#continue(socket, connection);
  };

  /** Continues to read once no request waits; the body of the last one may still be arriving. */
  #continue(socket: Socket, connection: PipelinedConnection) {
    if (this.#mustWait(socket, connection)) return;
    this.#held.delete(socket);
    this.#parseOn(socket, connection);
  }

  readonly onRequest = (request: NodeRequest, response: NodeResponse): void => {
    const socket = request.socket as Socket;
    const connection = 'stream' in request ? undefined : connections.get(socket);
    if (connection === undefined) {
      if ('stream' in request)
        beginStream(this.#turns, request.stream, cost.plain, () => this.#handle(request, response));
      // Requests of closed connections are not answered.
      return;
    }
    this.#unanswered++;
    this.#owed.set(socket, connection);
    connection.latest = request;
    connection.requests++;
    if (connection.active < maxActive && connection.waiting.length === 0) {
      this.#start(socket, connection, [request, response]);
    } else {
      connection.waiting.push([request, response]);
    }
    if (this.#unanswered > maxUnanswered) {
      const longest = this.#firstStranger(this.#owed);
      if (longest !== undefined) this.#close(...longest);
    }
  };
}

/** Serves an HTTP/2 stream in its turn, or refuses it if too many of its session wait. */
export function beginStream(
  turns: FairTurns,
  stream: ServerHttp2Stream,
  units: number,
  begin: () => void,
): void {
  if (turns.take(units)) {
    begin();
    return;
  }
  const isWaiting = turns.wait(stream.session ?? stream, units, () => {
    if (!stream.destroyed) begin();
  });
  if (!isWaiting) stream.close(constants.NGHTTP2_REFUSED_STREAM);
}

const empty = Buffer.alloc(0);

/** True while a request's body is not being read: parsed parts of it would accumulate in memory. */
function isUnread(request: NodeRequest | undefined): request is NodeRequest {
  if (request === undefined || request.complete || request.readableFlowing === true) return false;
  // A request without a body becomes complete only after its handler was called.
  return request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length']) > 0;
}

/** Node pauses a connection whose answers are not read, and resumes it itself; nobody else may. */
function isPausedByNode(socket: Socket & { _paused?: boolean }): boolean {
  return socket._paused === true;
}
