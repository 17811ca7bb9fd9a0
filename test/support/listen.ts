import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Listening {
  port: number;
  url: string;
  /** Closes the server and its connections. */
  close(): Promise<void>;
}

/** Starts a server on a free port. */
export async function listen(server: Server, host = '127.0.0.1'): Promise<Listening> {
  const sockets = new Set<{ destroy(): void }>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  server.listen(0, host);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const scheme = 'setSecureContext' in server ? 'https' : 'http';
  return {
    port,
    url: `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`,
    async close() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

/** Returns a port on which nothing listens. */
export async function closedPort(): Promise<number> {
  const { port, close } = await listen(createServer());
  await close();
  return port;
}

/** Starts a server for the rest of the test. Returns its address. */
export async function listenInTest(server: Server): Promise<string> {
  const { url, close } = await listen(server);
  onTestFinished(close);
  return url;
}

/**
 * Each worker has its own ports, below those that systems assign to connections. The tests of faults run
 * beside the others.
 */
let nextPort = 8_000 + 2_000 * Number(process.env.VITEST_POOL_ID ?? 0) + Number(process.env.PORT_OFFSET ?? 0);

type Ports = Record<'HTTP_PORT' | 'GRPC_PORT' | 'METRICS_PORT', string>;

/** Returns ports that a service can use, and use again after it was killed. */
export async function choosePorts(): Promise<Ports> {
  const [HTTP_PORT = '', GRPC_PORT = '', METRICS_PORT = ''] = [0, 1, 2].map(() => String(nextPort++));
  return { HTTP_PORT, GRPC_PORT, METRICS_PORT };
}
