import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ServiceError } from '../src/requests/errors.ts';
import { type Identity, newRequestContext } from '../src/requests/request-context.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { createRequestLog } from '../src/telemetry/request-log.ts';
import { type Door, doors } from './support/call.ts';
import { httpRequest } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const doorNames = { json: 'public', grpc: 'internal' };

test('one line per request, with the caller, the outcome and the duration', async () => {
  const { merchant } = service;
  for (const door of doors) {
    const line = service.nextLogLine();
    const answer = await service.call(
      'createPaymentIntent',
      { amount_units: 1 },
      { door, apiKey: merchant.keys.mainnet.apiKey },
    );
    expect(await line).toEqual({
      level: 'info',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      request_id: answer.requestId,
      door: doorNames[door],
      rpc: 'CreatePaymentIntent',
      merchant_id: merchant.merchantId,
      key_id: merchant.keys.mainnet.keyId,
      mode: 'mainnet',
      payment_intent: answer.json.id,
      code: 'ok',
      duration_ms: expect.any(Number),
      message: 'CreatePaymentIntent ok',
    });
    const refused = service.nextLogLine();
    const refusal = await service.call('createPaymentIntent', { amount_units: 1 }, { door, apiKey: null });
    expect(await refused).toEqual({
      level: 'info',
      time: expect.any(String),
      request_id: refusal.requestId,
      door: doorNames[door],
      rpc: 'CreatePaymentIntent',
      code: 'api_key_missing',
      duration_ms: expect.any(Number),
      message: 'CreatePaymentIntent api_key_missing',
    });
  }
});

test('the line of a request about an intent has the id of the intent', async () => {
  const { json: intent } = await service.call('createPaymentIntent', { amount_units: 1 });
  const { id, client_secret } = intent;
  const elsewhere = { apiKey: service.merchant.keys.mainnet.apiKey };
  for (const [call, expected] of [
    [() => service.call('getPaymentIntent', { id }), { rpc: 'GetPaymentIntent', code: 'ok' }],
    [() => service.call('getPaymentIntent', { id }, elsewhere), { code: 'resource_missing' }],
    [() => service.call('cancelPaymentIntent', { id }), { rpc: 'CancelPaymentIntent', code: 'ok' }],
    [() => service.call('getCheckout', {}, { apiKey: client_secret }), { rpc: 'GetCheckout', code: 'ok' }],
  ] as const) {
    const line = service.nextLogLine();
    await call();
    expect(await line).toMatchObject({ ...expected, payment_intent: id });
  }
  const line = service.nextLogLine();
  await service.call('getPaymentIntent', { id: 'pi_nonsense' });
  expect(await line).not.toHaveProperty('payment_intent');
});

test('the line of a refused request names the invalid fields, without their values', async () => {
  const authorization = `Bearer ${service.merchant.keys.testnet.apiKey}`;
  for (const door of doors) {
    const line = service.nextLogLine();
    await service.call(
      'createPaymentIntent',
      { amount_units: -5, wallet_address: 'nonsense-of-mrs-smith', metadata: { a: 'x\0' } },
      { door, authorization },
    );
    expect(await line).toMatchObject({
      code: 'invalid_body',
      fields: expect.toSatisfy((fields: string[]) =>
        ['amount_units', 'metadata', 'wallet_address'].every((field) => fields.includes(field)),
      ),
    });
  }
  const headers = { authorization, 'content-type': 'application/json' };
  const post = async (body: string, query = '') => {
    const line = service.nextLogLine();
    await httpRequest(`${service.publicUrl}/v1/payment_intents${query}`, { headers }, body);
    return (await line).fields;
  };
  // A name that is not one of ours is the caller's own text.
  expect(await post('{"amount_units":1,"walletAdress":"0x"}')).toEqual(['walletAdress']);
  expect(await post(`{"amount_units":1,"${'sk_testnet_'.padEnd(60, '1')}":1,"a b":1}`)).toEqual(['…', '…']);
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`field${i}`, 1]));
  expect(await post(JSON.stringify({ amount_units: 1, ...many }))).toHaveLength(11);
  const line = service.nextLogLine();
  await httpRequest(`${service.publicUrl}/v1/payment_intents?limit=5`, { method: 'GET', headers });
  expect(await line).toMatchObject({ code: 'invalid_body', fields: ['limit'] });
});

// Before the flood: in the same second, the refusals of this test would be summarised, too.
test('a hundred requests of every kind write a hundred lines', async () => {
  const before = service.requestLines().length;
  const bodies = [{ amount_units: 1 }, { amount_units: 0 }, { amount_units: 1, metadata: { a: '\0' } }];
  for (let i = 0; i < 100; i++) {
    const door = doors[i % 2] as Door;
    await service.call('createPaymentIntent', bodies[i % 3], {
      door,
      ...(i % 5 === 0 && { authorization: 'Bearer nonsense' }),
      ...(i % 4 === 0 && { idempotencyKey: 'the same for all' }),
    });
  }
  expect(service.requestLines().length - before).toBe(100);
});

