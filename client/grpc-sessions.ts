// Connections of the gRPC client. connect-node's manager has no limit for a connection that hangs while it is
// opened or checked, and can leave a session without a listener for its error, which then ends the process.

import { constants } from 'node:http2';
import net from 'node:net';
import tls from 'node:tls';
import { Code, ConnectError } from '@connectrpc/connect';
import { Http2SessionManager } from '@connectrpc/connect-node';

/** How long a call waits until a connection is open, or known to be alive. A resolver may take 5 s of it. */
const maxConnectMs = 8_000;

const ignore = () => {};

/** A manager of connections whose failures end neither the process nor later calls. */
export class GrpcSessions extends Http2SessionManager {
  readonly #connecting: Set<net.Socket>;

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
    const asked = super.request(...request);
    const { promise: late, reject } = Promise.withResolvers<never>();
    const limit = setTimeout(() => {
      const reason = new ConnectError(`no connection within ${maxConnectMs} ms`, Code.Unavailable);
      reject(reason);
      // The next call opens another connection. Calls on one that is shutting down go on.
      if (this.state() === 'verifying') this.abort(reason);
      else for (const socket of this.#connecting) socket.destroy();
    }, maxConnectMs);
    try {
      const stream = await Promise.race([asked, late]);
      const { session } = stream;
      // A session's error may come after the manager has dropped it with its listeners.
      if (session !== undefined && !session.listeners('error').includes(ignore)) session.on('error', ignore);
      return stream;
    } catch (reason) {
      // Nobody waits for it any more.
      asked.then((stream) => stream.close(constants.NGHTTP2_CANCEL), ignore);
      throw reason;
    } finally {
      clearTimeout(limit);
    }
  }
}
