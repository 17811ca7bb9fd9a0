// A network that loses a request, then an answer, and then works; over HTTP/1 something in it answers 503 in between.

import net from 'node:net';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

export interface LossyNetworkOptions {
  /** The third connection is answered 503, by this `Retry-After`. */
  unavailableOnce?: string;
}

/** In front of a port of this machine. Its second connection brings a request and takes the answer away. */
export async function startLossyNetwork(
  port: number,
  { unavailableOnce }: LossyNetworkOptions = {},
): Promise<TcpProxy & { connections(): number }> {
  let connections = 0;
  const connect = () => net.connect(port, '127.0.0.1');
  const proxy = await startTcpProxy(connect, (client, server, cut) => {
    connections++;
    if (connections === 1) return cut();
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
      // The intent is made, and nobody hears of it. HTTP/2 begins with some bytes of its own.
      if (connections === 2 && bytes > 200) cut();
      else client.write(chunk);
    });
  });
  return { ...proxy, connections: () => connections };
}
