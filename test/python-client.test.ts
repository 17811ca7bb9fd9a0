// The Python example client: a different implementation of protobuf and gRPC, generated from our contract.

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { useFolder } from './support/folder.ts';
import { succeeds } from './support/succeeds.ts';
import { useService } from './support/use-service.ts';

const run = promisify(execFile);

/** Debian's Python, because Debian's packages are built for it. */
const python = '/usr/bin/python3';
const canRun = succeeds('protoc', '--version') && succeeds(python, '-c', 'import grpc, google.protobuf');
if (!canRun) {
  console.log('skipped: apt-get install protobuf-compiler python3-grpcio python3-protobuf');
}

const service = await useService();

const folder = await useFolder();

test.skipIf(!canRun)('creates, replays, reads a refusal, and uses health and reflection', async () => {
  const template = 'examples/grpc/buf.gen.python.local.yaml';
  await run('node_modules/.bin/buf', ['generate', '--template', template, '--output', folder]);
  const { stdout } = await run(
    python,
    ['examples/grpc/python/client.py', new URL(service.internalUrl).host],
    {
      env: {
        ...process.env,
        PYTHONPATH: join(folder, 'gen'),
        PAYMENTS_API_KEY: service.merchant.keys.testnet.apiKey,
      },
    },
  );
  const { intent, same_again, refusal, health, services } = JSON.parse(stdout);
  expect(intent).toMatchObject({
    status: 'PAYMENT_INTENT_STATUS_REQUIRES_PAYMENT',
    mode: 'MODE_TESTNET',
    chain: 'CHAIN_POLYGON',
    chain_id: '80002',
    amount_units: '12500000',
    expected_wallet: service.merchant.wallets.testnet.polygon,
    metadata: { order_id: expect.stringMatching(/^order-/) },
  });
  expect(same_again).toBe(true);
  expect(refusal).toEqual({
    code: 'INVALID_ARGUMENT',
    message: expect.stringMatching(/amount_units must be an integer from 1 .* and 1 more/),
    details: {
      'google.rpc.ErrorInfo': {
        reason: 'INVALID_BODY',
        domain: 'payments',
        metadata: { doc_url: '/docs#error-invalid_body' },
      },
      'google.rpc.BadRequest': {
        fieldViolations: [
          { field: 'amount_units', description: expect.any(String) },
          { field: 'wallet_address', description: expect.any(String) },
        ],
      },
      'google.rpc.RequestInfo': { requestId: expect.stringMatching(/^req_/) },
    },
  });
  expect(health).toBe('SERVING');
  expect(services).toEqual(
    expect.arrayContaining(['payments.v1.PaymentIntentService', 'grpc.health.v1.Health']),
  );
});
