// A stream of events on a connection that dies silently. The clock is faked, so no service runs here:
// its statements and pauses would stand still with the clock, or end too early.

import net from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { createPaymentIntentsClient } from '../client/index.ts';
import { startStreamingServer } from './support/streaming-server.ts';
import { startTcpProxy } from './support/tcp-proxy.ts';

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
    baseUrl: `http://127.0.0.1:${proxy.port}`,
    apiKey: 'sk_testnet_x',
    protocol: 'grpc',
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
