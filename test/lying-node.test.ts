// The lying node of other tests: each lie is actually told, and the node is honest before and after it.

import { type Address, type Hex, numberToHex } from 'viem';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startChain, type TestChain } from './support/chain.ts';
import type { Lie, LieOptions } from './support/lies.ts';
import { type LyingNode, startLyingNode } from './support/lying-node.ts';

const wallet: Address = '0xDDf6EDe5C9525Bd7A5BF244C600195c559358Ab2';

let chain: TestChain;
let node: LyingNode;
/** The last transfer of the block, with bytes behind its arguments. */
let paid: Hex;
/** A block with three transfers, and its parent. */
let block: { number: Hex; hash: Hex; parentHash: Hex };

beforeAll(async () => {
  chain = await startChain();
  const { address: from } = chain.accounts[0];
  await chain.mint(from, 4n);
  await chain.mine();
  for (const amountUnits of [1n, 2n]) await chain.mint(wallet, amountUnits);
  paid = await chain.transfer({ from, to: wallet, amountUnits: 4n, suffix: '0xabcd' });
  await chain.mine();
  const { number, hash, parentHash } = await chain.client.getBlock();
  block = { number: numberToHex(number), hash, parentHash };
  await chain.mine(10);
  node = await startLyingNode(chain.url);
});
afterAll(async () => {
  await node.close();
  await chain.stop();
});
beforeEach(() => {
  node.lie(undefined);
  node.requests.length = 0;
});

interface Answer {
  id: number;
  result?: unknown;
  error?: { code: number; message: string };
}

function post(body: unknown, url = node.url, signal?: AbortSignal): Promise<Response> {
  const headers = { 'Content-Type': 'application/json' };
  return fetch(url, { method: 'POST', headers, body: JSON.stringify(body), ...(signal && { signal }) });
}

async function ask(method: string, params: unknown[] = [], url = node.url): Promise<Answer> {
  const response = await post({ jsonrpc: '2.0', id: 7, method, params }, url);
  return (await response.json()) as Answer;
}

const filter = () => ({ address: chain.usdc, blockHash: block.hash, topics: [transferTopic] });
const transferTopic = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

type Call = [method: string, params: unknown[]];
const getLogs = (): Call => ['eth_getLogs', [filter()]];
const getByNumber = (): Call => ['eth_getBlockByNumber', [block.number, false]];
const getByHash = (): Call => ['eth_getBlockByHash', [block.hash, false]];
const blockCalls = [
  ['by number', getByNumber],
  ['by hash', getByHash],
] as const;

/** The answer of the real node. */
const honest = async ([method, params]: Call) => (await ask(method, params, chain.url)).result;

async function told(lie: Lie, [method, params]: Call, options: LieOptions = {}): Promise<Answer> {
  node.lie(lie, options);
  const answer = await ask(method, params);
  expect(node.requests.at(-1)).toMatchObject({ method, lie });
  node.lie(undefined);
  expect((await ask(method, params)).result).toEqual(await honest([method, params]));
  expect(node.requests.at(-1)).toMatchObject({ method, lie: undefined });
  return answer;
}

