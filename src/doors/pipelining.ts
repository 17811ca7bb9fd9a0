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
 * Requests of all connections together that were parsed and are not answered, of some 5 KB each. Above it, a
 * connection that has more than one of them is closed.
 */
const maxUnanswered = 4_096;
/**
 * Bytes of all connections together that were read and are not parsed. Above it, the connection that has held some for
 * the longest time is closed: one that behaves holds them for milliseconds.
 */
const maxUnparsedBytes = 16 * 1024 * 1024;

interface Connection {
  /** Requests whose answers are not taken yet. */
  active: number;
  /** Of the active ones, those that wait for their turn. */
  unbegun: number;
  /** Parsed, in the order they came. */
  waiting: [NodeRequest, NodeResponse][];
  /** Read, and not parsed yet. */
  unparsed: Buffer;
  /** What came was not HTTP: nothing more is parsed. */
  isMalformed: boolean;
  /** Node's own listener, which parses. */
  parse(bytes: Buffer): void;
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

/** What was read of the connection, and what may still come, is not parsed: behind bytes that are not HTTP is nothing to find. */
export function stopParsing(socket: object): void {
  const connection = connections.get(socket);
  if (connection !== undefined) connection.isMalformed = true;
}

/**
 * Calls `handle` for the server's requests, those that ask for `100 Continue` included, but for at most `maxActive`
 * of one HTTP/1.1 connection at a time, and each in its turn. A stream of HTTP/2 that has no turn is refused.
 */
export function handlePipelined<Request extends NodeRequest, Response extends NodeResponse>(
  server: http.Server | Http2SecureServer,
  handle: (request: Request, response: Response) => void,
  turns: FairTurns,
): void {
  /** Connections with unparsed bytes that may not be parsed yet, the longest held first. */
  const held = new Map<Socket, Connection>();
  let unanswered = 0;
  let unparsedBytes = 0;

  const open = (socket: Socket) => {
    const [parse] = socket.listeners('data') as [((bytes: Buffer) => void)?];
    // A session of HTTP/2 on a port that speaks both.
    if (parse === undefined) return;
    const connection: Connection = {
      active: 0,
      unbegun: 0,
      waiting: [],
      unparsed: empty,
      isMalformed: false,
      parse,
    };
    connections.set(socket, connection);
    socket
      .removeListener('data', parse)
      .on('data', (bytes: Buffer) => {
        // Nearly always: one request, and none before it that waits.
        if (bytes.length <= pieceBytes && mayParse(socket, connection)) return connection.parse(bytes);
        unparsedBytes += bytes.length;
        connection.unparsed =
          connection.unparsed.length === 0 ? bytes : Buffer.concat([connection.unparsed, bytes]);
        parseOn(socket, connection);
      })
      // Also emitted when answers were taken and Node wants to read on.
      .on('resume', () => parseOn(socket, connection))
      .once('close', () => forget(socket, connection));
  };

  const mayParse = (socket: Socket, connection: Connection) =>
    connection.waiting.length === 0 &&
    connection.unbegun === 0 &&
    connection.unparsed.length === 0 &&
    !connection.isMalformed &&
    !isPausedByNode(socket);

  const forget = (socket: Socket, connection: Connection) => {
    if (connections.get(socket) !== connection) return;
    connections.delete(socket);
    turns.forget(socket);
    unanswered -= connection.active + connection.waiting.length;
    connection.active = 0;
    connection.waiting = [];
    drop(socket, connection);
  };

  const parseOn = (socket: Socket, connection: Connection) => {
    while (connection.unparsed.length > 0 && socket.writable && !connection.isMalformed) {
      const isBehindOthers = connection.waiting.length > 0 || connection.unbegun > 0;
      if (isBehindOthers || socket.isPaused() || isPausedByNode(socket)) return hold(socket, connection);
      const piece = connection.unparsed.subarray(0, pieceBytes);
      unparsedBytes -= piece.length;
      connection.unparsed = connection.unparsed.subarray(piece.length);
      connection.parse(piece);
    }
    // Nobody will answer what comes behind an answer that ends the connection.
    drop(socket, connection);
    if (connection.waiting.length > 0 && socket.writable) socket.pause();
  };

  const hold = (socket: Socket, connection: Connection) => {
    socket.pause();
    // A view of a few bytes would keep all that was read with them.
    if (connection.unparsed.length < connection.unparsed.buffer.byteLength / 2) {
      connection.unparsed = Buffer.from(connection.unparsed);
    }
    held.set(socket, connection);
    while (unparsedBytes > maxUnparsedBytes) {
      const [longest] = held;
      if (longest === undefined) return;
      close(...longest);
    }
  };

  const drop = (socket: Socket, connection: Connection) => {
    held.delete(socket);
    unparsedBytes -= connection.unparsed.length;
    connection.unparsed = empty;
  };

  const close = (socket: Socket, connection: Connection) => {
    forget(socket, connection);
    socket.destroy();
  };

  const start = (
    socket: Socket,
    connection: Connection,
    [request, response]: [NodeRequest, NodeResponse],
  ) => {
    connection.active++;
    response.once('close', () => {
      // What a connection had when it closed was settled then.
      if (connections.get(socket) !== connection) return;
      connection.active--;
      unanswered--;
      if (connection.waiting.length > 0) setImmediate(startNext, socket, connection);
    });
    if (turns.take(cost.plain)) return handle(request as Request, response as Response);
    connection.unbegun++;
    const isWaiting = turns.wait(socket, cost.plain, () => {
      connection.unbegun--;
      // Behind an answer that ended the connection nothing is begun, as its answer could not be given.
      if (!socket.writable) return;
      handle(request as Request, response as Response);
      goOn(socket, connection);
    });
    if (!isWaiting) close(socket, connection);
  };

  /** In a turn of the event loop of its own, so that other connections have theirs. */
  const startNext = (socket: Socket, connection: Connection) => {
    if (!socket.writable) return;
    const next = connection.waiting.shift();
    if (next === undefined) return;
    start(socket, connection, next);
    goOn(socket, connection);
  };

  /** Reads on once no request waits, also for the body of the last one, which is still to come. */
  const goOn = (socket: Socket, connection: Connection) => {
    if (connection.waiting.length > 0 || connection.unbegun > 0 || isPausedByNode(socket)) return;
    held.delete(socket);
    socket.resume();
  };

  const onRequest = (request: Request, response: Response) => {
    const socket = request.socket as Socket;
    const connection = 'stream' in request ? undefined : connections.get(socket);
    if (connection === undefined) {
      if ('stream' in request) handleStream(request.stream, () => handle(request, response));
      // Of a connection that was closed above, nothing is answered any more.
      return;
    }
    unanswered++;
    if (connection.active < maxActive && connection.waiting.length === 0) {
      start(socket, connection, [request, response]);
    } else {
      connection.waiting.push([request, response]);
    }
    if (unanswered > maxUnanswered && connection.active + connection.waiting.length > 1) {
      close(socket, connection);
    }
  };

  const handleStream = (stream: ServerHttp2Stream, begin: () => void) => {
    beginStream(turns, stream, cost.plain, begin);
  };

  // After Node's own listeners, which attach the parser. The two kinds of servers share these events, not their types.
  (server as http.Server)
    .on(server instanceof tls.Server ? 'secureConnection' : 'connection', open)
    .on('request', onRequest as never)
    .on('checkContinue', onRequest as never)
    .on('checkExpectation', onRequest as never);
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

/** Node's mark on a connection whose answers are not taken; it resumes such a connection itself, and nobody else may. */
function isPausedByNode(socket: Socket & { _paused?: boolean }): boolean {
  return socket._paused === true;
}
