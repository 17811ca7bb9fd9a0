// A proxy between a client and a local server that can change or drop what they send.

import net from 'node:net';
import { type Listening, listen } from './listen.ts';

/** `serve` gets each client with its own connection to the server. `cut` closes both, as does the end of either. */
export function startTcpProxy(
  connect: () => net.Socket,
  serve: (client: net.Socket, server: net.Socket, cut: () => void) => void,
): Promise<Listening> {
  const proxy = net.createServer({ noDelay: true }, (client) => {
    const server = connect();
    const cut = () => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.on('error', cut).on('close', cut);
    serve(client, server, cut);
  });
  return listen(proxy);
}
