// Runs the examples unchanged, over a network that loses a request and an answer and returns 503 before it works.

import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Listening } from './support/listen.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import { startProgram } from './support/program.ts';
import type { TestMerchant } from './support/service.ts';
import { startTcpProxy } from './support/tcp-proxy.ts';
import { useService } from './support/use-service.ts';

const run = promisify(execFile);
const service = await useService();
let merchant: TestMerchant;
let network: Listening;
let env: NodeJS.ProcessEnv;

beforeEach(async () => {
  // A merchant without orders of other tests.
  merchant = await service.newMerchant();
  network = await startLossyNetwork(service.server.ports.http, { unavailableOnce: '1' });
  env = {
    ...process.env,
    PAYMENTS_URL: `http://127.0.0.1:${network.port}`,
    PAYMENTS_API_KEY: merchant.keys.testnet.apiKey,
    PORT: '0',
  };
});

afterEach(() => network.close());

const rows = () =>
  service.query<{ key: string; amount: string }>(
    'select idempotency_key as key, amount_units as amount from payment_intents where merchant_id = $1',
    [merchant.id],
  );

test('create-payment-intent.sh', async () => {
  const first = await run('examples/create-payment-intent.sh', ['order-1', '12500000'], { env });
  const intent = JSON.parse(first.stdout);
  expect(intent).toMatchObject({ amount_units: 12_500_000, metadata: { order_id: 'order-1' } });
  const again = await run('examples/create-payment-intent.sh', ['order-1', '12500000'], { env });
  expect(JSON.parse(again.stdout)).toEqual(intent);
  expect(await rows()).toEqual([{ key: 'order-1', amount: '12500000' }]);
  const refused = await run('examples/create-payment-intent.sh', ['order-2', '0'], { env }).catch(
    (error) => error,
  );
  expect(refused.code).toBe(1);
  expect(JSON.parse(refused.stdout).error.code).toBe('invalid_body');
});

// No retries: a refused call must not reach the network.
const script = (args: string[], change: NodeJS.ProcessEnv = {}, shell = 'sh') =>
  run(shell, ['examples/create-payment-intent.sh', ...args], {
    env: { ...env, PAYMENTS_URL: service.publicUrl, ...change },
  });

test.each(['"', '\\', '\\"},{', "'$(id)`id`'", '"quoted"', '%s%n', '-n', '@/etc/passwd'])(
  'create-payment-intent.sh: an order with %s',
  async (order) => {
    for (const shell of ['sh', 'bash']) {
      const intent = JSON.parse((await script([order, '1'], {}, shell)).stdout);
      expect(intent.metadata).toEqual({ order_id: order });
    }
    expect(await rows()).toEqual([{ key: order, amount: '1' }]);
  },
);

test.each([
  ['order\nX-Injected: 1', '1'],
  ['order 1', '1'],
  ['bestellung-ü', '1'],
  ['a'.repeat(256), '1'],
  ['order-1', '1,"chain":"polygon"'],
  ['order-1', '1.5'],
  ['order-1', '1', 'second attempt'],
])('create-payment-intent.sh refuses %j %j %j, and prints the reason', async (...args) => {
  const before = service.requestLines().length;
  const refused = await script(args).catch((error) => error);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toMatch(/^create-payment-intent\.sh: the (order|amount) /);
  expect(service.requestLines().slice(before)).toEqual([]);
});

test('create-payment-intent.sh: a second attempt at an order has a new key and a new intent', async () => {
  const first = JSON.parse((await script(['order-1', '5'])).stdout);
  const second = JSON.parse((await script(['order-1', '5', '2'])).stdout);
  expect(second.id).not.toBe(first.id);
  expect(second.metadata).toEqual({ order_id: 'order-1' });
  expect((await rows()).map(({ key }) => key).sort()).toEqual(['order-1', 'order-1/2']);
});

/** The command line of every process on this machine that is visible to us. */
function commandLines(): string[] {
  if (process.platform !== 'linux')
    return execFileSync('ps', ['-axww', '-o', 'args='], { encoding: 'utf8' }).split('\n');
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      } catch {
        // The process has ended.
        return '';
      }
    });
}

