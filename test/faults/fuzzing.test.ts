// Random requests to the running service: valid ones, nearly valid ones, and ones with changed bytes. Every created
// intent must match an independent model; everything else must be refused cleanly.

import http from 'node:http';
import net from 'node:net';
import type { JsonValue } from '@bufbuild/protobuf';
import grpc from '@grpc/grpc-js';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { answerOf, grpcCall, type Intent, openGrpcClient, requestBytes } from '../support/call.ts';
import { httpRequest } from '../support/service.ts';
import { type Meaning, meaningOfJson, meaningOfMessage } from './support/create-model.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';
import { random } from './support/seed.ts';

let service: ServiceProcess;
let agent: http.Agent;
let client: grpc.Client;

const cluster = useCluster();

beforeAll(async () => {
  // A connection whose `Connection: close` was changed is idle until IDLE_TIMEOUT, 65 s by default.
  // Creates may wait longer, because a stalling disk is not what is tested here.
  const timeouts = { HEADERS_TIMEOUT: '1', REQUEST_TIMEOUT: '1', IDLE_TIMEOUT: '5', QUEUE_TIMEOUT: '30' };
  service = await startProcess(cluster, timeouts);
  agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  client = openGrpcClient(service);
});

afterAll(async () => {
  agent.destroy();
  client.close();
  await endAll();
});

/** `FUZZING=100 npm run test:faults -- fuzzing` is the soak test, with 100 times as many requests. */
const times = Number(process.env.FUZZING ?? 1);
/** Each test takes a fifth of this. */
const maxMs = 100_000 * times;
vi.setConfig({ testTimeout: maxMs + 20_000 });
/** How many requests each kind of fuzzing sends: 17,000 in all, others in each run. */
const requests = { json: 5_000, jsonBytes: 5_000, messages: 3_000, messageBytes: 3_000, http: 1_000 };
const merchantWallet = `0x${'1'.repeat(40)}`;
const publicCodes = [
  ['api_key_missing', 401],
  ['api_key_invalid', 401],
  ['invalid_body', 400],
  ['idempotency_key_invalid', 400],
  ['body_too_large', 413],
  ['unsupported_media_type', 415],
] as const;

/** Sends batches until there were enough requests; fast-check prints how to reproduce a failure. */
async function fuzz<T>(
  name: keyof typeof requests,
  request: fc.Arbitrary<T>,
  send: (request: T) => Promise<number>,
  batchSize = 50,
) {
  let sent = 0;
  let created = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(request, { minLength: batchSize, maxLength: batchSize }), async (batch) => {
      const outcomes = await Promise.all(batch.map(send));
      sent += batch.length;
      created += outcomes.reduce((sum, intents) => sum + intents, 0);
    }),
    {
      numRuns: (times * requests[name]) / batchSize,
      seed: random.seed,
      // Shrinking ends before the test times out, so that the test reports what failed.
      plugins: [fc.interruptAfterTimeLimit(maxMs, { failOnInterrupt: true })],
    },
  );
  console.log(`seed ${random.seed}: ${sent} requests, ${created} intents, ${sent - created} refusals`);
  expect(created).toBeGreaterThan(0);
  expect(sent - created).toBeGreaterThan(0);
  expect(service.log.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
  // Every returned intent is stored, and no other.
  const [{ n } = { n: 0 }] = await cluster.query<{ n: number }>(
    'select count(*)::int as n from payment_intents',
  );
  createdInAll += created;
  expect(n).toBe(createdInAll);
}
let createdInAll = 0;

