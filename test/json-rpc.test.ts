// Answers of a node, and their classification.

import http from 'node:http';
import net from 'node:net';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { type Hash, numberToHex, zeroAddress } from 'viem';
import { afterAll, describe, expect, test } from 'vitest';
import { receiptsOf } from '../src/settlement/block-reader.ts';
import { callJsonRpc } from '../src/settlement/json-rpc.ts';
import { Node } from '../src/settlement/node.ts';
import { NodeError, type Receipt } from '../src/settlement/node-answers.ts';
import { listen, listenInTest } from './support/listen.ts';

type Answer = (request: http.IncomingMessage, response: http.ServerResponse) => void;

const secret = 'a-key-of-a-plan';
let answer: Answer;
const server = await listen(http.createServer((request, response) => answer(request, response)));
afterAll(server.close);

const url = (user: string) => new URL(`http://${user}127.0.0.1:${server.port}/v2/${secret}`);
const ask = (given: Answer, { user = '', timeoutMs = 20_000 } = {}) => {
  answer = given;
  return callJsonRpc(url(user), 'eth_chainId', ['0x1'], timeoutMs);
};
const faultOf = async (given: Answer, options?: { timeoutMs: number }): Promise<NodeError> => {
  const reason = await ask(given, options).catch((error: unknown) => error);
  expect(reason).toBeInstanceOf(NodeError);
  return reason as NodeError;
};
const says =
  (body: string | Buffer, status = 200, headers: http.OutgoingHttpHeaders = {}): Answer =>
  (_, response) =>
    response.writeHead(status, headers).end(body);

test.each([
  ['{"jsonrpc":"2.0","id":1,"result":"0x2105"}', '0x2105'],
  [
    ' {"result":{"a":[1,{"b":null}],"text":"\\u00e9 é"},"error":null}\n',
    { a: [1, { b: null }], text: 'é é' },
  ],
  ['{"result":null}', null],
  ['{}', undefined],
])('the result is read: %s', async (body, result) => {
  expect(await ask(says(body))).toEqual(result);
});

test('a compressed answer is requested and read', async () => {
  const asked: unknown[] = [];
  const body = gzipSync('{"result":"0x2105"}');
  const result = await ask((request, response) => {
    asked.push(request.headers['accept-encoding']);
    response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(body);
  });
  expect([result, asked]).toEqual(['0x2105', ['gzip']]);
});

test('a node that requested no pause is called, however long this process was suspended', async () => {
  answer = says('{"result":"0x"}');
  const node = new Node({ url: url('').href, chainId: 1, tokens: [], patienceMs: -1 });
  expect(await node.hasCode(zeroAddress)).toBe(false);
});

test('slow receipts are requested in smaller groups until they come in time', async () => {
  const node = new Node({ url: url('').href, chainId: 1, tokens: [], timeoutMs: 1_000 });
  // One after the other, as over a single slow connection.
  let line = Promise.resolve();
  answer = async (request, response) => {
    const { params } = (await json(request)) as { params: [Hash] };
    line = line.then(() => sleep(150));
    await line;
    const receipt = { transactionHash: params[0], blockHash: params[0], blockNumber: '0x1', logs: [] };
    response.end(JSON.stringify({ result: receipt }));
  };
  const hashes = Array.from({ length: 16 }, (_, i) => numberToHex(i, { size: 32 }));
  let faults = 0;
  const read = (): Promise<Map<Hash, Receipt>> =>
    receiptsOf(node, hashes, async () => {}).catch((reason) => {
      expect(reason).toMatchObject({ fault: 'late' });
      expect(++faults).toBeLessThan(5);
      return line.then(read);
    });
  expect([...(await read()).keys()]).toEqual(hashes);
  expect(faults).toBeGreaterThan(0);
});

test('a transaction that a lagging server shows in no block fails the attempt, not the node', async () => {
  const node = new Node({ url: url('').href, chainId: 1, tokens: [] });
  const hash = numberToHex(1, { size: 32 });
  answer = says(
    JSON.stringify({ result: { hash, from: zeroAddress, to: null, input: '0x', blockHash: null } }),
  );
  await expect(node.transactionsOf({ hash, number: 1 }, [hash])).rejects.toThrow('in no block');
  expect(node.failingSinceMs).toBeUndefined();
});

test('a transaction of an unknown type reads as empty, and others of its block are ignored', async () => {
  const node = new Node({ url: url('').href, chainId: 1, tokens: [] });
  const hashes = Array.from({ length: 10 }, (_, i) => numberToHex(i + 1, { size: 32 }));
  const [hash = '0x'] = hashes;
  const unknown = (of: Hash) => ({ type: '0x7b', hash: of, calls: [[]], blockHash: hash });
  answer = says(JSON.stringify({ result: unknown(hash) }));
  const told = { from: zeroAddress, to: null, input: '0x' };
  expect((await node.transactionsOf({ hash, number: 1 }, [hash])).get(hash)).toMatchObject(told);
  const header = {
    number: '0x1',
    hash,
    parentHash: hash,
    timestamp: '0x1',
    logsBloom: `0x${'00'.repeat(256)}`,
  };
  const transactions = [{ type: '0x7c', calls: [] }, ...hashes.map(unknown)];
  answer = says(JSON.stringify({ result: { ...header, transactions } }));
  expect([...(await node.transactionsOf({ hash, number: 1 }, hashes)).keys()]).toEqual(hashes);
});

