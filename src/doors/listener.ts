import type http from 'node:http';
import type http2 from 'node:http2';
import type { AddressInfo, Server, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type tls from 'node:tls';
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import { StartupError } from '../config/startup-error.ts';
import type { Connection, Strangers } from './strangers.ts';

/**
 * After SIGTERM, open connections are served for this long before idle ones are closed. A request that a
 * client is about to send is then not lost, and its answer announces the end.
 */
const drainGraceMs = 1_000;
/** Connections closed to make room are logged once per interval, not one by one. */
const evictionReportMs = 10_000;

/** A port and the servers behind it, which do not listen themselves. */
export interface Port {
  port: Server;
  tls?: tls.Server;
  http1?: http.Server;
  http2?: http2.Http2Server;
}

/**
 * One port and its connections. Limits their number: if there are too many, the one of a stranger or a payer
 * that has been open longest is closed. On close, connections may finish until a timeout.
 */
export class Listener {
  readonly #port: Server;
  readonly #http1: http.Server | undefined;
  readonly #variable: string;
  readonly #open = new Set<Socket>();
  /** By client address and ports, because an HTTP/2 or TLS session does not expose its socket. */
  readonly #peers = new Map<string, Socket>();
  /** Connections without a valid key, the longest open first. Payers' connections are in `#payers`. */
  readonly #strangers = new Set<Socket>();
  readonly #payers = new Set<Socket>();
  readonly #sessions = new Set<http2.ServerHttp2Session>();
  #isClosing = false;

  constructor(
    { port, http1, http2 }: Port,
    variable: string,
    strangers: Strangers,
    limits: Config['limits'],
    logger: Logger,
  ) {
    this.#port = port;
    this.#http1 = http1;
    this.#variable = variable;
    const reportEviction = evictionReport(variable, limits.maxConnections, logger);
    port.on('connection', (socket: Socket) => {
      const peer = peerOf(socket);
      this.#open.add(socket);
      this.#peers.set(peer, socket);
      this.#strangers.add(socket);
      socket.once('close', () => {
        this.#open.delete(socket);
        // A client may come back from the same port before this event.
        if (this.#peers.get(peer) === socket) this.#peers.delete(peer);
        this.#strangers.delete(socket);
        this.#payers.delete(socket);
      });
      if (this.#open.size > limits.maxConnections) {
        this.#evict(socket, limits.maxConnections / 2);
        reportEviction();
      }
    });
    const socketOf = (connection: Connection) => {
      // A session that has ended has no socket.
      const socket = 'goaway' in connection ? (connection.socket as Socket | undefined) : connection;
      return socket && this.#peers.get(peerOf(socket as Socket));
    };
    strangers.on('validKey', (connection) => {
      const socket = socketOf(connection);
      if (socket === undefined) return;
      this.#strangers.delete(socket);
      this.#payers.delete(socket);
    });
    strangers.on('clientSecret', (connection) => {
      const socket = socketOf(connection);
      if (socket !== undefined && this.#strangers.delete(socket)) this.#payers.add(socket);
    });
    http2?.on('session', (session: http2.ServerHttp2Session) => {
      this.#sessions.add(session);
      keepSessionOnStreamErrors(session);
      // HTTP/1 has its own timeouts for this. An HTTP/2 client counts as active once its settings arrive.
      const silence = setTimeout(() => session.destroy(), limits.headersTimeoutMs);
      session.once('remoteSettings', () => clearTimeout(silence));
      session.once('close', () => {
        clearTimeout(silence);
        this.#sessions.delete(session);
      });
      if (this.#isClosing) session.close();
    });
    // Calls in progress, such as a watched health check, end before their session closes.
    // A connection that waits for its answer is not idle: the shortest limit for that is HTTP/2's.
    const silenceMs = Math.max(limits.idleTimeoutMs, 2 * limits.requestTimeoutMs);
    http1?.setTimeout(silenceMs, (idle) => idle.destroy());
    http2?.setTimeout(limits.idleTimeoutMs);
    http2?.on('timeout', (idle: http2.ServerHttp2Session) => idle.close());
  }

  /**
   * Closes the oldest connection of a stranger; of a payer while payers have more than `maxPayers`, or if only
   * the newest is a stranger's, which may be a merchant's.
   */
  #evict(newest: Socket, maxPayers: number): void {
    const [longest] = this.#strangers;
    const [payer = longest] = this.#payers;
    (longest === newest || this.#payers.size > maxPayers ? payer : longest)?.destroy();
  }

  get connections(): number {
    return this.#open.size;
  }

  /** Returns the port in use; 0 takes any free one. Throws StartupError if it cannot be used. */
  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      const fail = (error: NodeJS.ErrnoException) => {
        reject(new StartupError(this.#explain(error, host, port), { cause: error }));
      };
      this.#port.once('error', fail);
      this.#port.listen(port, host, () => {
        this.#port.off('error', fail);
        resolve((this.#port.address() as AddressInfo).port);
      });
    });
  }

  /** After the delay, tells clients and accepts nothing new. Cuts what does not finish within the timeout. */
  async close(timeoutMs: number, delayMs = 0): Promise<void> {
    if (!this.#port.listening) return;
    const cut = setTimeout(() => {
      for (const session of this.#sessions) session.destroy();
      for (const socket of this.#open) socket.destroy();
    }, timeoutMs);
    if (delayMs > 0) await sleep(delayMs);
    // GOAWAY with the last stream begun. nghttp2 begins none after a GOAWAY, whatever its id, and refuses at
    // once those that the client has sent meanwhile. The client can retry them on a new connection.
    for (const session of this.#sessions) if (!session.destroyed) session.goaway();
    const closed = new Promise((resolve) => this.#port.close(resolve));
    await this.#disconnected(Math.min(drainGraceMs, timeoutMs / 2));
    this.#isClosing = true;
    this.#http1?.closeIdleConnections();
    for (const session of this.#sessions) session.close();
    await closed;
    clearTimeout(cut);
  }

  /** Resolves once no connection is left, or after the timeout. */
  async #disconnected(timeoutMs: number): Promise<void> {
    const closed = [...this.#open].map((socket) => new Promise((resolve) => socket.once('close', resolve)));
    await Promise.race([Promise.all(closed), sleep(timeoutMs, undefined, { ref: false })]);
  }

  #explain({ code, message }: NodeJS.ErrnoException, host: string, port: number): string {
    const place = `port ${port} of ${host}`;
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
/** A live session answers a ping well within this time. */
const pingTimeoutMs = 2_000;

/**
 * Lets a call with a wrong content-length fail alone. nghttp2 resets its stream and continues; it sends
 * GOAWAY only if the session is at fault. Node destroys the session, and every call on it, in both cases. A
 * ping distinguishes them: a session that has sent GOAWAY neither sends the ping nor receives an answer.
 */
function keepSessionOnStreamErrors(session: http2.ServerHttp2Session): void {
  const destroyNow = session.destroy.bind(session);
  // Node clears the idle timeout too late, when it is refused: the session stayed in memory for that time.
  const destroy: typeof session.destroy = (error, code) => {
    session.setTimeout(0);
    destroyNow(error, code);
  };
  // Node's own listener destroys the session without that method.
  session.socket.prependOnceListener('close', () => session.setTimeout(0));
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

/** The client's address and port, and the local port: unique among the open connections. */
function peerOf(socket: Pick<Socket, 'remoteAddress' | 'remotePort' | 'localPort'>): string {
  return `${socket.remoteAddress} ${socket.remotePort} ${socket.localPort}`;
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
