// Bounds what one HTTP/1.1 connection can make us hold. Node's server parses whatever a read brings, thousands of
// pipelined requests at once, and hands all of them out. Here the bytes reach its parser in small pieces, the
// requests of a connection wait for each other, and nothing more is parsed or read while some wait.

import type http from 'node:http';
import { constants, type Http2SecureServer, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import tls from 'node:tls';
import { cost, type FairTurns } from './fair-turns.ts';
import type { NodeRequest, NodeResponse } from './node-headers.ts';

/** Requests of one connection that are worked on, or whose answers are not taken yet, at the same time. */
const maxActive = 16;
/** Bytes that are parsed at once: a common request, or some forty of the smallest. */
const pieceBytes = 1_024;
/**
 * Requests of all connections together that were parsed and are not answered, of some 5 KB each. Above it, the
 * connection without a valid key is closed that has had some for the longest time.
 */
const maxUnanswered = 4_096;
/**
 * Bytes of all connections together that were read and are not parsed. Above it, the connection that has held some for
 * the longest time is closed, and first those without a valid key: one that behaves holds them for milliseconds.
 */
const maxUnparsedBytes = 16 * 1024 * 1024;
/** Parsing a piece, with what its requests do at once, takes less. What it takes beyond counts as work of the turn. */
const commonPieceMs = 1;
/** Bytes that may wait for their turn before the socket is read no further. */
const maxWaitingBytes = 16 * 1024;

interface Connection {
  /** Requests whose answers are not taken yet. */
  active: number;
  /** Of the active ones, those that wait for their turn; and the next piece of bytes, if it does. */
  unbegun: number;
  /** A piece is parsed whose turn has come: so has that of the first request in it. */
  hasTurn: boolean;
  /** The request that was parsed last. Its body may still come. */
  latest: NodeRequest | undefined;
  /** The request whose body has to be read before more is parsed. */
  awaited: NodeRequest | undefined;
  /** How many were parsed so far. */
  requests: number;
  /** The client has sent all it will; known to Node once everything before it is parsed. */
  isEnded: boolean;
  /** Parsed, in the order they came. */
  waiting: [NodeRequest, NodeResponse][];
  /** Read, and not parsed yet. */
  unparsed: Buffer;
  /** What came was not HTTP: nothing more is parsed. */
  isMalformed: boolean;
  /** Node's own listeners: the one that parses, and the one for the end of what the client sends. */
  parse(bytes: Buffer): void;
  end(): void;
}

/** Connections of HTTP/1.1 that are open. */
const connections = new WeakMap<object, Connection>();

/**
 * True if an answer that closes the connection takes nothing with it: no other request of the connection is being worked
 * on, and nothing was read behind this one.
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

/** What was read of the connection, and what may still come, is not parsed: nothing after a parse error is read. */
export function stopParsing(socket: object): void {
  const connection = connections.get(socket);
  if (connection !== undefined) connection.isMalformed = true;
}

/**
 * Calls `handle` for the server's requests, those that ask for `100 Continue` included, but for at most `maxActive`
 * of one HTTP/1.1 connection at a time, and each in its turn. A stream of HTTP/2 that has no turn is refused.
 * `isKnown` returns whether a valid key came on a connection: if there is too much, the others are closed first.
 */
export function handlePipelined<Request extends NodeRequest, Response extends NodeResponse>(
  server: http.Server | Http2SecureServer,
  handle: (request: Request, response: Response) => void,
  turns: FairTurns,
  isKnown: (socket: Socket) => boolean = () => false,
): void {
  // A client may close its side once it has sent everything, and gets its answers (RFC 9112, section 9.6).
  Object.assign(server, { httpAllowHalfOpen: true });
  const pipelines = new Pipelines(handle as Handle, turns, isKnown);
  // After Node's own listeners, which attach the parser. The two kinds of servers share these events, not their types.
  (server as http.Server)
    .on(server instanceof tls.Server ? 'secureConnection' : 'connection', pipelines.open)
    .on('request', pipelines.onRequest)
    .on('checkContinue', pipelines.onRequest)
    .on('checkExpectation', pipelines.onRequest);
}

type Handle = (request: NodeRequest, response: NodeResponse) => void;

/** The connections of one server. */
class Pipelines {
  readonly #handle: Handle;
  readonly #turns: FairTurns;
  readonly #isKnown: (socket: Socket) => boolean;
  /** Connections that are owed answers, the longest owed first. */
  readonly #owed = new Map<Socket, Connection>();
  /** Connections with unparsed bytes that may not be parsed yet, the longest held first. */
  readonly #held = new Map<Socket, Connection>();
  #unanswered = 0;
  #unparsedBytes = 0;

  constructor(handle: Handle, turns: FairTurns, isKnown: (socket: Socket) => boolean) {
    this.#handle = handle;
    this.#turns = turns;
    this.#isKnown = isKnown;
  }

  readonly open = (socket: Socket): void => {
    const [parse] = socket.listeners('data') as [((bytes: Buffer) => void)?];
    const end = socket.listeners('end').at(-1) as (() => void) | undefined;
    // A session of HTTP/2 on a port that speaks both.
    if (parse === undefined || end === undefined) return;
    const connection: Connection = {
      active: 0,
      unbegun: 0,
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
        // Nearly always: one request, and none before it that waits.
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
      // Also emitted when answers were taken and Node wants to read on.
      .on('resume', () => this.#parseOn(socket, connection))
      .once('close', () => this.#forget(socket, connection));
  };

  #mustWait(socket: Socket, { waiting, unbegun, latest }: Connection): boolean {
    return waiting.length > 0 || unbegun > 0 || isPausedByNode(socket) || isUnread(latest);
  }

  #parsePiece(connection: Connection, piece: Buffer) {
    const startedAtMs = performance.now();
    connection.parse(piece);
    const tookMs = performance.now() - startedAtMs;
    if (tookMs > commonPieceMs) this.#turns.charge(tookMs - commonPieceMs);
  }

  #forget(socket: Socket, connection: Connection) {
    if (connections.get(socket) !== connection) return;
    connections.delete(socket);
    this.#owed.delete(socket);
    this.#turns.forget(socket);
    this.#unanswered -= connection.active + connection.waiting.length;
    connection.active = 0;
    connection.waiting = [];
    this.#drop(socket, connection);
  }

  #parseOn(socket: Socket, connection: Connection) {
    while (connection.unparsed.length > 0 && socket.writable && !connection.isMalformed) {
      if (this.#mustWait(socket, connection)) return this.#hold(socket, connection);
      if (!connection.hasTurn && this.#turns.isOver) return this.#waitForTurn(socket, connection);
      const piece = connection.unparsed.subarray(0, pieceBytes);
      this.#unparsedBytes -= piece.length;
      connection.unparsed = connection.unparsed.subarray(piece.length);
      this.#parsePiece(connection, piece);
      connection.hasTurn = false;
    }
    // Nobody will answer what comes behind an answer that ends the connection.
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

  #waitForTurn(socket: Socket, connection: Connection) {
    connection.unbegun++;
    // Stopping to read and beginning again costs more than a common turn.
    if (connection.unparsed.length > maxWaitingBytes) this.#hold(socket, connection);
    const isWaiting = this.#turns.wait(
      socket,
      cost.plain,
      () => {
        connection.unbegun--;
        connection.hasTurn = true;
        this.#goOn(socket, connection);
      },
      connection.requests === 0 || this.#isKnown(socket),
    );
    if (!isWaiting) this.#close(socket, connection);
  }

  #hold(socket: Socket, connection: Connection) {
    socket.pause();
    // A view of a few bytes would keep all that was read with them.
    if (connection.unparsed.length < connection.unparsed.buffer.byteLength / 2) {
      connection.unparsed = Buffer.from(connection.unparsed);
    }
    this.#held.set(socket, connection);
    const { latest } = connection;
    if (isUnread(latest) && connection.awaited !== latest) {
      connection.awaited = latest;
      latest.once('resume', () => this.#goOn(socket, connection));
    }
    while (this.#unparsedBytes > maxUnparsedBytes) {
      const [first] = this.#held;
      const longest = this.#firstUnknown(this.#held) ?? first;
      if (longest === undefined) return;
      this.#close(...longest);
    }
  }

  #firstUnknown(of: ReadonlyMap<Socket, Connection>): [Socket, Connection] | undefined {
    for (const entry of of) if (!this.#isKnown(entry[0])) return entry;
    return undefined;
  }

  #drop(socket: Socket, connection: Connection) {
    this.#held.delete(socket);
    this.#unparsedBytes -= connection.unparsed.length;
    connection.unparsed = empty;
  }

  #close(socket: Socket, connection: Connection) {
    this.#forget(socket, connection);
    socket.destroy();
  }

  #start(socket: Socket, connection: Connection, [request, response]: [NodeRequest, NodeResponse]) {
    connection.active++;
    response.once('close', () => {
      // What a connection had when it closed was settled then.
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
    connection.unbegun++;
    const begin = () => {
      connection.unbegun--;
      // Behind an answer that ended the connection nothing is begun, as its answer could not be given.
      if (!socket.writable) return;
      this.#handle(request, response);
      this.#goOn(socket, connection);
    };
    // The first request of a client may turn out to be a known one's.
    const isUrgent = connection.requests <= 1 || this.#isKnown(socket);
    if (!this.#turns.wait(socket, cost.plain, begin, isUrgent)) this.#close(socket, connection);
  }

  /** In a turn of the event loop of its own, so that other connections have theirs. */
  readonly #startNext = (socket: Socket, connection: Connection) => {
    if (!socket.writable) return;
    const next = connection.waiting.shift();
    if (next === undefined) return;
    this.#start(socket, connection, next);
    this.#goOn(socket, connection);
  };

  /** Reads on once no request waits, also for the body of the last one, which is still to come. */
  #goOn(socket: Socket, connection: Connection) {
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
      // Of a connection that was closed above, nothing is answered any more.
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
      const longest = this.#firstUnknown(this.#owed);
      if (longest !== undefined) this.#close(...longest);
    }
  };
}

/** Begins to serve a stream of HTTP/2 in its turn, or refuses it where too many of its session wait already. */
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

/** True while nobody reads the body of a request: what of it is parsed would gather in memory, piece by piece. */
function isUnread(request: NodeRequest | undefined): request is NodeRequest {
  if (request === undefined || request.complete || request.readableFlowing === true) return false;
  // A request without a body is complete only after its handler was called.
  return request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length']) > 0;
}

/** Node's mark on a connection whose answers are not taken; it resumes such a connection itself, and nobody else may. */
function isPausedByNode(socket: Socket & { _paused?: boolean }): boolean {
  return socket._paused === true;
}
