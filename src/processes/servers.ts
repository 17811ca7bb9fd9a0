// The servers of the ports, their limits, and their answers to wrong protocols. A port accepts connections
// and hands each to Node's server of its protocol by the documented event `connection`.

import { readFile } from 'node:fs/promises';
import http from 'node:http';
import http2 from 'node:http2';
import net, { type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import tls from 'node:tls';
import type { Logger } from 'pino';
import { type Config, readTls } from '../config/config.ts';
import { Listener, type Port } from '../doors/listener.ts';
import { PacedSocket } from '../doors/paced-socket.ts';
import type { Strangers } from '../doors/strangers.ts';
import { answerMalformedHttp, createProtocolLog, expectProtocol } from '../doors/unreadable-input.ts';
import type { RequestObserver } from '../requests/request-context.ts';
import type { createDoors } from './create-doors.ts';

/** Creates the servers of the ports without listening. */
export async function createServers(config: Config, limits: Config['limits']) {
  const pair = config.tls && (await readTls(config.tls));
  const tlsServer = (...ALPNProtocols: string[]) =>
    pair && { tls: tls.createServer({ ...pair, ALPNProtocols, handshakeTimeout: limits.headersTimeoutMs }) };
  // Node's HTTP/1.1 server ends the connection itself. HTTP/2 and TLS end with the client's side.
  const port = (allowHalfOpen: boolean) => net.createServer({ allowHalfOpen, noDelay: true });
  return {
    certificateDueMs: pair?.dueMs,
    public: {
      port: port(pair === undefined),
      http1: createHttp1Server(limits),
      ...(pair && { http2: createHttp2Server(limits), ...tlsServer('h2', 'http/1.1') }),
    },
    internal: { port: port(false), http2: createHttp2Server(limits), ...tlsServer('h2') },
    operations: { port: port(true), http1: createHttp1Server(limits) },
    console: { port: port(pair === undefined), http1: createHttp1Server(limits), ...tlsServer('http/1.1') },
  };
}

type Servers = Awaited<ReturnType<typeof createServers>>;

/**
 * Connects the servers to the doors, and invalid input to its handlers. Returns the listeners of their ports,
 * not open yet.
 */
export function createListeners(
  servers: Servers,
  doors: Awaited<ReturnType<typeof createDoors>>,
  strangers: Record<'doors' | 'operations' | 'console', Strangers>,
  { limits, logger }: { limits: Config['limits']; logger: Logger },
  onEnd: RequestObserver,
) {
  const log = createProtocolLog(logger);
  const { scheme } = doors;
  const malformed = { log, maxHeaderBytes: limits.maxHeaderBytes, onEnd: () => {}, scheme };
  serveHttp1(servers.public.http1, doors.public);
  answerMalformedHttp(servers.public.http1, 'HTTP_PORT', { ...malformed, onEnd });
  servers.public.http2?.on('request', (request, response) => {
    strangers.doors.startStream(request.stream, () => doors.public(request, response));
  });
  servers.internal.http2.on('stream', doors.internal);
  serveHttp1(servers.operations.http1, doors.operations);
  answerMalformedHttp(servers.operations.http1, 'METRICS_PORT', { ...malformed, scheme: 'http' });
  if (doors.console) serveHttp1(servers.console.http1, doors.console);
  answerMalformedHttp(servers.console.http1, 'CONSOLE_PORT', malformed);
  const listenerOf = (
    variable: string,
    server: Port,
    from: Strangers,
    ofPort: Config['limits'],
    expected?: typeof tlsOnly | typeof http2Only,
  ) => {
    const admit = expected && expectProtocol({ variable, ...expected }, limits.headersTimeoutMs, log);
    accept(server, from, admit);
    return new Listener(server, variable, from, ofPort, logger);
  };
  // Without one, a server itself answers another protocol.
  const [ofPublic, ofInternal] = scheme === 'https' ? [tlsOnly, tlsOnly] : [undefined, http2Only];
  const ofOperations = atMost(limits, maxOperationsConnections);
  const ofConsole = atMost(limits, maxConsoleConnections);
  return {
    public: listenerOf('HTTP_PORT', servers.public, strangers.doors, limits, ofPublic),
    internal: listenerOf('GRPC_PORT', servers.internal, strangers.doors, limits, ofInternal),
    operations: listenerOf('METRICS_PORT', servers.operations, strangers.operations, ofOperations),
    console: listenerOf('CONSOLE_PORT', servers.console, strangers.console, ofConsole),
  };
}

/** What is expected on ports whose servers would silently close another protocol's connection. */
const tlsOnly = { expected: 'TLS', hint: 'This port speaks TLS. Use https in place of http.' } as const;
const http2Only = {
  expected: 'HTTP/2',
  hint: 'This port speaks HTTP/2, for gRPC and gRPC-Web and Connect. JSON over HTTP/1.1 is on HTTP_PORT.',
} as const;

/** Passes each connection to the server of its protocol, after `admit` if there is one. */
function accept(
  { port, tls: tlsServer, http1, http2: http2Server }: Port,
  strangers: Strangers,
  admit: ReturnType<typeof expectProtocol> | undefined,
): void {
  const serve = (socket: Socket) => {
    const speaksHttp2 = http1 === undefined || (socket as tls.TLSSocket).alpnProtocol === 'h2';
    if (speaksHttp2) http2Server?.emit('connection', socket);
    else http1.emit('connection', new PacedSocket(socket, strangers));
  };
  tlsServer?.on('secureConnection', serve);
  const pass =
    tlsServer === undefined ? serve : (socket: Socket) => void tlsServer.emit('connection', socket);
  port.on('connection', admit === undefined ? pass : (socket) => admit(socket, pass));
}

/** Serves the server's requests, including those with an `Expect` header. */
function serveHttp1(
  server: http.Server,
  serve: (request: http.IncomingMessage, response: http.ServerResponse) => void,
): void {
  const begin = (request: http.IncomingMessage, response: http.ServerResponse) => {
    if (request.socket.destroyed) return;
    (request.socket as Duplex as PacedSocket).begin(response, () => serve(request, response));
  };
  server.on('request', begin).on('checkContinue', begin).on('checkExpectation', begin);
}

/** Most connections of probes and scrapers. */
const maxOperationsConnections = 64;
/** A browser opens six. */
const maxConsoleConnections = 256;
/** Open files besides connections of clients and of the database. */
const otherFiles = 64;

function atMost(limits: Config['limits'], connections: number): Config['limits'] {
  return { ...limits, maxConnections: Math.min(limits.maxConnections, connections) };
}

/** Returns the limits, with fewer connections if the limit of open files is low: the database needs some. */
export async function fitConnections(
  { limits, databasePool, console }: Config,
  logger: Logger,
): Promise<Config['limits']> {
  // Node has already raised this limit as far as allowed. Not every system reports it.
  const processLimits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const [, openFiles] = /^Max open files +(\d+)/m.exec(processLimits) ?? [];
  if (openFiles === undefined) return limits;
  const others = maxOperationsConnections + (console ? maxConsoleConnections : 0) + databasePool + otherFiles;
  const fitting = Math.max(16, Math.floor((Number(openFiles) - others) / 2));
  if (limits.maxConnections <= fitting) return limits;
  logger.warn(
    { max_connections: limits.maxConnections, open_files: Number(openFiles), taken: fitting },
    `each port accepts only ${fitting} connections, to fit the limit of ${openFiles} open files: raise it (ulimit -n), or lower MAX_CONNECTIONS`,
  );
  return atMost(limits, fitting);
}

/** How often the timeouts of HTTP/1 connections are checked. */
const connectionsCheckMs = 1_000;

function createHttp1Server(limits: Config['limits']): http.Server {
  const server = http.createServer({
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.idleTimeoutMs,
    maxHeaderSize: limits.maxHeaderBytes,
    connectionsCheckingInterval: connectionsCheckMs,
    // The door refuses a missing Host header itself, in its own format.
    requireHostHeader: false,
  });
  // A client may close its side after its requests and still gets its answers (RFC 9112, section 9.6).
  Object.assign(server, { httpAllowHalfOpen: true });
  // Node starts to check the timeouts on this event.
  server.emit('listening');
  return server;
}

/**
 * Calls that a client may cancel at once, and per second, before its connection is closed. With Node's 1,000
 * and 33, a busy backend whose deadlines pass on a slow database would lose the connection of all its calls.
 */
const streamResets = { streamResetBurst: 4_000, streamResetRate: 400 };

function createHttp2Server(limits: Config['limits']): http2.Http2Server {
  return http2.createServer({
    ...streamResets,
    settings: { maxConcurrentStreams: limits.maxConcurrentStreams, maxHeaderListSize: limits.maxHeaderBytes },
  });
}

/** Reads the TLS files again, for new connections. Throws StartupError and keeps the old ones if unusable. */
export async function reloadTls({ tls }: Config, servers: Servers): Promise<number | undefined> {
  if (tls === undefined) return undefined;
  const pair = await readTls(tls);
  for (const server of [servers.public.tls, servers.internal.tls, servers.console.tls])
    server?.setSecureContext(pair);
  return pair.dueMs;
}