function expectIntent(intent: Intent, meaning: Meaning | undefined, what: unknown): void {
  expect(meaning, `created though it should be refused: ${what}`).toBeDefined();
  if (meaning === undefined) return;
  const createdAt = Date.parse(intent.expires_at) - intent.expires_in_minutes * 60_000;
  expect(Math.abs(Date.now() - createdAt)).toBeLessThan(60_000);
  expect(intent).toEqual({
    id: expect.stringMatching(/^pi_[0-9a-hjkmnp-tv-z]{26}$/),
    status: 'requires_payment',
    client_secret: expect.stringMatching(/^pi_[0-9a-z]{26}_secret_[\w-]{43}$/),
    mode: 'testnet',
    chain: meaning.chain,
    chain_id: meaning.chain === 'base' ? 84532 : 80002,
    confirmations_required: meaning.chain === 'base' ? 10 : 12,
    amount_units: Number(meaning.amountUnits),
    decimals: 6,
    token_symbol: 'USDC',
    token_address:
      meaning.chain === 'base'
        ? '0x036CbD53842c5426634e7929541eC2318f3dCF7e'
        : '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
    expected_wallet: meaning.wallet ?? merchantWallet,
    expires_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    expires_in_minutes: meaning.expiresInMinutes,
    lane: meaning.lane,
    metadata: meaning.metadata,
  });
}

// ---- requests

const mostly = <T>(usual: fc.Arbitrary<T>, odd: fc.Arbitrary<T>, weight = 12) =>
  fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: odd });

const text = fc
  .string({ unit: 'grapheme', maxLength: 12 })
  .filter((s) => !s.includes('\0') && s.isWellFormed());
const number = fc.oneof(
  fc.integer({ min: -1_000_000, max: 1_000_000 }),
  fc.double({ noNaN: true, noDefaultInfinity: true }).filter((n) => !Number.isInteger(n)),
);
const { object } = fc.letrec<{ value: JsonValue; object: { [name: string]: JsonValue } }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(null, true, false),
    number,
    text,
    fc.array(tie('value'), { maxLength: 3 }),
    tie('object'),
  ),
  object: fc.dictionary(text, tie('value'), { maxKeys: 4, noNullPrototype: true }),
}));

const wallet = mostly(
  fc.uint8Array({ minLength: 20, maxLength: 20 }).map((bytes) => `0x${Buffer.from(bytes).toString('hex')}`),
  fc.constantFrom(
    `0x${'0'.repeat(40)}`,
    '0x0000000000000000000000000000000000000001',
    '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045',
    '0xD8dA6BF26964aF9D7eEd9e03E53415D37aA96045',
    '0XD8DA6BF26964AF9D7EED9E03E53415D37AA96045',
    '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA9604',
    'vitalik.eth',
    '',
  ),
  4,
);

/** Numbers as JSON text, in all notations. */
const numeral = (usual: fc.Arbitrary<number>) =>
  mostly(
    usual.map(String),
    fc.constantFrom(
      ...[...'0 -1 1.5 5.0 5e0 1e3 12e-1 120e-1 -0 9007199254740991 9007199254740992'.split(' ')],
      ...[...'1e400 1e-400 0.1e1 9999999999999999999999 "5" null true [1] {} 05 +5 .5'.split(' ')],
    ),
    6,
  );
const word = (...words: string[]) =>
  mostly(
    fc.constantFrom(...words.map((known) => JSON.stringify(known))),
    fc.constantFrom('null', '""', '"BASE"', '"CHAIN_BASE"', '1', '0', '["base"]', '"base "', '"USDC.e"'),
  );

const bodyText = fc
  .record(
    {
      amount_units: numeral(fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })),
      chain: word('base', 'polygon'),
      lane: word('sdk', 'manual'),
      token: word('USDC'),
      expires_in_minutes: numeral(fc.integer({ min: -100, max: 200 })),
      wallet_address: wallet.map((address) => JSON.stringify(address)),
      metadata: mostly(
        object.map((value) => JSON.stringify(value)),
        fc.constantFrom(
          '[]',
          '"x"',
          '1',
          '{"a":"\\u0000"}',
          '{"a":"\\ud800"}',
          '{"n":9007199254740993}',
          '{"n":1e999}',
        ),
      ),
      memo: fc.constant('1'),
    },
    { requiredKeys: ['amount_units'] },
  )
  .chain(({ memo, ...members }) =>
    fc.record({
      members: fc.shuffledSubarray(Object.entries(members), { minLength: Object.keys(members).length }),
      // Sometimes adds an unknown field.
      memo: fc.integer({ min: 0, max: 30 }).map((n) => n === 0 && memo !== undefined),
      space: fc.constantFrom('', '', ' ', '\n\t'),
    }),
  )
  .map(({ members, memo, space }) => {
    const all = memo ? [...members, ['memo', '1']] : members;
    return `{${space}${all.map(([name, value]) => `"${name}":${space}${value}`).join(`,${space}`)}}${space}`;
  });

