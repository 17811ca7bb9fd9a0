// A process that receives webhooks. It answers 204 at once under /answers/, and never under /hangs/. To take
// little of the machine, it verifies no signature, but keeps some requests for the benchmark to verify.

import http from 'node:http';
import type { Arrivals } from './deliveries.ts';

/** One request in this many is kept whole. */
const keepEvery = 101;

const none = (): Arrivals => ({ count: 0, hanging: 0, firstAtMs: 0, lastAtMs: 0, byEvent: {}, kept: [] });
let arrivals = none();

const server = http.createServer((request, response) => {
  const path = request.url ?? '';
  if (request.method === 'GET') {
    // The counts are requested often, the rest once.
    const { byEvent, kept, ...counts } = arrivals;
    return void response.end(JSON.stringify(path === '/counts' ? counts : { ...counts, byEvent, kept }));
  }
  if (path === '/forget') {
    arrivals = none();
    return void response.writeHead(204).end();
  }
  // The sender gives up on these.
  request.on('error', () => {});
  if (path.startsWith('/hangs/')) {
    arrivals.hanging++;
    return void request.resume();
  }
  const nowMs = Date.now();
  if (arrivals.count === 0) arrivals.firstAtMs = nowMs;
  arrivals.lastAtMs = nowMs;
  arrivals.count++;
  arrivals.byEvent[String(request.headers['webhook-id'])] ??= nowMs;
  if (arrivals.count % keepEvery === 1) {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const headers = request.headers as Record<string, string>;
      arrivals.kept.push({ path, headers, body: Buffer.concat(chunks).toString() });
    });
  } else {
    request.resume();
  }
  response.writeHead(204).end();
});
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('ready'));
