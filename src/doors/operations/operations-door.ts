import type { IncomingMessage, ServerResponse } from 'node:http';
import { catalogue } from '../../contract/error-catalogue.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { pathWithoutSlashOf } from '../node-headers.ts';
import type { Readiness } from './readiness.ts';

/** The door for probes and scrapers: `GET /healthz` (the process is alive), `/readyz` (send requests here) and `/metrics`. */
export function createOperationsDoor(
  readiness: Readiness,
  metrics: Metrics,
): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const path = pathWithoutSlashOf(request);
    if (path !== '/healthz' && path !== '/readyz' && path !== '/metrics') {
      return send(response, 404, { error: { code: 'not_found', message: catalogue.not_found.message } });
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return send(response, 405, {
        error: { code: 'method_not_allowed', message: catalogue.method_not_allowed.message },
      });
    }
    if (path === '/healthz') return send(response, 200, { status: 'alive' });
    if (path === '/metrics') {
      metrics.text().then(
        ({ contentType, body }) => sendText(response, 200, contentType, body),
        () => send(response, 500, { error: { code: 'internal', message: catalogue.internal.message } }),
      );
      return;
    }
    void readiness.check().then((status) => send(response, status === 'ready' ? 200 : 503, { status }));
  };
}

function send(response: ServerResponse, status: number, body: object): void {
  sendText(response, status, 'application/json', `${JSON.stringify(body)}\n`);
}

function sendText(response: ServerResponse, status: number, contentType: string, text: string): void {
  response.writeHead(status, {
    'Content-Type': contentType,
    'Content-Length': Buffer.byteLength(text),
    'Cache-Control': 'no-store',
  });
  response.end(text);
}