describe('an honest node', () => {
  test('answers as the real one', async () => {
    const calls: Call[] = [getLogs(), getByNumber(), getByHash(), ['eth_blockNumber', []]];
    for (const call of calls) {
      expect(await ask(...call)).toEqual({ jsonrpc: '2.0', id: 7, result: await honest(call) });
    }
    expect((await ask('eth_nonsense')).error).toMatchObject({ code: -32601 });
  });

  test('answers a batch in its order', async () => {
    const calls = ['eth_chainId', 'eth_blockNumber'].map((method, id) => ({
      jsonrpc: '2.0',
      id,
      method,
      params: [],
    }));
    expect(await (await post(calls)).json()).toEqual([
      { jsonrpc: '2.0', id: 0, result: numberToHex(chain.network.chainId) },
      { jsonrpc: '2.0', id: 1, result: await honest(['eth_blockNumber', []]) },
    ]);
    expect(node.requests.map(({ method, batchSize }) => [method, batchSize])).toEqual([
      ['eth_chainId', 2],
      ['eth_blockNumber', 2],
    ]);
  });

  test('counts calls and bytes', async () => {
    await ask('eth_chainId');
    await ask('eth_chainId');
    await ask(...getLogs());
    expect(node.counts()).toEqual({ eth_chainId: 2, eth_getLogs: 1 });
    const { received, sent } = node.bytes();
    expect(received).toBeGreaterThan(100);
    expect(sent).toBeGreaterThan(1_500);
    expect(node.requests[0]).toEqual({
      method: 'eth_chainId',
      params: [],
      lie: undefined,
      batchSize: 1,
      requestBytes: Buffer.byteLength('{"jsonrpc":"2.0","id":7,"method":"eth_chainId","params":[]}'),
      responseBytes: Buffer.byteLength('{"jsonrpc":"2.0","id":7,"result":"0x14a34"}'),
    });
  });

  test('refuses more than 1,000 values in a position of the topics', async () => {
    const values = Array.from({ length: 1_001 }, (_, index) => numberToHex(index, { size: 32 }));
    const search = (second: Hex[]) => [{ ...filter(), topics: [transferTopic, null, second] }];
    expect((await ask('eth_getLogs', search(values))).error).toEqual({
      code: -32602,
      message: 'exceed max addresses or topics per search position',
    });
    expect((await ask('eth_getLogs', search(values.slice(1)))).result).toEqual([]);
  });

  test('says that it is another program', async () => {
    const geth = await startLyingNode(chain.url, { clientVersion: 'Geth/v1.15.11' });
    expect(await ask('web3_clientVersion', [], geth.url)).toMatchObject({ result: 'Geth/v1.15.11' });
    expect(await ask('web3_clientVersion')).toMatchObject({ result: expect.stringMatching(/^anvil/) });
    await geth.close();
  });

  test('refuses ranges with more results than its limit', async () => {
    const limited = await startLyingNode(chain.url, { maxResults: 2 });
    const range = {
      address: chain.usdc,
      fromBlock: block.number,
      toBlock: block.number,
      topics: [transferTopic],
    };
    expect((await ask('eth_getLogs', [range], limited.url)).error).toEqual({
      code: -32005,
      message: 'query returned more than 2 results',
    });
    expect((await ask('eth_getLogs', [filter()], limited.url)).result).toHaveLength(3);
    await limited.close();
  });

  test('refuses ranges of more blocks than its limit', async () => {
    const limited = await startLyingNode(chain.url, { maxRange: 2 });
    const range = (blocks: number) => ({
      address: chain.usdc,
      fromBlock: block.number,
      toBlock: numberToHex(Number(block.number) + blocks - 1),
      topics: [transferTopic],
    });
    expect((await ask('eth_getLogs', [range(3)], limited.url)).error).toMatchObject({ code: -32600 });
    expect((await ask('eth_getLogs', [range(2)], limited.url)).error).toBeUndefined();
    expect((await ask('eth_getLogs', [filter()], limited.url)).result).toHaveLength(3);
    await limited.close();
  });
});