type Change = { at: number; kind: 'flip' | 'insert' | 'delete' | 'repeat' | 'cut'; byte: number };
const changes = fc.array(
  fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
    kind: fc.constantFrom(
      'flip' as const,
      'insert' as const,
      'delete' as const,
      'repeat' as const,
      'cut' as const,
    ),
    byte: fc.oneof(
      fc.integer({ min: 0, max: 255 }),
      fc.constantFrom(...Buffer.from('{}[]",:0123456789.eE-\\u')),
    ),
  }),
  { minLength: 1, maxLength: 4 },
);

function applied(bytes: Buffer, list: readonly Change[]): Buffer {
  return list.reduce((now, { at, kind, byte }) => {
    const i = Math.floor(at * now.length);
    const [before, after] = [now.subarray(0, i), now.subarray(i)];
    switch (kind) {
      case 'flip':
        return Buffer.concat([before, Buffer.from([byte]), after.subarray(1)]);
      case 'insert':
        return Buffer.concat([before, Buffer.from([byte]), after]);
      case 'delete':
        return Buffer.concat([before, after.subarray(1)]);
      case 'repeat':
        return Buffer.concat([before, after.subarray(0, 1 + (byte % 16)), after]);
      default:
        return byte % 8 === 0 ? before : now;
    }
  }, bytes);
}

// ---- the public door

interface Head {
  idempotencyKey: string | undefined;
  authorization: string | undefined;
  contentType: string;
}
const goodHead = (head: Head) =>
  head.authorization === undefined &&
  head.contentType.startsWith('application/json') &&
  (head.idempotencyKey === undefined || /^[\x21-\x7e]{1,255}$/.test(head.idempotencyKey));

const head: fc.Arbitrary<Head> = fc.record({
  // Long enough to be unique.
  idempotencyKey: mostly(
    fc.option(fc.uuid(), { nil: undefined }) as fc.Arbitrary<string | undefined>,
    fc.constantFrom('', ' ', 'a b', 'k'.repeat(256), 'ключ'),
  ),
  authorization: mostly(
    fc.constant(undefined) as fc.Arbitrary<string | undefined>,
    fc.constantFrom('', 'Bearer', 'Bearer x', 'Basic eDp5', `Bearer sk_testnet_${'0'.repeat(49)}`),
    30,
  ),
  contentType: mostly(
    fc.constantFrom('application/json', 'application/json; charset=utf-8', 'application/json;charset=UTF-8'),
    fc.constantFrom('text/plain', 'application/x-www-form-urlencoded', 'application/json; charset=latin1'),
    30,
  ),
});

async function sendJson(body: Buffer, { idempotencyKey, authorization, contentType }: Head) {
  const answer = await httpRequest(
    `${service.publicUrl}/v1/payment_intents`,
    {
      agent,
      headers: {
        authorization: authorization ?? `Bearer ${cluster.apiKey}`,
        'content-type': contentType,
        ...(idempotencyKey === undefined
          ? {}
          : { 'idempotency-key': Buffer.from(idempotencyKey).toString('latin1') }),
      },
    },
    body,
  );
  const json = JSON.parse(answer.body);
  if (answer.status === 201) return json as Intent;
  expect(publicCodes).toContainEqual([json.error.code, answer.status]);
  expect(json.error).toMatchObject({
    message: expect.any(String),
    request_id: answer.headers['x-request-id'],
  });
  return undefined;
}

test('JSON requests, valid and nearly valid', async () => {
  await fuzz('json', fc.record({ body: bodyText, head }), async ({ body, head }) => {
    const meaning =
      goodHead(head) && head.contentType !== 'application/json; charset=latin1'
        ? meaningOfJson(body)
        : undefined;
    const intent = await sendJson(Buffer.from(body), head);
    if (intent === undefined) expect(meaning, `refused though it is right: ${body}`).toBeUndefined();
    else expectIntent(intent, meaning, body);
    return intent === undefined ? 0 : 1;
  });
});

