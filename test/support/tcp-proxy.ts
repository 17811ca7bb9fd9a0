// A proxy between a client and a local server that can change or drop what they send.

import { once } from 'node:events';
import net from 'node:net';

export interface TcpProxy {
  port: number;
  /** Closes the proxy and all its connections. */
  close(): Promise<void>;
}

/** `serve` gets each client with its own connection to the server. `cut` closes both, as does the end of either. */
export async function startTcpProxy(
  connect: () => net.Socket,
  serve: (client: net.Socket, server: net.Socket, cut: () => void) => void,
): Promise<TcpProxy> {
  const open = new Set<net.Socket>();
  const proxy = net.createServer((client) => {
    const server = connect();
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
    serve(client, server, cut);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    port: (proxy.address() as net.AddressInfo).port,
    async close() {
      for (const socket of open) socket.destroy();
      await once(proxy.close(), 'close');
    },
  };
}
