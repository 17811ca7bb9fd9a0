// A network that resets a connection, then loses an answer, and then works. Over HTTP/1 it returns one 503 in between.

import net from 'node:net';
import type { Listening } from './listen.ts';
import { startTcpProxy } from './tcp-proxy.ts';

export interface LossyNetworkOptions {
  /** The third connection gets a 503 with this `Retry-After`. */
  unavailableOnce?: string;
}

/**
 * Listens in front of a local port. The first connection is reset. The second delivers its request, loses the answer and
 * is closed, which a client may see as a reset too.
 */
export async function startLossyNetwork(
  port: number,
  { unavailableOnce }: LossyNetworkOptions = {},
): Promise<Listening & { connections(): number }> {
  let connections = 0;
  const connect = () => net.connect(port, '127.0.0.1');
  const proxy = await startTcpProxy(connect, (client, server, cut) => {
    connections++;
    if (connections === 1) {
      client.resetAndDestroy();
      return;
    }
    if (connections === 3 && unavailableOnce !== undefined) {
      const body = '{"error":"no such code"}';
      client.once('data', () => {
        client.end(
          `HTTP/1.1 503 Service Unavailable\r\nRetry-After: ${unavailableOnce}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
        );
      });
      return;
    }
    client.pipe(server);
    let bytes = 0;
    server.on('data', (chunk) => {
      bytes += chunk.length;
      // The intent is created, and its answer is lost. HTTP/2 begins with a few bytes of settings.
      if (connections === 2 && bytes > 200) cut();
      else client.write(chunk);
    });
  });
  return { ...proxy, connections: () => connections };
}
