// The examples, run as they stand, over a network that loses a request and an answer, and says 503, before it works.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startLossyNetwork } from './support/lossy-network.ts';
import { startService, type TestService } from './support/service.ts';
import type { TcpProxy } from './support/tcp-proxy.ts';

const run = promisify(execFile);
let service: TestService;
let network: TcpProxy;
let env: NodeJS.ProcessEnv;

beforeEach(async () => {
  service = await startService();
  network = await startLossyNetwork(service.server.ports.http, { unavailableOnce: '1' });
  env = {
    ...process.env,
    PAYMENTS_URL: `http://127.0.0.1:${network.port}`,
    PAYMENTS_API_KEY: service.merchant.keys.testnet.apiKey,
    PORT: '0',
  };
});

afterEach(async () => {
  await service.close();
  network.close();
});

const rows = () =>
  service.query<{ key: string; amount: string }>(
    'select idempotency_key as key, amount_units as amount from payment_intents',
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

test('checkout-server.ts', async () => {
  const child = spawn(process.execPath, ['examples/checkout-server.ts'], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  try {
    const [line] = await once(createInterface({ input: child.stdout }), 'line');
    const port = /\d+$/.exec(String(line))?.[0];
    const checkout = (order: string) =>
      fetch(`http://127.0.0.1:${port}/checkout`, {
        method: 'POST',
        body: JSON.stringify({ order_id: order }),
      }).then((answer) => answer.json());
    const first = await checkout('order-1');
    expect(first).toEqual({ client_secret: expect.stringMatching(/^pi_.*_secret_/) });
    expect(await checkout('order-1')).toEqual(first);
    expect(await rows()).toEqual([{ key: 'order-1', amount: '12500000' }]);
    // What the service says about a refusal is the merchant's to read, not the payer's.
    expect(await checkout('order 2')).toEqual({ error: expect.stringMatching(/try again/) });
  } finally {
    child.kill();
    await once(child, 'exit');
  }
});
