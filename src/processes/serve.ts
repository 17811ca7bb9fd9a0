import http from 'node:http';
import http2 from 'node:http2';
import type net from 'node:net';
import type { Logger } from 'pino';
import manifest from '../../package.json' with { type: 'json' };
import type { Config, TransportLimits } from '../config/config.ts';
import { readTls } from '../config/tls.ts';
import { file_google_rpc_error_details } from '../contract/gen/google/rpc/error_details_pb.ts';
import { Health } from '../contract/gen/health/v1/health_pb.ts';
import { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { createDatabaseProbe } from '../database/writability.ts';
import { createAuthentication, type GateContext } from '../doors/authentication.ts';
import { FairTurns } from '../doors/fair-turns.ts';
import { registerHealth } from '../doors/internal/health.ts';
import { createInternalDoor } from '../doors/internal/internal-door.ts';
import { registerReflection } from '../doors/internal/reflection.ts';
import { type Connection, Listener } from '../doors/listener.ts';
import { createOperationsDoor } from '../doors/operations/operations-door.ts';
import { createReadiness } from '../doors/operations/readiness.ts';
import { handlePipelined } from '../doors/pipelining.ts';
import { loadDocumentation } from '../doors/public/documentation.ts';
import { answerMalformedHttp } from '../doors/public/malformed-http.ts';
import { createPublicDoor } from '../doors/public/public-door.ts';
import { createRateLimit } from '../doors/rate-limit.ts';
import { admitOnly, createProtocolLog, type ExpectedProtocol } from '../doors/wrong-protocol.ts';
import { createApiKeys } from '../merchants/api-keys.ts';
import { listenForKeyChanges } from '../merchants/key-changes.ts';
import { createPaymentIntentService, createPaymentIntentViolations } from '../payment-intents/service.ts';
import { createPaymentIntentStore } from '../payment-intents/store.ts';
import type { RequestObserver } from '../requests/request-context.ts';
import type { LogOutput } from '../telemetry/logging.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { createRequestLog } from '../telemetry/request-log.ts';
import { startTracing } from '../telemetry/tracing.ts';
import type { Database } from './open-database.ts';
import { openFilesLimit } from './open-files.ts';

export interface RunningServer {
  /** The ports in use, also where the configuration left the choice open with 0. */
  ports: { http: number; grpc: number; metrics: number };
  /**
   * Stops taking new work, finishes what is in flight, and closes the listeners: connections that are still open a
   * second before the drain timeout are cut. The database stays open: it belongs to whoever opened it.
   */
  close(): Promise<void>;
  /**
   * Reads the TLS files again: new connections get the new certificate, open ones keep theirs. Throws StartupError where
   * the files are not usable; the old certificate stays then.
   */
  reloadTls(): Promise<void>;
}

/** Opens the three listeners. Throws StartupError where a port or a TLS file cannot be used. */
export async function startServer(
  config: Config,
  database: Database,
  logger: Logger,
  { droppedLines }: Pick<LogOutput, 'droppedLines'> = { droppedLines: () => 0 },
): Promise<RunningServer> {
  const limits = {
    ...config.limits,
    maxConnections: fitConnections(config, await openFilesLimit(), logger),
  };
  const metrics = createMetrics(PaymentIntentService.methods.map(({ name }) => name));
  const tracing = config.tracing ? await startTracing(manifest.version, logger) : undefined;
  const requestLog = createRequestLog(logger);
  const onEnd: RequestObserver = (context, rpc, outcome) => {
    requestLog.observe(context, rpc, outcome);
    metrics.request(context, rpc, outcome);
    tracing?.end(context, outcome);
  };
  const apiKeys = createApiKeys(database.orm.em, database.keyRing('API_KEY_PEPPERS'), {
    onLookup: metrics.keyLookup,
    tracing,
  });
  const authentication = createAuthentication(apiKeys);
  const rateLimit = createRateLimit(config.rateLimit);
  const gate = async (context: GateContext) => {
    await authentication.gate(context);
    rateLimit.take(context.values);
  };
  const interceptors = [authentication.interceptor, rateLimit.interceptor];
  const databaseProbe = createDatabaseProbe(database.orm.em);
  const store = createPaymentIntentStore(database.orm.em, config.queue, {
    onBatch: metrics.batch,
    onFailedWrite: databaseProbe.onFailedWrite,
    tracing,
  });
  const implementation = createPaymentIntentService(store, database.keyRing('CLIENT_SECRET_KEYS'));
  const readiness = createReadiness(databaseProbe.probe);
  const stopping = new AbortController();
  const turns = new FairTurns();

  const scheme = config.tls ? 'https' : 'http';
  // On a developer's own machine, and over HTTP: the page sends from http://localhost or http://127.0.0.1.
  const allowsTryIt = database.embedded && scheme === 'http';
  const publicDoor = createPublicDoor({
    services: [
      {
        service: PaymentIntentService,
        methods: { ...implementation },
        violationsOf: { createPaymentIntent: createPaymentIntentViolations },
      },
    ],
    interceptors,
    gate,
    logger,
    onEnd,
    tracing,
    isDraining: readiness.isDraining,
    requestTimeoutMs: limits.requestTimeoutMs,
    keepConnection: (connection: Connection) => publicListener.keep(connection),
    scheme,
    documentation: await loadDocumentation({ allowsTryIt }),
    allowsTryIt,
  });
  const internalDoor = createInternalDoor({
    service: PaymentIntentService,
    methods: { ...implementation },
    interceptors,
    gate,
    turns,
    openRoutes: (router) => {
      registerHealth(router, readiness, [PaymentIntentService.typeName]);
      registerReflection(router, [PaymentIntentService, Health], [file_google_rpc_error_details]);
    },
    keepConnection: (connection: Connection) => internalListener.keep(connection),
    shutdownSignal: stopping.signal,
    requestTimeoutMs: limits.requestTimeoutMs,
    logger,
    onEnd,
    tracing,
  });

  const http1Options = http1OptionsOf(limits);
  const http2Options = http2OptionsOf(limits);
  const tls = config.tls && (await readTls(config.tls));
  const tlsOptions = tls && { ...tls, ...http2Options, handshakeTimeout: limits.headersTimeoutMs };
  const publicServer = tlsOptions
    ? http2.createSecureServer({ ...tlsOptions, allowHTTP1: true, http1Options })
    : http.createServer(http1Options);
  const logWrongProtocol = createProtocolLog(logger);
  handlePipelined(publicServer, publicDoor, turns, (socket) => publicListener.isKnown(socket));
  answerMalformedHttp(publicServer, limits.maxHeaderBytes, onEnd, scheme, (spoken) =>
    logWrongProtocol(spoken, { variable: 'HTTP_PORT', expected: 'HTTP/1.1' }),
  );
  const internalServer = tlsOptions ? http2.createSecureServer(tlsOptions) : http2.createServer(http2Options);
  internalServer.on('stream', internalDoor);
  for (const server of [publicServer, internalServer] as net.Server[]) {
    server.on('session', (session: http2.ServerHttp2Session) => {
      session.once('close', () => turns.forget(session));
    });
  }
  for (const [server, port] of wrongProtocolHints(publicServer, internalServer, tls !== undefined)) {
    admitOnly(server, port, limits.headersTimeoutMs, logWrongProtocol);
  }
  const operationsServer = http.createServer(http1Options);
  handlePipelined(operationsServer, createOperationsDoor(readiness, metrics), new FairTurns());

  const listeners = [
    new Listener(publicServer, 'HTTP_PORT', config.httpPort, limits, logger),
    new Listener(internalServer, 'GRPC_PORT', config.grpcPort, limits, logger),
    new Listener(operationsServer, 'METRICS_PORT', config.metricsPort, operationsLimits(limits), logger),
  ] as const;
  const [publicListener, internalListener, operationsListener] = listeners;
  metrics.watch({
    version: manifest.version,
    waitingCreates: store.waiting,
    droppedLogLines: droppedLines,
    pool: await database.orm.em.getConnection().getNativeClient(),
    connections: () => ({
      public: publicListener.connections,
      internal: internalListener.connections,
      operations: operationsListener.connections,
    }),
    isReady: async () => (await readiness.check()) === 'ready',
  });
  const keyChanges = await listenForKeyChanges(database.location, apiKeys.forget, logger);
  try {
    for (const listener of listeners) await listener.listen(config.host);
  } catch (error) {
    await Promise.all([keyChanges.stop(), ...listeners.map((listener) => listener.close(0))]);
    throw error;
  }

  return {
    ports: { http: publicListener.port, grpc: internalListener.port, metrics: operationsListener.port },
    async close() {
      readiness.drain();
      stopping.abort();
      const requestsMs = drainTimeForRequests(config.drainTimeoutMs);
      await Promise.all([publicListener.close(requestsMs), internalListener.close(requestsMs)]);
      requestLog.stop();
      await Promise.all([operationsListener.close(0), keyChanges.stop(), tracing?.stop()]);
    },
    async reloadTls() {
      if (config.tls === undefined) return;
      const pair = await readTls(config.tls);
      for (const server of [publicServer, internalServer]) {
        if ('setSecureContext' in server) server.setSecureContext(pair);
      }
    },
  };
}

/** Connections of probes and scrapers. */
const maxOperationsConnections = 64;
/** Files that are open beside the connections of clients and of the database. */
const otherFiles = 64;

function operationsLimits(limits: TransportLimits): TransportLimits {
  return { ...limits, maxConnections: Math.min(limits.maxConnections, maxOperationsConnections) };
}

/** `MAX_CONNECTIONS`, or what the limit of open files leaves to each door: without it the database would go short too. */
function fitConnections(
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
    `only ${fitting} connections to a port fit the limit of ${openFiles} open files: raise it, as ulimit -n does, or lower MAX_CONNECTIONS`,
  );
  return fitting;
}

/** The servers that Node would let close a wrong protocol without a word, and what to say there. */
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

/** The time to stop, less what is kept for closing the rest: a second, or half of a shorter time. */
function drainTimeForRequests(drainTimeoutMs: number): number {
  return Math.max(drainTimeoutMs - 1_000, drainTimeoutMs / 2);
}

/** How often HTTP/1 connections are held against their timeouts. */
const connectionsCheckMs = 1_000;

function http1OptionsOf(limits: TransportLimits): http.ServerOptions {
  return {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.idleTimeoutMs,
    maxHeaderSize: limits.maxHeaderBytes,
    connectionsCheckingInterval: connectionsCheckMs,
    // The door refuses that itself, in the form of every refusal.
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
