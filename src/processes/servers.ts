// The Node servers of the three ports, their limits, and their answers to wrong protocols.

import http from 'node:http';
import http2 from 'node:http2';
import type net from 'node:net';
import type { Logger } from 'pino';
import type { Config, TransportLimits } from '../config/config.ts';
import { readTls } from '../config/tls.ts';
import { FairTurns } from '../doors/fair-turns.ts';
import { handlePipelined } from '../doors/pipelining.ts';
import { answerMalformedHttp } from '../doors/public/malformed-http.ts';
import { admitOnly, createProtocolLog, type ExpectedProtocol } from '../doors/wrong-protocol.ts';
import type { RequestObserver } from '../requests/request-context.ts';

/** Creates the servers of the three ports without listening. */
export async function createServers(config: Config, limits: TransportLimits) {
  const http1Options = http1OptionsOf(limits);
  const http2Options = http2OptionsOf(limits);
  const tls = config.tls && (await readTls(config.tls));
  const tlsOptions = tls && { ...tls, ...http2Options, handshakeTimeout: limits.headersTimeoutMs };
  return {
    isTls: tls !== undefined,
    public: tlsOptions
      ? http2.createSecureServer({ ...tlsOptions, allowHTTP1: true, http1Options })
      : http.createServer(http1Options),
    internal: tlsOptions ? http2.createSecureServer(tlsOptions) : http2.createServer(http2Options),
    operations: http.createServer(http1Options),
  };
}

type Servers = Awaited<ReturnType<typeof createServers>>;

interface Doors {
  public: Parameters<typeof handlePipelined>[1];
  internal: (
    stream: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    flags: number,
    rawHeaders: string[],
  ) => void;
  operations: http.RequestListener;
  scheme: 'http' | 'https';
}

/** Connects the servers to the doors, and invalid requests to their handlers. */
export function connectServers(
  servers: Servers,
  doors: Doors,
  onEnd: RequestObserver,
  turns: FairTurns,
  limits: TransportLimits,
  logger: Logger,
  isStranger: (socket: net.Socket) => boolean,
): void {
  const logWrongProtocol = createProtocolLog(logger);
  handlePipelined(servers.public, doors.public, turns, isStranger);
  answerMalformedHttp(servers.public, limits.maxHeaderBytes, onEnd, doors.scheme, (spoken) =>
    logWrongProtocol(spoken, { variable: 'HTTP_PORT', expected: 'HTTP/1.1' }),
  );
  servers.internal.on('stream', doors.internal);
  for (const server of [servers.public, servers.internal] as net.Server[]) {
    server.on('session', (session: http2.ServerHttp2Session) => {
      session.once('close', () => turns.forget(session));
    });
  }
  for (const [server, port] of wrongProtocolHints(servers.public, servers.internal, servers.isTls)) {
    admitOnly(server, port, limits.headersTimeoutMs, logWrongProtocol);
  }
  handlePipelined(servers.operations, doors.operations, new FairTurns());
  const ignored = () => {};
  answerMalformedHttp(servers.operations, limits.maxHeaderBytes, ignored, 'http', (spoken) =>
    logWrongProtocol(spoken, { variable: 'METRICS_PORT', expected: 'HTTP/1.1' }),
  );
}

/** Most connections of probes and scrapers. */
const maxOperationsConnections = 64;
/** Open files besides connections of clients and of the database. */
const otherFiles = 64;

export function operationsLimits(limits: TransportLimits): TransportLimits {
  return { ...limits, maxConnections: Math.min(limits.maxConnections, maxOperationsConnections) };
}

/** Returns `MAX_CONNECTIONS`, or less if the limit of open files requires it: the database needs connections too. */
export function fitConnections(
  { limits, databasePool }: Config,
  openFiles: number | undefined,
  logger: Logger,
): number {
  if (openFiles === undefined) return limits.maxConnections;
  const others = maxOperationsConnections + databasePool + otherFiles;
  const fitting = Math.max(16, Math.floor((openFiles - others) / 2));
  if (limits.maxConnections <= fitting) return limits.maxConnections;
  logger.warn(
    { max_connections: limits.maxConnections, open_files: openFiles, taken: fitting },
    `each port accepts only ${fitting} connections, to fit the limit of ${openFiles} open files: raise it (ulimit -n), or lower MAX_CONNECTIONS`,
  );
  return fitting;
}

/** The servers that need a hint for wrong protocols; Node would close the connection silently. */
function wrongProtocolHints(
  publicServer: net.Server,
  internalServer: net.Server,
  isTls: boolean,
): [net.Server, ExpectedProtocol][] {
  const needsTls = 'This port speaks TLS. Use https in place of http.';
  const needsHttp2 =
    'This port speaks HTTP/2, for gRPC and gRPC-Web and Connect. JSON over HTTP/1.1 is on HTTP_PORT.';
  const grpc = { variable: 'GRPC_PORT', door: 'internal' } as const;
  if (!isTls) return [[internalServer, { ...grpc, expected: 'HTTP/2', hint: needsHttp2 }]];
  return [
    [publicServer, { variable: 'HTTP_PORT', door: 'public', expected: 'TLS', hint: needsTls }],
    [internalServer, { ...grpc, expected: 'TLS', hint: needsTls }],
  ];
}

/** How often the timeouts of HTTP/1 connections are checked. */
const connectionsCheckMs = 1_000;

function http1OptionsOf(limits: TransportLimits): http.ServerOptions {
  return {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.idleTimeoutMs,
    maxHeaderSize: limits.maxHeaderBytes,
    connectionsCheckingInterval: connectionsCheckMs,
    // The door refuses a missing Host header itself, in its own format.
    requireHostHeader: false,
  };
}

function http2OptionsOf(limits: TransportLimits): http2.ServerOptions {
  return {
    settings: {
      maxConcurrentStreams: limits.maxConcurrentStreams,
      maxHeaderListSize: limits.maxHeaderBytes,
    },
  };
}

/** Reads the TLS files again; new connections get the new certificate. */
export async function reloadTls({ tls }: Config, servers: Servers): Promise<void> {
  if (tls === undefined) return;
  const pair = await readTls(tls);
  for (const server of [servers.public, servers.internal]) {
    if ('setSecureContext' in server) server.setSecureContext(pair);
  }
}