test('an answer cut inside a character is read correctly', async () => {
  const bytes = Buffer.from(JSON.stringify({ result: Array(50_000).fill('€') }));
  const result = await ask((_, response) => {
    for (let at = 0; at < bytes.length; at += 997) response.write(bytes.subarray(at, at + 997));
    response.end();
  });
  expect(result).toEqual(Array(50_000).fill('€'));
});

test('elements of a list are parsed as they arrive, and replaced by the result', async () => {
  const read: unknown[] = [];
  const elements = {
    path: '$.result.logs.*',
    read(element: unknown) {
      read.push(element);
      return read.length;
    },
  };
  answer = says('{"result":{"logs":[{"a":[1]},"b",[{"c":{}}],null],"other":[{"d":1}]}}');
  const result = await callJsonRpc(url(''), 'eth_chainId', [], 10_000, elements);
  expect(result).toEqual({ logs: [1, 2, 3, 4], other: [{ d: 1 }] });
  expect(read).toEqual([{ a: [1] }, 'b', [{ c: {} }], null]);
});

test('an invalid element determines the fault of the answer', async () => {
  const refused = new NodeError('contradiction', 'a log that was not asked for');
  const elements = {
    path: '$.result.*',
    read() {
      throw refused;
    },
  };
  answer = says('{"result":[1]}');
  await expect(callJsonRpc(url(''), 'eth_chainId', [], 10_000, elements)).rejects.toBe(refused);
});

test('sends a JSON-RPC request, with the credentials of the URL in a header', async () => {
  const asked: unknown[] = [];
  await ask(
    (request, response) => {
      request.setEncoding('utf8').on('data', (body: string) => {
        asked.push(JSON.parse(body), request.headers.authorization, request.headers['content-type']);
        response.end('{"result":1}');
      });
    },
    { user: 'user:p%40ss%x€@' },
  );
  expect(asked).toEqual([
    { jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: ['0x1'] },
    `Basic ${Buffer.from('user:p@ss%x€').toString('base64')}`,
    'application/json',
  ]);
});

test.each<[string, Answer, Partial<NodeError>, RegExp]>([
  ['no JSON', says('<html>hello</html>'), { fault: 'malformed' }, /something that is not JSON$/],
  [
    'an answer that only claims to be compressed',
    says('{"result":1}', 200, { 'Content-Encoding': 'gzip' }),
    { fault: 'unreachable' },
    /cannot be reached, or did not answer eth_chainId with JSON-RPC$/,
  ],
  [
    'a redirect',
    says('', 307, { Location: '/elsewhere' }),
    { fault: 'unreachable' },
    /refused eth_chainId: HTTP 307/,
  ],
  ['JSON cut short', says('{"result":[1,2'), { fault: 'malformed' }, /something that is not JSON$/],
  ['two answers', says('{"result":1}{"result":2}'), { fault: 'malformed' }, /something that is not JSON$/],
  [
    'an error of JSON-RPC',
    says('{"error":{"code":-32601,"message":"the method does not exist"}}'),
    { fault: 'refused' },
    /refused eth_chainId: the method does not exist \(-32601\)$/,
  ],
  [
    'an error without a code',
    says('{"error":"no"}'),
    { fault: 'unreachable' },
    /refused eth_chainId: HTTP 200/,
  ],
  [
    'an error of JSON-RPC that repeats the URL',
    says(`{"error":{"code":-32000,"message":"no plan for /v2/${secret}"}}`),
    { fault: 'refused' },
    /refused eth_chainId: no plan for \/v2\/… \(-32000\)$/,
  ],
  ['a page with the URL', says(`Cannot POST /v2/${secret}`, 404), { fault: 'unreachable' }, /: HTTP 404/],
  [
    'too many requests, on a page',
    says(`too many requests for ${secret}`, 429, { 'Retry-After': '2' }),
    { fault: 'rate_limited', retryAfterMs: 2_000 },
    /: HTTP 429/,
  ],
  [
    'too many requests, in JSON-RPC',
    says('{"error":{"code":-32005,"message":"slow down"}}', 429, { 'Retry-After': '1' }),
    { fault: 'rate_limited', retryAfterMs: 1_000 },
    /slow down \(-32005\)$/,
  ],
  ['a connection that is cut', (request) => request.destroy(), { fault: 'unreachable' }, /cannot be reached/],
  [
    'an answer that is cut',
    (_, response) => {
      response.writeHead(200, { 'Content-Length': 100 }).write('{"result":');
      setImmediate(() => response.destroy());
    },
    { fault: 'unreachable' },
    /cannot be reached/,
  ],
])('%s', async (_, given, fault, message) => {
  const error = await faultOf(given);
  expect(error).toMatchObject(fault);
  expect(error.message).toMatch(message);
  expect(error.message).not.toContain(secret);
});

