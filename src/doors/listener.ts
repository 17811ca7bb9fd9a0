import type http from 'node:http';
import type http2 from 'node:http2';
import { constants } from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import type { Logger } from 'pino';
import type { TransportLimits } from '../config/config.ts';
import { StartupError } from '../config/startup-error.ts';

type Server = http.Server | http2.Http2Server | http2.Http2SecureServer;

/**
 * When the service stops, connections that are open are served for this long before those that rest are closed: a
 * client that is about to send hears of the end by an answer, instead of losing its request.
 */
const drainGraceMs = 1_000;
/** Connections that made room are told in the log once in this time, not once each. */
const evictionReportMs = 10_000;

/** What a request came on. */
export type Connection = Socket | http2.Http2Session;

/**
 * One server and its connections: keeps them within the limits, and can let them finish and, after a while, cut them.
 * Where there are too many, the one that has been open for the longest time without a valid key makes room.
 */
export class Listener {
  readonly #server: Server;
  readonly #variable: string;
  readonly #requestedPort: number;
  readonly #open = new Set<Socket>();
  /** By address and port: a session of HTTP/2 or TLS does not give its socket away. */
  readonly #peers = new Map<string, Socket>();
  /** Those that have shown no valid key, the longest open first. */
  readonly #unknown = new Set<Socket>();
  readonly #kept = new WeakSet<Connection>();
  readonly #sessions = new Set<http2.ServerHttp2Session>();
  #isClosing = false;

  constructor(server: Server, variable: string, port: number, limits: TransportLimits, logger: Logger) {
    this.#server = server;
    this.#variable = variable;
    this.#requestedPort = port;
    const reportEviction = evictionReport(variable, limits.maxConnections, logger);
    server.on('connection', (socket: Socket) => {
      const peer = peerOf(socket);
      this.#open.add(socket);
      this.#peers.set(peer, socket);
      this.#unknown.add(socket);
      socket.once('close', () => {
        this.#open.delete(socket);
        // A client may come back from the same port before this event.
        if (this.#peers.get(peer) === socket) this.#peers.delete(peer);
        this.#unknown.delete(socket);
      });
      if (this.#open.size > limits.maxConnections) {
        this.#evict();
        reportEviction();
      }
    });
    server.on('session', (session: http2.ServerHttp2Session) => {
      this.#sessions.add(session);
      outliveFaultsOfStreams(session);
      // HTTP/1 has timeouts for that of its own; here a client has said something once its settings are there.
      const silence = setTimeout(() => session.destroy(), limits.headersTimeoutMs);
      session.once('remoteSettings', () => clearTimeout(silence));
      session.once('close', () => {
        clearTimeout(silence);
        this.#sessions.delete(session);
      });
      if (this.#isClosing) session.close();
    });
    // Calls that still run, such as a health check that is being watched, end before their session does.
    server.setTimeout(limits.idleTimeoutMs);
    server.on('timeout', (idle: Socket | http2.ServerHttp2Session) => {
      if ('goaway' in idle) idle.close();
      else idle.destroy();
    });
  }

  /** True of a connection of HTTP/1.1 that a valid key came on. */
  isKnown(socket: Socket): boolean {
    return this.#kept.has(socket);
  }

  /** A valid key came on the connection: it is not closed to make room for another. */
  keep(connection: Connection): void {
    if (this.#kept.has(connection)) return;
    this.#kept.add(connection);
    const socket = this.#peers.get(peerOf('goaway' in connection ? connection.socket : connection));
    if (socket !== undefined) this.#unknown.delete(socket);
  }

  /** Closes the connection that has been open for the longest time without a key; that may be the one that came last. */
  #evict(): void {
    const [longest] = this.#unknown;
    longest?.destroy();
  }

  /** Connections that are open. */
  get connections(): number {
    return this.#open.size;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Throws StartupError where the port cannot be used. */
  listen(host: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (error: NodeJS.ErrnoException) => {
        reject(new StartupError(this.#explain(error, host), { cause: error }));
      };
      this.#server.once('error', fail);
      this.#server.listen(this.#requestedPort, host, () => {
        this.#server.off('error', fail);
        resolve();
      });
    });
  }

  /** Takes no new connections, lets those that are open finish within the timeout, and cuts the rest. */
  async close(timeoutMs: number): Promise<void> {
    if (!this.#server.listening) return;
    const cut = setTimeout(() => {
      for (const session of this.#sessions) session.destroy();
      for (const socket of this.#open) socket.destroy();
    }, timeoutMs);
    // Node's own close() would end the connections that rest at this moment, a request on its way to us or not.
    const closed = new Promise((resolve) => net.Server.prototype.close.call(this.#server, resolve));
    // GOAWAY with the highest stream there can be: whatever is sent before the client has read it still counts.
    for (const session of this.#sessions) {
      if (!session.destroyed) session.goaway(constants.NGHTTP2_NO_ERROR, 2 ** 31 - 1);
    }
    await this.#disconnected(Math.min(drainGraceMs, timeoutMs / 2));
    this.#isClosing = true;
    this.#server.close();
    for (const session of this.#sessions) session.close();
    await closed;
    clearTimeout(cut);
  }

  /** Resolves once no connection is left, or after the time. */
  #disconnected(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      const check = () => {
        if (this.#open.size === 0) done();
      };
      for (const socket of this.#open) socket.once('close', check);
      check();
    });
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

/** `NGHTTP2_ERR_PROTO`. */
const protocolErrno = -505;
/** A session that is alive answers a ping well within that. */
const pingTimeoutMs = 2_000;

/**
 * One call whose content-length is not the length of its content ends alone. nghttp2 resets its stream and goes on, and
 * says GOAWAY where the fault is the session's; but Node destroys the session for either, and every call on it. A ping
 * tells the two apart: a session that has said GOAWAY neither sends it nor hears an answer.
 */
function outliveFaultsOfStreams(session: http2.ServerHttp2Session): void {
  const destroy = session.destroy.bind(session);
  let isBeingAsked = false;
  session.destroy = (error, code) => {
    const isOfStream = (error as { errno?: unknown } | undefined)?.errno === protocolErrno;
    if (!isOfStream || session.destroyed) return destroy(error, code);
    if (isBeingAsked) return;
    isBeingAsked = true;
    const settle = () => {
      clearTimeout(silence);
      session.off('close', settle);
      isBeingAsked = false;
    };
    const giveUp = () => {
      settle();
      destroy(error, code);
    };
    const silence = setTimeout(giveUp, pingTimeoutMs);
    session.once('close', settle);
    if (!session.ping(settle)) giveUp();
  };
}

/** Address and port, which no other open connection of a listener has. */
function peerOf({ remoteAddress, remotePort }: Pick<Socket, 'remoteAddress' | 'remotePort'>): string {
  return `${remoteAddress} ${remotePort}`;
}

function evictionReport(listener: string, maxConnections: number, logger: Logger): () => void {
  let evictions = 0;
  const report = () => {
    logger.warn(
      { listener, closed: evictions, max_connections: maxConnections },
      'connections without a valid key were closed to make room: too many are open',
    );
    evictions = 0;
  };
  return () => {
    evictions++;
    if (evictions === 1) setTimeout(report, evictionReportMs).unref();
  };
}
