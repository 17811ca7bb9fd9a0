import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { type Door, httpRequest } from './support/doors.ts';
import type { TestService } from './support/service.ts';
import { useService } from './support/use-service.ts';

let service: TestService;
let doors: Door[];

useService((started, opened) => {
  service = started;
  doors = opened;
});

test('one line per request, with the caller, the outcome and the duration', async () => {
  const { merchant } = service;
  for (const door of doors) {
    const line = service.nextLogLine();
    const answer = await door.create(
      { amount_units: 1 },
      { authorization: `Bearer ${merchant.keys.mainnet.apiKey}` },
    );
    expect(await line).toEqual({
      level: 'info',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      request_id: answer.requestId,
      door: door.name,
      rpc: 'CreatePaymentIntent',
      merchant_id: merchant.merchantId,
      key_id: merchant.keys.mainnet.keyId,
      mode: 'mainnet',
      code: 'ok',
      duration_ms: expect.any(Number),
      message: 'CreatePaymentIntent ok',
    });
    const refused = service.nextLogLine();
    const refusal = await door.create({ amount_units: 1 }, { authorization: undefined });
    expect(await refused).toEqual({
      level: 'info',
      time: expect.any(String),
      request_id: refusal.requestId,
      door: door.name,
      rpc: 'CreatePaymentIntent',
      code: 'api_key_missing',
      duration_ms: expect.any(Number),
      message: 'CreatePaymentIntent api_key_missing',
    });
  }
});

test('a flood of refusals is summarised: all are counted, few have a line', async () => {
  const before = service.log.length;
  const [door] = doors as [Door];
  const flood = Array.from({ length: 1_000 }, () =>
    door.create({ amount_units: 1 }, { authorization: 'Bearer nonsense' }),
  );
  await Promise.all(flood);
  const refusals = () => service.log.slice(before).filter(({ code }) => code === 'api_key_invalid');
  const counted = () => refusals().reduce((sum, { count }) => sum + ((count as number | undefined) ?? 1), 0);
  // The summary is logged at the end of the second.
  await expect.poll(counted, { timeout: 3_000 }).toBe(1_000);
  expect(refusals().length).toBeLessThan(800);
  const [summary] = refusals().filter(({ count }) => count !== undefined);
  expect(summary).toEqual({
    level: 'info',
    time: expect.any(String),
    door: 'public',
    rpc: 'CreatePaymentIntent',
    code: 'api_key_invalid',
    count: expect.any(Number),
    message: `CreatePaymentIntent api_key_invalid, ${summary?.count} more in the last second`,
  });
});

test('a hundred requests of every kind write a hundred lines', async () => {
  const before = service.log.length;
  const authorization = `Bearer ${service.merchant.keys.testnet.apiKey}`;
  const bodies = [{ amount_units: 1 }, { amount_units: 0 }, { amount_units: 1, metadata: { a: '\0' } }];
  for (let i = 0; i < 100; i++) {
    const door = doors[i % 2] as Door;
    await door.create(bodies[i % 3] as object as Record<string, unknown>, {
      authorization: i % 5 === 0 ? 'Bearer nonsense' : authorization,
      ...(i % 4 === 0 ? { idempotencyKey: 'the same for all' } : {}),
    });
  }
  expect(service.log.length - before).toBe(100);
});

test('the log never contains a key, a client secret, an Authorization header or metadata', async () => {
  const secretsSeen: string[] = [
    'order-4711-of-mrs-smith',
    'idem-key-of-mrs-smith',
    'my-query-secret',
    'pi_x_secret_y',
  ];
  for (const door of doors) {
    for (const { apiKey } of Object.values(service.merchant.keys)) {
      secretsSeen.push(apiKey, apiKey.slice('sk_testnet_'.length));
      const answer = await door.create(
        { amount_units: 1, metadata: { order_id: 'order-4711-of-mrs-smith' } },
        { authorization: `Bearer ${apiKey}`, idempotencyKey: 'idem-key-of-mrs-smith' },
      );
      secretsSeen.push(
        answer.intent?.client_secret as string,
        answer.intent?.client_secret.split('_secret_')[1] as string,
      );
    }
    // Errors of faulty requests could quote their contents.
    await door.create(
      { amount_units: 0, metadata: { order_id: 'order-4711-of-mrs-smith', bad: '\0' } },
      {
        authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
      },
    );
    await door.create(
      { amount_units: 1 },
      { authorization: `Bearer ${service.merchant.keys.testnet.apiKey}x` },
    );
  }
  await httpRequest(`${service.publicUrl}/v1/payment_intents/pi_x_secret_y?api_key=my-query-secret`, {
    method: 'GET',
  });
  for (const [sabotage, repair] of [
    ['alter table payment_intents rename to elsewhere', 'alter table elsewhere rename to payment_intents'],
    // PostgreSQL then quotes the whole row in its error's detail.
    [
      'alter table payment_intents add constraint t check (amount_units <> 1) not valid',
      'alter table payment_intents drop constraint t',
    ],
  ] as const) {
    await service.query(sabotage);
    for (const door of doors) {
      const answer = await door.create(
        { amount_units: 1, metadata: { order_id: 'order-4711-of-mrs-smith' } },
        {
          authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
          idempotencyKey: 'idem-key-of-mrs-smith',
        },
      );
      expect(answer.code).toBe('internal');
    }
    await service.query(repair);
  }

  const written = JSON.stringify(service.log);
  expect(secretsSeen.filter((secret) => written.includes(secret))).toEqual([]);
  expect(written).not.toMatch(/bearer/i);
});

test.each([
  [false, /^\{"level":"info","time":"[^"]+","code":"ok","message":"hello"\}\n$/],
  [true, /INFO.*hello.*\{"code":"ok"\}.*\n$/],
])('standard output, a terminal: %j', async (isTerminal, line) => {
  const program = `
    const { createLogger, standardOutput } = await import('./src/telemetry/logging.ts');
    createLogger('info', (await standardOutput(${isTerminal})).destination).info({ code: 'ok' }, 'hello');`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program]);
  expect(stdout).toMatch(line);
});
