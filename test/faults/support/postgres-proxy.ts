// A TCP proxy in front of PostgreSQL that understands where the server's messages begin and end, and can keep one back
// or cut the connection at one.

import net from 'node:net';
import { startTcpProxy } from '../../support/tcp-proxy.ts';

export interface ServerMessage {
  /** As the protocol names it, such as `C` for CommandComplete and `A` for NotificationResponse. */
  type: string;
  body: Buffer;
}

/** What becomes of a message from the server. To cut is to close both sides before the client sees any of it. */
export type Verdict = 'forward' | 'drop' | 'cut';

export interface PostgresProxy {
  /** For `DATABASE_URL`. */
  url: string;
  /** Closes it and all its connections. */
  close(): Promise<void>;
}

/** `judge` is made anew for each connection. */
export async function startPostgresProxy(
  serverSocket: string,
  user: string,
  judge: () => (message: ServerMessage) => Verdict,
): Promise<PostgresProxy> {
  const connect = () => net.connect(serverSocket);
  const { port, close } = await startTcpProxy(connect, (client, server, cut) => {
    const verdictOf = judge();
    client.pipe(server);
    let unread: Buffer = Buffer.alloc(0);
    server.on('data', (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk]);
      // One letter, then the length of what follows, itself included.
      while (unread.length >= 5 && unread.length > unread.readUInt32BE(1)) {
        const end = 1 + unread.readUInt32BE(1);
        const message = { type: String.fromCharCode(unread[0] as number), body: unread.subarray(5, end) };
        const verdict = verdictOf(message);
        if (verdict === 'cut') return cut();
        if (verdict === 'forward') client.write(unread.subarray(0, end));
        unread = unread.subarray(end);
      }
    });
  });
  return { url: `postgresql://${user}@127.0.0.1:${port}/postgres`, close };
}
