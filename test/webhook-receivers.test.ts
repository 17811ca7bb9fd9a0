// A receiver costs at most about ten seconds, one connection and 64 KiB, and does not delay any other.

import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import tls from 'node:tls';
import { queryObjects } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { Pool } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { type AttemptResult, createSender } from '../src/webhooks/sender.ts';
import { makeCertificate } from './support/certificates.ts';
import { insertEventRows } from './support/event-rows.ts';
import { closedPort, listen } from './support/listen.ts';
import { type Receiver, startReceiver } from './support/receiver.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker, policyWithPublic, type WebhookWorker } from './support/webhook-worker.ts';

/** Those that earlier tests of this process have left, and the prototype of one kind of pool. */
const poolsBefore = queryObjects(Pool, { format: 'count' });
const service = await useService({ ROLES: 'api', WEBHOOK_ALLOW: '127.0.0.0/8' });
let healthy: Receiver;
let worker: WebhookWorker;
/** The attempts, in the order in which they ended. */
const ended: { url: string; result: AttemptResult }[] = [];
const closing: (() => unknown)[] = [];
/** The most bytes that any connection has read from a receiver that sends without end. */
let mostTaken = 0;

/** The open connections of each port. */
const connections = new Map<number, Set<net.Socket>>();

/** Opens a server that calls this for each connection. Returns its port. */
async function open(onConnection: (socket: net.Socket) => void): Promise<number> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    onConnection(socket);
    // The end of a connection is seen only if it is read.
    socket.resume();
  });
  const { port, close } = await listen(server);
  closing.push(close);
  connections.set(port, sockets);
  return port;
}

/** Answers every request with these bytes, and then calls `then`. */
const answering = (head: string, then: (socket: net.Socket) => void = () => {}) =>
  open((socket) => {
    socket.once('data', () => {
      socket.write(head);
      then(socket);
    });
  });

/** Writes the text at intervals while the connection is open. */
const trickle = (socket: net.Socket, text: string, everyMs: number) => {
  const timer = setInterval(() => socket.write(text), everyMs);
  socket.on('close', () => clearInterval(timer));
};

/** Sends as fast as the other side takes it, up to a limit. */
const pour = (socket: net.Socket, limitBytes = Number.POSITIVE_INFINITY) => {
  const block = Buffer.alloc(256 * 1024, 'x');
  const push = () => {
    while (!socket.destroyed && socket.bytesWritten < limitBytes && socket.write(block));
  };
  socket.on('drain', push).on('close', () => {
    mostTaken = Math.max(mostTaken, socket.bytesWritten - socket.writableLength);
  });
  push();
};

/** Opens a port whose queue of connections is full, so that the kernel accepts no more. */
async function portThatAcceptsNothing(): Promise<number> {
  const worker = new Worker(
    `const { parentPort } = require('node:worker_threads');
     const server = require('node:net').createServer();
     server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
       parentPort.postMessage(server.address().port);
       // The thread stops here, so that no connection is taken from the queue.
       setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
     });`,
    { eval: true },
  );
  const [port] = await once(worker, 'message');
  const fillers = Array.from({ length: 8 }, () => net.connect(port, '127.0.0.1').on('error', () => {}));
  closing.push(async () => {
    for (const filler of fillers) filler.destroy();
    await worker.terminate();
  });
  await once(fillers[0] as net.Socket, 'connect');
  return port;
}

interface Case {
  /** Undefined if there was no answer. */
  statusCode: number | undefined;
  error: string | RegExp | undefined;
  /** The beginning of the stored part of the answer. */
  response?: string;
  /** The shortest and the longest duration of the attempt. */
  ms: [number, number];
}

const soon: [number, number] = [0, 8_000];
const afterTen: [number, number] = [9_900, 12_500];
const noAnswer = 'no answer within 10 s';
const notHttp = 'the answer was not HTTP, or the connection broke';

const noConnection = /^no (?:connection|answer) within 10 s$/;
const tooLarge = 'the headers of the answer are larger than 16 KiB';

const unanswered = (error: string | RegExp, ms = soon): Case => ({ statusCode: undefined, error, ms });

