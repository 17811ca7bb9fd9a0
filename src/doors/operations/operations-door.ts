import type { RequestListener, ServerResponse } from 'node:http';
import { catalogue, type ErrorCode } from '../../contract/error-catalogue.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { pathWithoutSlashOf } from '../node-headers.ts';
import type { Readiness } from './readiness.ts';

/** The door of probes and scrapers: GET `/healthz` (alive), `/readyz` (send requests here) and `/metrics`. */
export function createOperationsDoor(readiness: Readiness, metrics: Metrics): RequestListener {
  return (request, response) => {
    const path = pathWithoutSlashOf(request);
    if (path !== '/healthz' && path !== '/readyz' && path !== '/metrics') {
      return refuse(response, 404, 'not_found');
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return refuse(response, 405, 'method_not_allowed');
    }
    if (path === '/healthz') return send(response, 200, { status: 'alive' });
    if (path === '/metrics') {
      metrics.text().then(
        ({ contentType, body }) => sendText(response, 200, contentType, body),
        () => refuse(response, 500, 'internal'),
      );
      return;
    }
    void readiness.check().then((status) => send(response, status === 'ready' ? 200 : 503, { status }));
  };
}

function refuse(response: ServerResponse, status: number, code: ErrorCode): void {
  send(response, status, { error: { code, message: catalogue[code].message } });
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
