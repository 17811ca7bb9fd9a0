import { readFile } from 'node:fs/promises';
import http from 'node:http';
import http2 from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import { createSecureContext } from 'node:tls';
import type { Logger } from 'pino';
import { createAuthentication } from './authentication.ts';
import type { Config } from './config.ts';
import type { Database } from './database/open-database.ts';
import { createInternalDoor } from './doors/internal-door.ts';
import { createOperationsDoor } from './doors/operations-door.ts';
import { createPublicDoor } from './doors/public-door.ts';
import { ServiceError, toErrorJson } from './errors.ts';
import { file_google_rpc_error_details } from './gen/google/rpc/error_details_pb.ts';
import { Health } from './gen/health/v1/health_pb.ts';
import { PaymentIntentService } from './gen/payments/v1/payment_intent_service_pb.ts';
import { logRequest } from './logging.ts';
import { createApiKeys } from './merchants/api-keys.ts';
import { listenForKeyChanges } from './merchants/key-changes.ts';
import { registerHealth } from './operations/health.ts';
import { createReadiness } from './operations/readiness.ts';
import { registerReflection } from './operations/reflection.ts';
import { createPaymentIntentService, createPaymentIntentViolations } from './payment-intents/service.ts';
import { createPaymentIntentStore } from './payment-intents/store.ts';
import { newRequestContext } from './request-context.ts';
import { StartupError } from './startup-error.ts';

export interface RunningServer {
  /** The ports in use, also where the configuration left the choice open with 0. */
  ports: { http: number; grpc: number; metrics: number };
  /**
   * Stops taking new work, finishes what is in flight within the drain timeout, and closes the listeners. The
   * database stays open: it belongs to who opened it.
   */
  close(): Promise<void>;
}

/** Limits of the transports. A client that needs more is broken or hostile. */
const limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  /** Longer than the idle timeout of common load balancers (60 s), so that they close first. */
  keepAliveTimeoutMs: 65_000,
  maxHeaderBytes: 16 * 1024,
  maxConcurrentStreams: 256,
};

/** Opens the three listeners. Throws StartupError where a port or a TLS file cannot be used. */
export async function startServer(
  config: Config,
  database: Database,
  logger: Logger,
): Promise<RunningServer> {
  const apiKeys = createApiKeys(database.orm.em, database.keyRing('API_KEY_PEPPERS'));
  const { gate, interceptor: authenticated } = createAuthentication(apiKeys);
  const implementation = createPaymentIntentService(
    createPaymentIntentStore(database.orm.em),
    database.keyRing('CLIENT_SECRET_KEYS'),
  );
  const readiness = createReadiness(() => database.orm.em.fork().execute('select 1'));
  const interceptors = [authenticated];
  const stopping = new AbortController();

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
    isDraining: readiness.isDraining,
  });
  const internalDoor = createInternalDoor({
    service: PaymentIntentService,
    methods: { ...implementation },
    interceptors,
    gate,
    openRoutes: (router) => {
      registerHealth(router, readiness, [PaymentIntentService.typeName]);
      registerReflection(router, [PaymentIntentService, Health], [file_google_rpc_error_details]);
    },
    shutdownSignal: stopping.signal,
    logger,
  });

  const tls = config.tls && (await readTls(config.tls));
  const publicServer = tls
    ? http2.createSecureServer({ ...tls, ...http2Options, allowHTTP1: true, http1Options }, publicDoor)
    : http.createServer(http1Options, publicDoor);
  publicServer
    .on('checkContinue', publicDoor)
    .on('clientError', (error, socket) => answerMalformedHttp(error, socket as Socket, logger));
  const internalServer = tls
    ? http2.createSecureServer({ ...tls, ...http2Options })
    : http2.createServer(http2Options);
  internalServer.on('stream', internalDoor);
  const operationsServer = http.createServer(http1Options, createOperationsDoor(readiness));

  const listeners = [
    new Listener(publicServer, 'HTTP_PORT', config.httpPort),
    new Listener(internalServer, 'GRPC_PORT', config.grpcPort),
    new Listener(operationsServer, 'METRICS_PORT', config.metricsPort),
  ] as const;
  const [publicListener, internalListener, operationsListener] = listeners;
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
      await Promise.all([
        publicListener.close(config.drainTimeoutMs),
        internalListener.close(config.drainTimeoutMs),
      ]);
      await Promise.all([operationsListener.close(0), keyChanges.stop()]);
    },
  };
}

