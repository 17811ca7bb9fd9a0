// A TCP proxy in front of PostgreSQL that splits the server's stream into messages, and can drop one or cut
// the connection at one. It can also hang, like a network that loses every packet for a while.

import net from 'node:net';
import { startTcpProxy } from './tcp-proxy.ts';

export interface ServerMessage {
  /** The protocol's letter, such as `C` for CommandComplete and `A` for NotificationResponse. */
  type: string;
  body: Buffer;
}

/** What to do with a message from the server. `cut` closes both sides before the client sees any of it. */
export type Verdict = 'forward' | 'drop' | 'cut';

export interface PostgresProxy {
  /** A `DATABASE_URL`. */
  url: string;
  /** From now on no bytes pass in either direction, and new connections get no answer. Nothing is closed. */
  hang(): void;
  /** Passes on the held bytes, and goes on. */
  goOn(): void;
  /** Closes the proxy and all its connections. */
  close(): Promise<void>;
}

/** A new `judge` is created for each connection. */
export async function startPostgresProxy(
  serverSocket: string,
  user: string,
  judge: () => (message: ServerMessage) => Verdict,
): Promise<PostgresProxy> {
  const connect = () => net.connect(serverSocket);
  let isHanging = false;
  const connections = new Set<{ hang(): void; goOn(): void }>();
  const { port, close } = await startTcpProxy(connect, (client, server, cut) => {
    const verdictOf = judge();
    const connection = {
      hang() {
        client.unpipe(server).pause();
        server.pause();
      },
      goOn() {
        client.pipe(server);
        server.resume();
      },
    };
    connections.add(connection);
    client.on('close', () => connections.delete(connection));
    let unread: Buffer = Buffer.alloc(0);
    server.on('data', (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk]);
      // One letter, then the length of the rest, including the length itself.
      while (unread.length >= 5 && unread.length > unread.readUInt32BE(1)) {
        const end = 1 + unread.readUInt32BE(1);
        const message = { type: String.fromCharCode(unread[0] as number), body: unread.subarray(5, end) };
        const verdict = verdictOf(message);
        if (verdict === 'cut') return cut();
        if (verdict === 'forward') client.write(unread.subarray(0, end));
        unread = unread.subarray(end);
      }
    });
    if (isHanging) connection.hang();
    else connection.goOn();
  });
  return {
    url: `postgresql://${user}@127.0.0.1:${port}/postgres`,
    hang() {
      isHanging = true;
      for (const connection of connections) connection.hang();
    },
    goOn() {
      isHanging = false;
      for (const connection of connections) connection.goOn();
    },
    close,
  };
}
