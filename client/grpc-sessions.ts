// Connections of the gRPC client. connect-node's manager has no limit for a connection that hangs while it is
// opened or checked, and can leave a session without a listener for its error, which then ends the process.

import net from 'node:net';
import tls from 'node:tls';
import { Code, ConnectError } from '@connectrpc/connect';
import { Http2SessionManager } from '@connectrpc/connect-node';

/** The longest time until a connection is open, or known to be alive. */
const maxConnectMs = 5_000;

const ignore = () => {};

/** A manager of connections whose failures end neither the process nor later calls. */
export class GrpcSessions extends Http2SessionManager {
  readonly #connecting: Set<net.Socket>;
  #waiting = 0;
  #limit: NodeJS.Timeout | undefined;

  constructor(baseUrl: string, pings?: ConstructorParameters<typeof Http2SessionManager>[1]) {
    const connecting = new Set<net.Socket>();
    super(baseUrl, pings, {
      createConnection({ protocol, hostname, port }) {
        const isSecure = protocol === 'https:';
        const host = hostname.replace(/^\[|\]$/g, '');
        const target = { host, port: Number(port) || (isSecure ? 443 : 80) };
        // As Node.js does by default.
        const names = { ALPNProtocols: ['h2'], ...(net.isIP(host) === 0 && { servername: host }) };
        const socket = isSecure ? tls.connect({ ...target, ...names }) : net.connect(target);
        connecting.add(socket);
        const forget = () => void connecting.delete(socket);
        return socket.once(isSecure ? 'secureConnect' : 'connect', forget).once('close', forget);
      },
    });
    this.#connecting = connecting;
  }

  /** Also ends what is still connecting: Node.js lets a socket go on when its session is destroyed. */
  override abort(reason?: Error): void {
    super.abort(reason);
    for (const socket of this.#connecting) socket.destroy();
  }

  override async request(...request: Parameters<Http2SessionManager['request']>) {
    this.#waiting++;
    this.#limit ??= this.#startLimit();
    try {
      const stream = await super.request(...request);
      const { session } = stream;
      // A session's error may come after the manager has dropped it with its listeners.
      if (session !== undefined && !session.listeners('error').includes(ignore)) session.on('error', ignore);
      return stream;
    } finally {
      clearTimeout(this.#limit);
      // The next attempt has its own time.
      this.#limit = --this.#waiting > 0 ? this.#startLimit() : undefined;
    }
  }

  #startLimit(): NodeJS.Timeout {
    return setTimeout(() => {
      this.#limit = this.#startLimit();
      this.abort(new ConnectError(`no connection within ${maxConnectMs} ms`, Code.Unavailable));
    }, maxConnectMs);
  }
}