/** The expected outcome of each receiver, by its name. */
const cases: Record<string, Case> = {
  'never answers': unanswered(noAnswer, afterTen),
  'sends its headers byte by byte': unanswered(noAnswer, afterTen),
  'sends interim answers without end': unanswered('more than 10 interim answers (1xx) came before an answer'),
  'sends 100 Continue unasked': unanswered('answered 100 Continue, which was not requested'),
  'never finishes the TLS handshake': unanswered(noConnection, afterTen),
  'accepts no connection': unanswered(noConnection, afterTen),
  // The status decides. The attempt does not wait for the rest of the answer.
  'sends its body byte by byte': { statusCode: 200, error: undefined, response: 'ooo', ms: [1_900, 8_000] },
  'stops within its body': { statusCode: 200, error: undefined, response: 'part', ms: [1_900, 8_000] },
  'never ends its body': { statusCode: 200, error: undefined, response: 'x'.repeat(1_024), ms: soon },
  'never ends the body of a failure': {
    statusCode: 500,
    error: 'answered 500',
    response: 'x'.repeat(1_024),
    ms: soon,
  },
  'sends 10 MB': { statusCode: 200, error: undefined, response: 'x'.repeat(1_024), ms: soon },
  'sends chunks without end': { statusCode: 200, error: undefined, response: 'ab', ms: soon },
  'breaks off within its body': { statusCode: 200, error: undefined, response: 'part', ms: soon },
  'sends large headers': unanswered(tooLarge),
  'sends headers without end': unanswered(tooLarge),
  'closes at once': unanswered(/^(?:the answer was not HTTP|the connection was reset)/),
  'resets the connection': unanswered('the connection was reset'),
  'closes within its headers': unanswered(notHttp),
  'speaks another protocol': unanswered(notHttp),
  'answers with random bytes': unanswered(notHttp),
  'changes the protocol': unanswered(notHttp),
  'does not listen': unanswered('the connection was refused'),
  'has a self-signed certificate': unanswered(
    'the TLS certificate or handshake is not acceptable (DEPTH_ZERO_SELF_SIGNED_CERT)',
  ),
  'does not speak TLS': unanswered(/^the TLS certificate or handshake is not acceptable \(ERR_SSL_\w+\)$/),
};

test('HTTP/2 is not offered, because a receiver behind a proxy may answer with headers that HTTP/2 forbids', async () => {
  const offered = Promise.withResolvers<string[]>();
  const certificate = await makeCertificate('shop.example');
  const server = tls.createServer({
    ...certificate,
    ALPNCallback({ protocols }) {
      offered.resolve(protocols);
      return protocols[0];
    },
  });
  // Without ALPN no protocol is offered.
  server.on('tlsClientError', () => offered.resolve([])).on('secureConnection', () => offered.resolve([]));
  const { port, close } = await listen(server);
  const sender = createSender(policyWithPublic('127.0.0.1'));
  await sender.send(`https://127.0.0.1:${port}/`, {}, '{}');
  expect(await offered.promise).not.toContain('h2');
  await Promise.all([sender.close(), close()]);
});

