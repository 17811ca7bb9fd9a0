import type { IncomingMessage, ServerResponse } from 'node:http';
import { catalogue } from '../errors.ts';
import type { Readiness } from '../operations/readiness.ts';
import { pathOf } from './node-headers.ts';

/** The door of probes: `GET /healthz` (the process is alive) and `GET /readyz` (it should be sent requests). */
export function createOperationsDoor(
  readiness: Readiness,
): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const path = pathOf(request);
    if (path !== '/healthz' && path !== '/readyz') {
      return send(response, 404, { error: { code: 'not_found', message: catalogue.not_found.message } });
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return send(response, 405, {
        error: { code: 'method_not_allowed', message: catalogue.method_not_allowed.message },
      });
    }
    if (path === '/healthz') return send(response, 200, { status: 'alive' });
    void readiness.check().then((status) => send(response, status === 'ready' ? 200 : 503, { status }));
  };
}

function send(response: ServerResponse, status: number, body: object): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(text),
    'Cache-Control': 'no-store',
  });
  response.end(text);
}