test('an endless answer times out', async () => {
  const error = await faultOf((_, response) => void response.write('{"result":"0x'), { timeoutMs: 500 });
  expect(error).toMatchObject({
    fault: 'late',
    message: expect.stringMatching(/did not answer eth_chainId within 0.5 s$/),
  });
});

test('a node that never finishes the TLS handshake is late', async () => {
  const silent = await listenInTest(net.createServer((socket) => void socket.on('error', () => {})));
  const asked = callJsonRpc(new URL(silent.replace('http:', 'https:')), 'eth_chainId', [], 200);
  await expect(asked).rejects.toMatchObject({ fault: 'late' });
});

test('an answer that unpacks to more than 64 MiB is not unpacked to its end', async () => {
  const bomb = gzipSync(Buffer.alloc(100 << 20, ' '));
  expect(await faultOf(says(bomb, 200, { 'Content-Encoding': 'gzip' }))).toMatchObject({
    fault: 'too_large',
  });
});

test.each([
  [
    'nested values',
    '[',
    { fault: 'malformed', message: expect.stringMatching(/more than 32 nested values$/) },
  ],
  ['values', '{},', { fault: 'too_large', message: expect.stringMatching(/more than 500000 tokens$/) }],
])('a small answer that unpacks to a million %s is not kept', async (_, unit, error) => {
  const bomb = gzipSync(`{"result":[${unit.repeat(1 << 20)}`);
  expect(await faultOf(says(bomb, 200, { 'Content-Encoding': 'gzip' }))).toMatchObject(error);
});

test('an answer of more than 64 MiB is not read to its end', async () => {
  let sent = 0;
  const error = await faultOf((_, response) => {
    const piece = Buffer.alloc(1 << 20, ' ');
    const more = (): void => {
      while (!response.destroyed && sent < 200) {
        sent++;
        if (!response.write(piece)) return void response.once('drain', more);
      }
    };
    more();
  });
  expect(error).toMatchObject({
    fault: 'too_large',
    message: expect.stringMatching(/more than 67108864 bytes$/),
  });
  expect(sent).toBeLessThan(200);
});

type Refusal = { status?: number; retryAfter?: string; code?: number; details?: string };

const refusedBy = ({ status = 200, retryAfter, code, details = '' }: Refusal) => {
  const body = code === undefined ? details : JSON.stringify({ error: { code, message: details } });
  return faultOf(says(body, status, retryAfter === undefined ? {} : { 'Retry-After': retryAfter }));
};

/** By the fault that they are read as. */
const refusals: Record<string, [string, Refusal][]> = {
  rate_limited: [
    ['HTTP 429', { status: 429 }],
    [
      'Alchemy, units',
      { code: 429, details: 'Your app has exceeded its compute units per second capacity.' },
    ],
    ['Infura, requests', { code: -32005, details: 'project ID request rate exceeded' }],
    ['Infura, a day', { code: -32005, details: 'daily request count exceeded, request rate limited' }],
    [
      'QuickNode, requests',
      { code: -32007, details: '50/second request limit reached - reduce calls per second' },
    ],
    ['an unknown limit', { code: -32005, details: 'limit exceeded' }],
    ['Retry-After', { status: 503, retryAfter: '2' }],
  ],
  too_large: [
    [
      'Alchemy, a range',
      { code: -32600, details: 'You can make eth_getLogs requests with up to a 10 block range.' },
    ],
    [
      'Alchemy, an answer',
      { code: -32602, details: 'Log response size exceeded. this block range should work' },
    ],
    ['Infura, results', { code: -32005, details: 'query returned more than 10000 results' }],
    ['QuickNode, a range', { code: -32614, details: 'eth_getLogs is limited to a 10,000 range' }],
    ['Ankr, a range', { code: -32600, details: 'Block range is too large' }],
    ['Geth, a range', { code: -32602, details: 'exceed maximum block range: 5000' }],
    ['Base, a range', { code: -32614, details: 'eth_getLogs is limited to a 1,000 range' }],
    ['HTTP 413', { status: 413, details: 'Payload Too Large' }],
  ],
  refused: [
    ['Geth, a newer block', { code: -32602, details: 'block range extends beyond current head block' }],
    ['Geth, an empty range', { code: -32602, details: 'invalid block range params' }],
    ['Base, a newer block', { code: -32019, details: 'block is out of range' }],
    ['a method that is missing', { code: -32601, details: 'the method eth_foo does not exist' }],
  ],
  unreachable: [['a node that is starting', { status: 503, details: 'Service Unavailable' }]],
};

describe.each(Object.entries(refusals))('%s', (fault, cases) => {
  test.each(cases)('%s is classified correctly', async (_, refusal) => {
    expect((await refusedBy(refusal)).fault).toBe(fault);
  });
});

test('Retry-After is read in seconds or as a date, up to a minute', async () => {
  const after = async (retryAfter: string) => (await refusedBy({ status: 429, retryAfter })).retryAfterMs;
  expect([await after('2'), await after('3600'), await after('soon')]).toEqual([2_000, 60_000, undefined]);
  expect(await after(new Date(Date.now() + 10_000).toUTCString())).toBeGreaterThan(8_000);
});