test('create-payment-intent.sh: the API key appears on no command line', async () => {
  const seen: string[] = [];
  const watch = await startTcpProxy(
    () => net.connect(service.server.ports.http, '127.0.0.1'),
    (client, server) => {
      seen.push(...commandLines());
      client.pipe(server).pipe(client);
    },
  );
  const { stdout } = await script(['order-1', '5'], { PAYMENTS_URL: `http://127.0.0.1:${watch.port}` });
  expect(JSON.parse(stdout).amount_units).toBe(5);
  await watch.close();
  expect(seen.filter((line) => line.startsWith('curl ') && line.includes(`:${watch.port}/`))).toHaveLength(1);
  expect(seen.filter((line) => line.includes(merchant.keys.testnet.apiKey))).toEqual([]);
});

/** Runs the example until `use` ends, and passes it the port and the standard error output. */
async function withCheckoutServer(
  change: NodeJS.ProcessEnv,
  use: (port: number, errors: () => string) => Promise<void>,
): Promise<void> {
  const server = startProgram([process.execPath, 'examples/checkout-server.ts'], {
    env: { ...env, ...change },
  });
  try {
    const [, port] = await server.until(/(\d+)\n/);
    await use(Number(port), () => server.printed.errors);
  } finally {
    await server.end();
  }
}

async function checkout(port: number, body: string): Promise<[number, unknown]> {
  const answer = await fetch(`http://127.0.0.1:${port}/checkout`, { method: 'POST', body });
  return [answer.status, await answer.json()];
}

test('checkout-server.ts', async () => {
  await withCheckoutServer({}, async (port) => {
    const first = await checkout(port, '{"order_id":"order-1"}');
    expect(first).toEqual([200, { client_secret: expect.stringMatching(/^pi_.*_secret_/) }]);
    expect(await checkout(port, '{"order_id":"order-1"}')).toEqual(first);
    expect(await rows()).toEqual([{ key: 'order-1', amount: '12500000' }]);
  });
});

test("checkout-server.ts: the service's error goes to the merchant's log, not to the payer", async () => {
  await withCheckoutServer({ PAYMENTS_API_KEY: 'sk_testnet_nonsense' }, async (port, errors) => {
    const [status, body] = await checkout(port, '{"order_id":"order-1"}');
    expect([status, body]).toEqual([502, { error: expect.stringMatching(/try again/) }]);
    expect(errors()).toContain('api_key_invalid');
  });
});

test('checkout-server.ts: an invalid order gets no intent, and no two payers share one', async () => {
  await withCheckoutServer({}, async (port) => {
    for (const body of [
      '{}',
      '{"orderId":"bob-2"}',
      '{"order_id":null}',
      '{"order_id":""}',
      '{"order_id":1001}',
      '{"order_id":{"a":1}}',
      '{"order_id":"order 2"}',
      '{"order_id":"order-1/2"}',
      '{"order_id":"order-1\\n"}',
      `{"order_id":"${'a'.repeat(101)}"}`,
      'null',
      '[]',
    ]) {
      expect([body, ...(await checkout(port, body))]).toEqual([
        body,
        400,
        { error: expect.stringMatching(/^order_id must be text of 1 to 100/) },
      ]);
    }
    expect(await checkout(port, 'order_id=order-1')).toEqual([400, { error: 'the body is not JSON' }]);
    expect(await rows()).toEqual([]);
  });
});

test('checkout-server.ts: an endless body is not read to its end', async () => {
  await withCheckoutServer({}, async (port) => {
    const socket = net.connect(port, '127.0.0.1');
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    socket.on('error', () => {});
    socket.write('POST /checkout HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1000000000\r\n\r\n');
    socket.write('x'.repeat(20_000));
    await once(socket, 'close');
    expect(answer).toMatch(/^HTTP\/1\.1 413 [\s\S]*\{"error":"the body is larger than 10000 bytes"\}/);
    expect(await rows()).toEqual([]);
  });
});
