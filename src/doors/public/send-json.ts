import type { ServerResponse } from 'node:http';
import type { RequestContext } from '../../requests/request-context.ts';
import type { NodeRequest, NodeResponse } from '../node-headers.ts';
import { PacedSocket } from '../paced-socket.ts';

export interface JsonAnswer {
  status: number;
  /** Omitted in a 204 and a 304. */
  body: string;
  headers: Iterable<[string, string]>;
}

/** Sends a JSON text. Closes the connection while the service is draining. */
export function sendJson(
  { request, response, context }: { request: NodeRequest; response: NodeResponse; context: RequestContext },
  { status, body, headers }: JsonAnswer,
  isDraining: () => boolean,
): void {
  const hasBody = status !== 204 && status !== 304;
  const all = hasBody
    ? ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(body))]
    : [];
  all.push('Cache-Control', 'no-store', 'X-Request-Id', context.requestId);
  for (const [name, value] of headers) all.push(name, value);
  // HTTP/2 uses GOAWAY for this.
  const { socket } = request;
  if (isDraining() && socket instanceof PacedSocket && socket.isLastRequest) all.push('Connection', 'close');
  (response as ServerResponse).writeHead(status, all);
  // As a string, which Node sends in one piece with the head.
  response.end(body);
}
