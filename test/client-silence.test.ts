// Connections that die silently. The clock is faked, so no service runs here: its statements and pauses would
// stand still with the clock, or end too early.

import http2 from 'node:http2';
import net from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { createPaymentIntentsClient } from '../client/index.ts';
import { listen } from './support/listen.ts';
import { startStreamingServer } from './support/streaming-server.ts';
import { startTcpProxy } from './support/tcp-proxy.ts';

const grpc = { apiKey: 'sk_testnet_x', protocol: 'grpc' } as const;

afterEach(() => void vi.useRealTimers());

test('the client reconnects after 65 seconds of silence, and continues after the last message', async () => {
  const server = await startStreamingServer(async function* (stream) {
    yield { position: `p${stream}` };
    await new Promise(() => {});
  });
  let connections = 0;
  const proxy = await startTcpProxy(
    () => net.connect(server.port, '127.0.0.1'),
    (client, upstream) => {
      connections++;
      client.pipe(upstream).pipe(client);
    },
  );
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const interruptions: string[] = [];
  const client = createPaymentIntentsClient({
    ...grpc,
    baseUrl: `http://127.0.0.1:${proxy.port}`,
  });
  const watch = client
    .watchEvents({ after: 'stored', onInterruption: ({ message }) => interruptions.push(message) })
    [Symbol.asyncIterator]();
  expect((await watch.next()).value.position).toBe('p1');
  const next = watch.next();
  await vi.advanceTimersByTimeAsync(64_000);
  expect([connections, interruptions]).toEqual([1, []]);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(interruptions).toEqual(['No message came within 65000 ms']);
  vi.useRealTimers();
  expect((await next).value.position).toBe('p2');
  expect([connections, server.asked]).toEqual([2, ['stored', 'p1']]);
  await watch.return?.();
  await proxy.close();
  await server.close();
});

test('a connection whose TLS handshake is never answered is given up after eight seconds', async () => {
  const connections: net.Socket[] = [];
  const server = net.createServer((socket) => void connections.push(socket.on('error', () => {})));
  const { port, close } = await listen(server);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const stop = new AbortController();
  const { signal } = stop;
  const client = createPaymentIntentsClient({ ...grpc, baseUrl: `https://localhost:${port}` });
  const called = client.deleteWebhookEndpoint('we_1', { signal }).catch((reason) => reason);
  await expect.poll(() => connections).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(8_000);
  // The pause before the next try.
  await expect.poll(() => vi.advanceTimersByTimeAsync(100).then(() => connections)).toHaveLength(2);
  vi.useRealTimers();
  stop.abort();
  expect(await called).toBe(signal.reason);
  await close();
});

test('a connection that dies silently is replaced within eight seconds, although another call on it ends', async () => {
  const server = await listen(
    http2.createServer().on('stream', (stream) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      // An empty message.
      stream.end(Buffer.alloc(5));
    }),
  );
  let isDead = false;
  let connections = 0;
  const proxy = await startTcpProxy(
    () => net.connect(server.port, '127.0.0.1'),
    (client, upstream) => {
      const isFirst = ++connections === 1;
      client.on('data', (bytes) => !(isFirst && isDead) && upstream.write(bytes));
      upstream.pipe(client);
    },
  );
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
  const client = createPaymentIntentsClient({ ...grpc, baseUrl: `http://127.0.0.1:${proxy.port}` });
  await client.deleteWebhookEndpoint('we_1');
  isDead = true;
  const stop = new AbortController();
  const ended = client.deleteWebhookEndpoint('we_1', { signal: stop.signal }).catch((reason) => reason);
  await vi.advanceTimersByTimeAsync(4_000);
  // Verifies the connection first. The timer of that ends with the last call.
  const next = client.deleteWebhookEndpoint('we_1');
  await vi.advanceTimersByTimeAsync(1_000);
  stop.abort();
  expect(await ended).toBe(stop.signal.reason);
  await vi.advanceTimersByTimeAsync(7_000);
  // The pause before the next try.
  const answered = next.then(() => 'answered');
  await expect.poll(() => Promise.race([answered, vi.advanceTimersByTimeAsync(100)])).toBe('answered');
  expect(connections).toBe(2);
  await proxy.close();
  await server.close();
});