test('JSON requests with bytes changed', async () => {
  const good: Head = { idempotencyKey: undefined, authorization: undefined, contentType: 'application/json' };
  await fuzz('jsonBytes', fc.record({ body: bodyText, changes }), async ({ body, changes }) => {
    const bytes = applied(Buffer.from(body), changes);
    const intent = await sendJson(bytes, good);
    if (intent !== undefined)
      expectIntent(
        intent,
        meaningOfJson(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)),
        bytes,
      );
    return intent === undefined ? 0 : 1;
  });
});

test('whole HTTP requests with bytes changed, the head included', async () => {
  const { port } = new URL(service.publicUrl);
  const send = async ({ body, changes }: { body: string; changes: Change[] }) => {
    const bytes = applied(
      Buffer.from(
        `POST /v1/payment_intents HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ${cluster.apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      ),
      changes,
    );
    const answer = await new Promise<string>((resolve) => {
      const socket = net.connect(Number(port), '127.0.0.1');
      let all = '';
      socket.on('data', (chunk) => {
        all += chunk;
      });
      // The server always closes the connection: after its answer, or when the rest does not arrive.
      socket.on('error', () => {}).on('close', () => resolve(all));
      socket.write(bytes);
    });
    const statuses = [...answer.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status));
    // A connection that has sent nothing is closed without an answer.
    expect(statuses.length > 0).toBe(bytes.length > 0);
    for (const status of statuses)
      expect([100, 201, 400, 401, 403, 404, 405, 408, 413, 415, 431]).toContain(status);
    return statuses.filter((status) => status === 201).length;
  };
  // Large batches, so that requests that wait for a timeout wait together.
  await fuzz('http', fc.record({ body: bodyText, changes }), send, 500);
});

// ---- the internal door

const message = fc
  .record(
    {
      amount_units: mostly(
        fc.bigInt({ min: 1n, max: 2n ** 53n - 1n }),
        fc.constantFrom(0n, -1n, 2n ** 53n, 2n ** 63n - 1n, -(2n ** 63n)),
      ),
      chain: mostly(fc.constantFrom('base', 'polygon'), fc.constant('solana')),
      lane: mostly(fc.constantFrom('sdk', 'manual'), fc.constant('fast')),
      token: mostly(fc.constant('USDC'), fc.constant('EURC')),
      expires_in_minutes: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
      wallet_address: wallet,
      metadata: mostly(object, fc.constantFrom({ a: '\0' }, { n: 2 ** 53 })),
    },
    { requiredKeys: ['amount_units'] },
  )
  .map((body) => Buffer.from(requestBytes('createPaymentIntent', body)));

async function sendMessage(bytes: Buffer): Promise<Intent | undefined> {
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${cluster.apiKey}`);
  const answer = answerOf(await grpcCall(client, bytes, metadata, { deadline: Date.now() + 30_000 }));
  if (answer.code === 'ok') return answer.json;
  expect(['invalid_body', 'body_too_large']).toContain(answer.code);
  expect(answer.requestId).toMatch(/^req_/);
  return undefined;
}

test('gRPC messages, valid and nearly valid', async () => {
  await fuzz('messages', message, async (bytes) => {
    const meaning = meaningOfMessage(bytes);
    const intent = await sendMessage(bytes);
    if (intent === undefined)
      expect(meaning, `refused though it is right: ${bytes.toString('hex')}`).toBeUndefined();
    else expectIntent(intent, meaning, bytes.toString('hex'));
    return intent === undefined ? 0 : 1;
  });
});

test('gRPC messages with bytes changed', async () => {
  await fuzz('messageBytes', fc.record({ message, changes }), async ({ message, changes }) => {
    const bytes = applied(message, changes);
    const intent = await sendMessage(bytes);
    if (intent !== undefined) expectIntent(intent, meaningOfMessage(bytes), bytes.toString('hex'));
    return intent === undefined ? 0 : 1;
  });
});