test('a flood of refusals is summarised: all are counted, few have a line', async () => {
  const before = service.log.length;
  const flood = Array.from({ length: 1_000 }, () =>
    service.call('createPaymentIntent', { amount_units: 1 }, { authorization: 'Bearer nonsense' }),
  );
  await Promise.all(flood);
  const refusals = () => service.log.slice(before).filter(({ code }) => code === 'api_key_invalid');
  const counted = () => refusals().reduce((sum, { count }) => sum + ((count as number | undefined) ?? 1), 0);
  // The summary is logged at the end of the second.
  await expect.poll(counted).toBe(1_000);
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

test('of a flood, each internal error and each success with a key has a line; successes without one do not', () => {
  const lines: Record<string, unknown>[] = [];
  const logger = createLogger('info', { write: (line) => void lines.push(JSON.parse(line)) });
  const { observe, stop } = createRequestLog(logger);
  const of = { rpc: 'GetCheckout', identity: { keyTypeId: 'key_1' } as Identity };
  for (let i = 0; i < 150; i++) {
    const error = new ServiceError('internal', { cause: new Error('broken') });
    observe({ ...newRequestContext('public'), error }, of.rpc, 'internal');
    observe({ ...newRequestContext('public'), identity: of.identity }, of.rpc, 'ok');
    observe(newRequestContext('internal'), of.rpc, 'ok');
  }
  stop();
  const count = (level: string, door: string) =>
    lines.filter((line) => line.level === level && line.door === door).length;
  expect([count('error', 'public'), count('info', 'public')]).toEqual([150, 150]);
  expect(count('info', 'internal')).toBe(101);
  expect(lines.at(-1)).toMatchObject({ door: 'internal', code: 'ok', count: 50 });
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
      const answer = await service.call(
        'createPaymentIntent',
        { amount_units: 1, metadata: { order_id: 'order-4711-of-mrs-smith' } },
        { door, apiKey, idempotencyKey: 'idem-key-of-mrs-smith' },
      );
      secretsSeen.push(answer.json.client_secret, answer.json.client_secret.split('_secret_')[1] as string);
    }
    // Errors of faulty requests could quote their contents.
    await service.call(
      'createPaymentIntent',
      { amount_units: 0, metadata: { order_id: 'order-4711-of-mrs-smith', bad: '\0' } },
      { door },
    );
    await service.call(
      'createPaymentIntent',
      { amount_units: 1 },
      { door, authorization: `Bearer ${service.merchant.keys.testnet.apiKey}x` },
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
      const answer = await service.call(
        'createPaymentIntent',
        { amount_units: 1, metadata: { order_id: 'order-4711-of-mrs-smith' } },
        { door, idempotencyKey: 'idem-key-of-mrs-smith' },
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
])('a line is readable on a terminal, and JSON elsewhere (terminal: %j)', async (isTerminal, line) => {
  const program = `
    const { logToStandardOutput } = await import('./src/telemetry/logging.ts');
    (await logToStandardOutput('info', ${isTerminal})).logger.info({ code: 'ok' }, 'hello');`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program]);
  expect(stdout).toMatch(line);
});

const hostile = 'a\x1b[2Jb\x07c\x7f\x9b31md\u202ee\u2028f\rg\\u001bh\u{e0041}\u180e';
const logHostile = (isTerminal: boolean) => `
  const { logToStandardOutput } = await import('./src/telemetry/logging.ts');
  const text = ${JSON.stringify(hostile)};
  const { logger } = await logToStandardOutput('info', ${isTerminal});
  logger.error({ reason: text, err: Object.assign(new Error(text), { code: text }) }, text);`;
const hidden = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Default_Ignorable_Code_Point}]/u;

test('a readable line has no control or invisible characters', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--input-type=module',
    '--eval',
    logHostile(true),
  ]);
  expect(stdout).toContain(
    String.raw`a\u001b[2Jb\u0007c\u007f\u009b31md\u202ee\u2028f\rg\u001bh\udb40\udc41\u180e`,
  );
  expect(stdout.replaceAll('\n', '')).not.toMatch(hidden);
});

test('a JSON line has no control or invisible characters, and keeps the text', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--input-type=module',
    '--eval',
    logHostile(false),
  ]);
  expect(stdout.trimEnd()).not.toMatch(hidden);
  expect(JSON.parse(stdout)).toMatchObject({
    reason: hostile,
    message: hostile,
    err: { message: hostile, code: hostile },
  });
});