async function openReceivers(): Promise<Record<keyof typeof cases, string>> {
  const ok = 'HTTP/1.1 200 OK\r\n';
  const plain = (port: number) => `http://127.0.0.1:${port}/`;
  const secure = (port: number) => `https://127.0.0.1:${port}/`;
  const selfSigned = await startReceiver(
    undefined,
    https.createServer(await makeCertificate('shop.example')),
  );
  closing.push(selfSigned.close);
  return {
    'never answers': plain(await open(() => {})),
    'sends its headers byte by byte': plain(
      await answering(`${ok}x-slow: `, (socket) => trickle(socket, 'x', 200)),
    ),
    'sends interim answers without end': plain(
      await answering('', (socket) => trickle(socket, 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n', 100)),
    ),
    'sends 100 Continue unasked': plain(
      await answering(`HTTP/1.1 100 Continue\r\n\r\n${ok}content-length: 0\r\n\r\n`),
    ),
    'never finishes the TLS handshake': secure(await open(() => {})),
    'accepts no connection': plain(await portThatAcceptsNothing()),
    'sends its body byte by byte': plain(
      await answering(`${ok}content-length: 100000\r\n\r\n`, (socket) => trickle(socket, 'o', 100)),
    ),
    'stops within its body': plain(await answering(`${ok}content-length: 100\r\n\r\npart`)),
    'never ends its body': plain(await answering(`${ok}connection: close\r\n\r\n`, (socket) => pour(socket))),
    'never ends the body of a failure': plain(
      await answering('HTTP/1.1 500 No\r\nconnection: close\r\n\r\n', (socket) => pour(socket)),
    ),
    'sends 10 MB': plain(
      await answering(`${ok}content-length: 10000000\r\n\r\n`, (socket) => pour(socket, 10_000_000)),
    ),
    'sends chunks without end': plain(
      await answering(`${ok}transfer-encoding: chunked\r\n\r\n`, (socket) =>
        trickle(socket, '2\r\nab\r\n', 20),
      ),
    ),
    'breaks off within its body': plain(
      await answering(`${ok}content-length: 100\r\n\r\npart`, (socket) => socket.end()),
    ),
    'sends large headers': plain(await answering(`${ok}x-large: ${'x'.repeat(17 * 1024)}\r\n\r\n`)),
    'sends headers without end': plain(await answering(`${ok}x-large: `, (socket) => pour(socket))),
    'closes at once': plain(await open((socket) => void socket.end())),
    'resets the connection': plain(
      await open((socket) => socket.once('data', () => void socket.resetAndDestroy())),
    ),
    'closes within its headers': plain(await answering(`${ok}content-le`, (socket) => socket.end())),
    'speaks another protocol': plain(await answering('SSH-2.0-OpenSSH_10.0\r\n')),
    'answers with random bytes': plain(await answering('\u0016\u0003\u0001\u0000\ufffd\ufffd{}')),
    'changes the protocol': plain(
      await answering(
        'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n',
      ),
    ),
    'does not listen': plain(await closedPort()),
    'has a self-signed certificate': secure(selfSigned.port),
    'does not speak TLS': secure(await answering('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n')),
  };
}

let urls: Record<string, string>;
/** Ids of the endpoints by the name of their receiver. */
const endpoints = new Map<string, string>();
const healthyEvents = 40;

beforeAll(async () => {
  healthy = await startReceiver(undefined, http.createServer());
  urls = { ...(await openReceivers()), healthy: `${healthy.url}/` };
  const { merchant } = service;
  for (const [name, url] of Object.entries(urls)) {
    const { json } = await service.call(
      'createWebhookEndpoint',
      { url },
      { apiKey: merchant.keys.testnet.apiKey },
    );
    endpoints.set(name, json.id);
  }
  worker = createWebhookWorker(service.database.orm.em, service.database.keyRing('WEBHOOK_SECRET_KEYS'), {
    policy: policyWithPublic('127.0.0.1'),
    async onSend({ url }, run) {
      const result = await run();
      ended.push({ url, result });
      return result;
    },
  });
  // One event for each receiver, and more for the healthy one than may be in flight at once.
  const event = { merchantId: merchant.id };
  await insertEventRows(service.query, [event]);
  await worker.makeDeliveries();
  await insertEventRows(
    service.query,
    Array.from({ length: healthyEvents - 1 }, () => event),
  );
  await service.query('update webhook_endpoints set enabled = id = $1', [
    parseIdentifier('we', endpoints.get('healthy') as string),
  ]);
  await worker.makeDeliveries();
  await service.query('update webhook_endpoints set enabled = true');
  // As if all but the last attempt had been made, so that nothing is retried here.
  await service.query('update webhook_deliveries set scheduled = 8');
  await worker.attemptAll();
}, 60_000);

afterAll(async () => {
  await worker.close();
  await healthy.close();
  await Promise.all(closing.map((close) => close()));
});

test.each(Object.keys(cases))('a receiver that %s', async (name) => {
  const attempts = ended.filter(({ url }) => url === urls[name]);
  expect(attempts).toHaveLength(1);
  const [{ result }] = attempts as [(typeof ended)[number]];
  const { statusCode, error, response, ms } = cases[name] as Case;
  expect(result.statusCode).toBe(statusCode);
  if (error instanceof RegExp) expect(result.error).toMatch(error);
  else expect(result.error).toBe(error);
  if (response === undefined) expect(result.response).toBeUndefined();
  else expect(result.response?.toString().startsWith(response)).toBe(true);
  expect(result.response?.length ?? 0).toBeLessThanOrEqual(1_024);
  expect(result.durationMs).toBeGreaterThanOrEqual(ms[0]);
  expect(result.durationMs).toBeLessThanOrEqual(ms[1]);
  // The attempt is recorded as it ended.
  const [row] = await service.query(
    `select d.status, a.status_code, a.error from webhook_deliveries d
       join webhook_attempts a using (event_id, endpoint_id) where endpoint_id = $1`,
    [parseIdentifier('we', endpoints.get(name) as string)],
  );
  expect(row).toEqual({
    status: error === undefined ? 'delivered' : 'pending',
    status_code: statusCode ?? null,
    error: result.error ?? null,
  });
});

test('the healthy receiver got everything before any hanging one timed out', () => {
  expect(healthy.requests).toHaveLength(healthyEvents);
  const lastHealthy = ended.findLastIndex(({ url }) => url === urls.healthy);
  const firstGivenUp = ended.findIndex(({ result }) => result.error === noAnswer);
  expect(firstGivenUp).toBeGreaterThan(-1);
  expect(lastHealthy).toBeLessThan(firstGivenUp);
});

test('an endless answer is read only up to the limit', () => {
  // 64 KiB, and the kernel's buffers on both sides.
  expect(mostTaken).toBeGreaterThan(64 * 1024);
  expect(mostTaken).toBeLessThan(9_000_000);
});

test('no connection to a timed out receiver is left open', async () => {
  for (const name of ['never answers', 'sends its body byte by byte', 'never ends its body'] as const) {
    const open = connections.get(Number(new URL(urls[name] as string).port)) as Set<net.Socket>;
    // The worker's side is closed. The other side may still have to receive that.
    await Promise.all([...open].map((socket) => once(socket, 'close')));
    expect([name, open.size]).toEqual([name, 0]);
  }
});

test('nothing is kept for an origin without connections', async () => {
  // Ten more are left if an aborted request counts as pending. On a slow machine some wait for their timers.
  await expect.poll(() => queryObjects(Pool, { format: 'count' })).toBeLessThan(poolsBefore + 4);
});