describe('lies about an answer', () => {
  test('empty logs', async () => {
    expect(await told('empty logs', getLogs())).toMatchObject({ result: [] });
  });

  test('half of the logs', async () => {
    const [, second] = (await honest(getLogs())) as unknown[];
    expect((await told('half of the logs', getLogs())).result).toEqual([second]);
  });

  test('an invented log', async () => {
    const transfer = { token: chain.usdc, to: wallet, amountUnits: 99n };
    const real = (await honest(getLogs())) as object[];
    const { result } = await told('invented log', getLogs(), { transfer });
    expect(result).toEqual([
      ...real,
      {
        ...real[0],
        topics: [transferTopic, expect.stringMatching(/deadbeef$/), expect.stringMatching(/8ab2$/)],
        data: numberToHex(99, { size: 32 }),
        transactionHash: expect.stringMatching(/^0x[0-9a-f]{64}$/),
        transactionIndex: '0x3e7',
        logIndex: '0x3e7',
      },
    ]);
  });

  test('an invented log at the end of a range', async () => {
    const range = { fromBlock: '0x0', toBlock: block.number, address: chain.usdc };
    node.lie('invented log', { transfer: { token: chain.usdc, to: wallet, amountUnits: 1n } });
    const logs = (await ask('eth_getLogs', [range])).result as object[];
    expect(logs.at(-1)).toMatchObject({
      blockNumber: block.number,
      blockHash: block.hash,
      logIndex: '0x3e7',
    });
  });

  test('logs of another amount', async () => {
    const logs = (await told('log of another amount', getLogs())).result as { data: Hex }[];
    expect(logs.map(({ data }) => Number(data))).toEqual([2, 3, 5]);
  });

  test.for(blockCalls)('a zero bloom, %s', async ([, call]) => {
    const real = (await honest(call())) as object;
    expect(real).not.toHaveProperty('logsBloom', `0x${'0'.repeat(512)}`);
    expect((await told('zero bloom', call())).result).toEqual({ ...real, logsBloom: `0x${'0'.repeat(512)}` });
  });

  test.for(blockCalls)('null blocks, %s', async ([, call]) => {
    expect(await told('null blocks', call())).toMatchObject({ result: null });
  });

  test('an older head', async () => {
    const head = Number(await honest(['eth_blockNumber', []]));
    expect((await told('older head', ['eth_blockNumber', []])).result).toBe(numberToHex(head - 5));
    const latest = await told('older head', ['eth_getBlockByNumber', ['latest', false]], { depth: 2 });
    expect(latest.result).toEqual(await honest(['eth_getBlockByNumber', [numberToHex(head - 2), false]]));
    const finalized = await told('older head', ['eth_getBlockByNumber', ['finalized', false]], { depth: 2 });
    expect(finalized.result).toMatchObject({ number: numberToHex(head - 4) });
    node.lie('older head');
    expect((await ask('eth_getBlockByNumber', [block.number, false])).result).toMatchObject({
      hash: block.hash,
    });
  });

  test('a newest block that is not there', async () => {
    const real = (await honest(['eth_getBlockByNumber', ['latest', false]])) as { number: Hex };
    const number = numberToHex(Number(real.number) + 1_000_000);
    expect((await told('far head', ['eth_getBlockByNumber', ['latest', false]])).result).toEqual({
      ...real,
      number,
    });
  });

  test('another chain', async () => {
    expect((await told('other chain', ['eth_chainId', []])).result).toBe('0x1');
  });

  test.for(blockCalls)('a wrong hash, %s', async ([, call]) => {
    const real = (await honest(call())) as { hash: Hex };
    const { result } = await told('wrong hash', call());
    expect(result).toEqual({ ...real, hash: expect.stringMatching(/^0x[0-9a-f]{64}$/) });
    expect(result).not.toHaveProperty('hash', real.hash);
  });

  test('a wrong hash in logs', async () => {
    const logs = (await told('wrong hash', getLogs())).result as { blockHash: Hex }[];
    expect(logs).toHaveLength(3);
    for (const log of logs) expect(log.blockHash).not.toBe(block.hash);
  });

  test.for(blockCalls)('another block than asked for, %s', async ([, call]) => {
    expect((await told('other block', call())).result).toMatchObject({ hash: block.parentHash });
  });

  describe('about receipts and transactions', () => {
    const getReceipt = (): Call => ['eth_getTransactionReceipt', [paid]];
    const getTransaction = (): Call => ['eth_getTransactionByHash', [paid]];
    const getFullBlock = (): Call => ['eth_getBlockByHash', [block.hash, true]];
    const realReceipt = async () => (await honest(getReceipt())) as { logs: { data: Hex }[] };
    const realTransaction = async () => (await honest(getTransaction())) as { input: Hex };

    test('another status', async () => {
      const real = await realReceipt();
      expect(real).toMatchObject({ status: '0x1', logs: [{ data: numberToHex(4n, { size: 32 }) }] });
      expect((await told('other receipt status', getReceipt())).result).toEqual({ ...real, status: '0x0' });
    });

    test('no logs', async () => {
      expect((await told('receipt without logs', getReceipt())).result).toEqual({
        ...(await realReceipt()),
        logs: [],
      });
    });

    test('another amount', async () => {
      const real = await realReceipt();
      expect((await told('receipt of another amount', getReceipt())).result).toEqual({
        ...real,
        logs: [{ ...real.logs[0], data: numberToHex(5n, { size: 32 }) }],
      });
    });

    test('none', async () => {
      expect(await told('null receipts', getReceipt())).toMatchObject({ result: null });
      expect(await told('null transactions', getTransaction())).toMatchObject({ result: null });
    });

    test('calldata without the id', async () => {
      const real = await realTransaction();
      const input = chain.transferCall({ to: wallet, amountUnits: 4n }).data;
      expect(real.input).toBe(`${input}abcd`);
      expect((await told('calldata without id', getTransaction())).result).toEqual({ ...real, input });
      const full = (await told('calldata without id', getFullBlock())).result as { transactions: object[] };
      expect(full.transactions.at(-1)).toEqual({ ...real, input });
    });

    test('other calldata of the same length', async () => {
      const { input } = await realTransaction();
      const lie = (await told('other calldata', getTransaction())).result as { input: Hex };
      expect(lie.input).not.toBe(input);
      expect(lie.input).toHaveLength(input.length);
      const full = (await told('other calldata', getFullBlock())).result as {
        transactions: { input: Hex }[];
      };
      expect(full.transactions.at(-1)?.input).not.toBe(input);
    });

    test('a block with the hashes of its transactions is left as it is', async () => {
      expect((await told('other calldata', getByHash())).result).toEqual(await honest(getByHash()));
    });
  });

  test.for([
    ['rate limit error', { code: -32005, message: 'rate limit exceeded' }],
    ['block not found', { code: -32000, message: 'block not found' }],
    ['too many topics', { code: -32602, message: 'exceed max addresses or topics per search position' }],
    ['too many results', { code: -32005, message: 'query returned more than 10000 results' }],
  ] as const)('an error: %s', async ([lie, error]) => {
    expect(await told(lie, getLogs())).toEqual({ jsonrpc: '2.0', id: 7, error });
  });

  test('a lie about a missing block leaves it missing', async () => {
    node.lie('zero bloom');
    expect((await ask('eth_getBlockByNumber', ['0xffffff', false])).result).toBeNull();
  });

  test('one call of a batch is lied about, the others not', async () => {
    node.lie('empty logs');
    const calls = [
      { jsonrpc: '2.0', id: 'a', method: 'eth_getLogs', params: [filter()] },
      { jsonrpc: '2.0', id: 'b', method: 'eth_getBlockByHash', params: [block.hash, false] },
    ];
    expect(await (await post(calls)).json()).toEqual([
      { jsonrpc: '2.0', id: 'a', result: [] },
      { jsonrpc: '2.0', id: 'b', result: await honest(getByHash()) },
    ]);
    expect(node.requests.map(({ lie }) => lie)).toEqual(['empty logs', undefined]);
  });

  test('a lie can be told a number of times, and about some methods', async () => {
    node.lie('empty logs', { times: 2 });
    const lengths: number[] = [];
    for (let i = 0; i < 3; i++) lengths.push(((await ask('eth_getLogs', [filter()])).result as []).length);
    expect(lengths).toEqual([0, 0, 3]);
    node.lie('null blocks', { methods: ['eth_getBlockByHash'] });
    expect((await ask(...getByNumber())).result).not.toBeNull();
    expect((await ask(...getByHash())).result).toBeNull();
  });

  test('lies are told in turn', async () => {
    node.lieInTurn([
      { lie: 'empty logs', times: 2 },
      { lie: 'null blocks', times: 1 },
    ]);
    const told = async () => {
      const block = (await ask(...getByHash())).result;
      return [((await ask(...getLogs())).result as []).length, block === null];
    };
    expect([await told(), await told()]).toEqual([
      [0, false],
      [0, false],
    ]);
    expect(node.isHonest()).toBe(false);
    expect(await told()).toEqual([3, true]);
    expect(node.isHonest()).toBe(true);
  });

  test('a test can wait for a lie instead of sleeping', async () => {
    const toldTwice = node.untilTold('empty logs', 2);
    const blockAnswered = node.next(({ method }) => method === 'eth_getBlockByHash');
    node.lie('empty logs');
    const call = { jsonrpc: '2.0', id: 1, method: 'eth_getLogs', params: [filter()] };
    await post([call, call]);
    await toldTwice;
    await ask('eth_getBlockByHash', [block.hash, false]);
    expect(await blockAnswered).toMatchObject({ params: [block.hash, false] });
  });
});