const http1Options: http.ServerOptions = {
  headersTimeout: limits.headersTimeoutMs,
  requestTimeout: limits.requestTimeoutMs,
  keepAliveTimeout: limits.keepAliveTimeoutMs,
  maxHeaderSize: limits.maxHeaderBytes,
};

const http2Options: http2.ServerOptions = {
  settings: {
    maxConcurrentStreams: limits.maxConcurrentStreams,
    maxHeaderListSize: limits.maxHeaderBytes,
  },
};

async function readTls({ certFile, keyFile }: { certFile: string; keyFile: string }) {
  const read = (variable: string, file: string) =>
    readFile(file).catch((cause) => {
      throw new StartupError(`${variable} cannot be read (${cause.message}): set it to a PEM file`, {
        cause,
      });
    });
  const pair = { cert: await read('TLS_CERT_FILE', certFile), key: await read('TLS_KEY_FILE', keyFile) };
  try {
    createSecureContext(pair);
  } catch (cause) {
    throw new StartupError(
      `TLS_CERT_FILE and TLS_KEY_FILE are not a usable pair (${(cause as Error).message}): set them to a certificate and its key in PEM`,
      { cause },
    );
  }
  return pair;
}

type Server = http.Server | http2.Http2Server | http2.Http2SecureServer;

/** One server and its connections, so that it can finish them and, after a while, cut them. */
class Listener {
  readonly #server: Server;
  readonly #variable: string;
  readonly #requestedPort: number;
  readonly #sockets = new Set<Socket>();
  readonly #sessions = new Set<http2.ServerHttp2Session>();

  constructor(server: Server, variable: string, port: number) {
    this.#server = server;
    this.#variable = variable;
    this.#requestedPort = port;
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    server.on('session', (session: http2.ServerHttp2Session) => {
      this.#sessions.add(session);
      session.once('close', () => this.#sessions.delete(session));
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  listen(host: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', (error: NodeJS.ErrnoException) => {
        reject(new StartupError(this.#explain(error, host), { cause: error }));
      });
      this.#server.listen(this.#requestedPort, host, () => {
        this.#server.removeAllListeners('error');
        resolve();
      });
    });
  }

  /** Takes no new connections, lets those that work finish within the timeout, and cuts the rest. */
  async close(timeoutMs: number): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    // GOAWAY: the streams that are open go on, no new ones.
    for (const session of this.#sessions) session.close();
    const cut = setTimeout(() => {
      for (const session of this.#sessions) session.destroy();
      for (const socket of this.#sockets) socket.destroy();
    }, timeoutMs);
    await closed;
    clearTimeout(cut);
  }

  #explain({ code, message }: NodeJS.ErrnoException, host: string): string {
    const place = `port ${this.#requestedPort} of ${host}`;
    switch (code) {
      case 'EADDRINUSE':
        return `${place} is taken: stop what uses it, or set ${this.#variable} to another port`;
      case 'EACCES':
        return `${place} needs more rights than this user has: set ${this.#variable} to a port above 1023`;
      case 'EADDRNOTAVAIL':
      case 'ENOTFOUND':
        return `HOST ${host} is not an address of this machine: set it to one, such as 127.0.0.1 or 0.0.0.0`;
      default:
        return `${place} cannot be opened (${message}): set HOST and ${this.#variable}`;
    }
  }
}

/** What is not HTTP, or too slow, or too much of it, gets an answer too where the client can still read one. */
function answerMalformedHttp(error: NodeJS.ErrnoException, socket: Socket, logger: Logger): void {
  // The client has gone, or closed its side in the middle of a request, which then ends as canceled.
  if (error.code === 'ECONNRESET' || error.code === 'HPE_INVALID_EOF_STATE' || !socket.writable) {
    socket.destroy();
    return;
  }
  const { status, message } = malformedHttp[error.code ?? ''] ?? {
    status: '400 Bad Request',
    message: 'The request is not valid HTTP.',
  };
  const context = newRequestContext('public');
  const { requestId } = context;
  const body = JSON.stringify(toErrorJson(new ServiceError('invalid_body', { message }), requestId));
  socket.end(
    `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n` +
      `X-Request-Id: ${requestId}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  logRequest(logger, context, undefined, 'invalid_body');
}

const malformedHttp: Record<string, { status: string; message: string }> = {
  HPE_HEADER_OVERFLOW: {
    status: '431 Request Header Fields Too Large',
    message: `The headers are larger than ${limits.maxHeaderBytes / 1024} KiB.`,
  },
  ERR_HTTP_REQUEST_TIMEOUT: {
    status: '408 Request Timeout',
    message: 'The request did not arrive in time.',
  },
};
