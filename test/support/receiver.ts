// A receiver of webhooks: a server on its own port that keeps its requests.

import { once } from 'node:events';
import http from 'node:http';
import { type Listening, listen } from './listen.ts';

export interface Received {
  path: string;
  headers: Record<string, string>;
  /** The body as received. */
  body: string;
}

export interface Receiver extends Listening {
  /** In the order of their arrival. */
  requests: Received[];
  /** The number of connections so far, including those without a request. */
  connections(): number;
  /** Resolves when that many requests have arrived in all. */
  arrived(count: number): Promise<Received[]>;
}

export type Answer = (request: Received, response: http.ServerResponse) => void;

/** Starts a receiver, which answers 204 by default. */
export async function startReceiver(
  answer: Answer = (_, response) => response.writeHead(204).end(),
  server: http.Server = http.createServer(),
  host = '127.0.0.1',
): Promise<Receiver> {
  const requests: Received[] = [];
  let connections = 0;
  server.on('connection', () => connections++);
  server.on('request', async (request: http.IncomingMessage, response: http.ServerResponse) => {
    const chunks: Buffer[] = [];
    // A sender that gives up is not an error of the receiver.
    request.on('error', () => {});
    for await (const chunk of request) chunks.push(chunk);
    const received = {
      path: request.url ?? '',
      headers: request.headers as Record<string, string>,
      body: Buffer.concat(chunks).toString(),
    };
    requests.push(received);
    server.emit('received');
    answer(received, response);
  });
  return {
    ...(await listen(server, host)),
    requests,
    connections: () => connections,
    async arrived(count) {
      while (requests.length < count) await once(server, 'received');
      return requests;
    },
  };
}
