// A network that loses a request, then an answer, and then works; over HTTP/1 something in it answers 503 in between.

import { once } from 'node:events';
import net from 'node:net';

export interface LossyNetwork {
  port: number;
  close(): void;
}

export interface LossyNetworkOptions {
  /** The third connection is answered 503, by this `Retry-After`. */
  unavailableOnce?: string;
}

/** In front of a port of this machine. Its second connection brings a request and takes the answer away. */
export async function startLossyNetwork(
  port: number,
  { unavailableOnce }: LossyNetworkOptions = {},
): Promise<LossyNetwork> {
  let connections = 0;
  const open = new Set<net.Socket>();
  const network = net.createServer((client) => {
    const server = net.connect(port, '127.0.0.1');
    const cut = () => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      open.add(socket);
      socket.on('error', cut).on('close', () => {
        open.delete(socket);
        cut();
      });
    }
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
  network.listen(0, '127.0.0.1');
  await once(network, 'listening');
  return {
    port: (network.address() as net.AddressInfo).port,
    close() {
      network.close();
      for (const socket of open) socket.destroy();
    },
  };
}