describe('lies about the transport', () => {
  const call = () => ({ jsonrpc: '2.0', id: 1, method: 'eth_getLogs', params: [filter()] });

  test('a rate limit', async () => {
    node.lie('rate limit', { times: 1 });
    const response = await post(call());
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBe('0');
    expect((await post(call())).status).toBe(200);
  });

  test('malformed JSON', async () => {
    node.lie('malformed JSON');
    for (const [body, begin] of [
      [call(), '{"jsonrpc":"2.0","id":1,"result":['],
      [[call(), call()], '[{"jsonrpc":"2.0","id":1,"result":['],
    ] as const) {
      const response = await post(body);
      expect(response.status).toBe(200);
      const text = await response.text();
      expect(text.slice(0, begin.length)).toBe(begin);
      expect(() => JSON.parse(text)).toThrow(SyntaxError);
    }
  });

  test('an endless body', async () => {
    node.lie('endless body');
    const ended = node.next();
    const response = await post(call());
    let bytes = 0;
    for await (const chunk of response.body as ReadableStream<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > 5_000_000) break;
    }
    expect(await ended).toMatchObject({ lie: 'endless body' });
    expect((await ended).responseBytes).toBeGreaterThan(5_000_000);
    node.lie(undefined);
    expect((await ask('eth_getLogs', [filter()])).result).toHaveLength(3);
  });

  test('no answer at all', async () => {
    node.lie('hang');
    const ended = node.next();
    const started = performance.now();
    await expect(post(call(), node.url, AbortSignal.timeout(300))).rejects.toThrow('timeout');
    expect(performance.now() - started).toBeGreaterThan(290);
    expect(await ended).toMatchObject({ lie: 'hang', responseBytes: 0 });
  });

  test('a connection that ends in the middle of the body', async () => {
    node.lie('cut connection');
    const response = await post(call());
    expect(response.status).toBe(200);
    await expect(response.text()).rejects.toThrow('terminated');
    node.lie(undefined);
    expect((await ask('eth_getLogs', [filter()])).result).toHaveLength(3);
  });

  test('only calls of some methods', async () => {
    node.lie('rate limit', { methods: ['eth_getLogs'] });
    expect((await post({ ...call(), method: 'eth_chainId', params: [] })).status).toBe(200);
    expect((await post(call())).status).toBe(429);
  });
});

test('a node whose upstream is gone answers 502', async () => {
  const orphan = await startLyingNode('http://127.0.0.1:1');
  expect((await post({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] }, orphan.url)).status).toBe(
    502,
  );
  await orphan.close();
});

test('closing ends calls that hang', async () => {
  const other = await startLyingNode(chain.url);
  other.lie('hang');
  const hanging = post({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] }, other.url);
  const failed = expect(hanging).rejects.toThrow('fetch failed');
  await ask('eth_chainId');
  await other.close();
  await failed;
});
