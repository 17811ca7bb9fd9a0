// A node that lies when told to: a JSON-RPC proxy over HTTP in front of a real node.

import { EventEmitter, once } from 'node:events';
import http from 'node:http';
import { setTimeout } from 'node:timers/promises';
import {
  answerLies,
  concerns,
  isTransportLie,
  type Lie,
  type LieOptions,
  type RpcAnswer,
  type RpcCall,
  type ToldLie,
  type TransportLieName,
} from './lies.ts';
import { listen } from './listen.ts';

export type { Lie } from './lies.ts';

/** One call, whether it was answered or not. */
export interface NodeRequest {
  method: string;
  params: unknown[];
  /** The lie that was told; undefined if the node was honest. */
  lie: Lie | undefined;
  /** The number of calls in its HTTP request. */
  batchSize: number;
  /** The size of that HTTP request. */
  requestBytes: number;
  /** The size of its own answer, or its share of the written bytes if the whole response was spoilt. */
  responseBytes: number;
}

export interface NodeLimits {
  /** The most values in one position of a filter's topics, as in Geth and Erigon, but not in anvil. */
  maxTopicValues?: number;
  /** The most logs in one answer about a range of blocks, as with providers. */
  maxResults?: number;
  /** The most blocks in a requested range of logs, as with providers. Default: any number. */
  maxRange?: number;
  /** Its reported client. Default: that of the real node. Only a chain of anvil may begin anew. */
  clientVersion?: string;
  /** How long each answer takes, as on a network. */
  delayMs?: number;
  /** Units a second, as in a provider's plan, and the burst: a block or logs cost 3, the rest 1. */
  unitsPerSecond?: number;
}

export type Rewrite = (
  call: RpcCall,
  real: RpcAnswer,
  ask: (method: string, params: unknown[]) => Promise<RpcAnswer>,
) => RpcAnswer | undefined | Promise<RpcAnswer | undefined>;

export type LyingNode = Awaited<ReturnType<typeof startLyingNode>>;

/** Starts an honest proxy in front of the node at `upstream`. The caller closes it. */
export async function startLyingNode(
  upstream: string,
  {
    maxTopicValues = 1_000,
    maxResults = 10_000,
    maxRange = Number.POSITIVE_INFINITY,
    clientVersion,
    delayMs = 0,
    unitsPerSecond = Number.POSITIVE_INFINITY,
  }: NodeLimits = {},
) {
  /** The lie that is told now, and those that follow it. */
  let told: { lie: Lie; options: LieOptions; times: number }[] = [];
  const requests: NodeRequest[] = [];
  /** The newest block that it has. Undefined: that of the real node. */
  let newest: number | undefined;
  let rewrite: Rewrite | undefined;
  const mayAnswer = plan(unitsPerSecond);
  let overPlan = 0;
  const answered = new EventEmitter().setMaxListeners(0);

  async function ask(method: string, params: unknown[]): Promise<RpcAnswer> {
    const [answer] = await forward(upstream, [{ id: 1, method, params }]);
    return answer ?? {};
  }

  /** Returns the lie for this call, and counts it as told. */
  function lieAbout(
    call: RpcCall,
    isWanted: (lie: Lie) => boolean,
  ): { lie: Lie; options: LieOptions } | undefined {
    const [now] = told;
    if (now === undefined || !isWanted(now.lie) || !concerns(now.lie, now.options, call)) return undefined;
    const { lie, options } = now;
    now.times++;
    if (now.times === options.times) told.shift();
    return { lie, options };
  }

  function until(isLast: (request: NodeRequest) => boolean): Promise<NodeRequest> {
    return new Promise((resolve) => {
      const listener = (request: NodeRequest) => {
        if (!isLast(request)) return;
        answered.off('request', listener);
        resolve(request);
      };
      answered.on('request', listener);
    });
  }

  function record(request: NodeRequest): void {
    requests.push(request);
    answered.emit('request', request);
  }

  async function answerCalls(calls: RpcCall[], requestBytes: number): Promise<string[]> {
    const refusals = calls.map((call) => refusedTopics(call, maxTopicValues) ?? refusedRange(call, maxRange));
    const accepted = calls.filter((_, index) => refusals[index] === undefined);
    const upTo = accepted.map((call) => withNewest(call, newest));
    const honest = accepted.length === 0 ? [] : await forward(upstream, upTo);
    const texts: string[] = [];
    for (const [index, call] of calls.entries()) {
      const forwarded = later(call, newest) ?? honest[accepted.indexOf(call)] ?? {};
      const version =
        call.method === 'web3_clientVersion' && clientVersion !== undefined
          ? { result: clientVersion }
          : undefined;
      const real = refusals[index] ?? refusedResults(call, forwarded, maxResults) ?? version ?? forwarded;
      const lie = lieAbout(call, (each) => !isTransportLie(each));
      const answer =
        lie === undefined || isTransportLie(lie.lie)
          ? real
          : await answerLies[lie.lie].tell(call, real, ask, lie.options);
      const text = textOf(call.id, (await rewrite?.(call, answer, ask)) ?? answer);
      // A lie that changes nothing was not told.
      const isTold = text !== textOf(call.id, real);
      record({
        ...{ method: call.method, params: call.params, lie: isTold ? lie?.lie : undefined },
        ...{ batchSize: calls.length, requestBytes, responseBytes: Buffer.byteLength(text) },
      });
      texts.push(text);
    }
    return texts;
  }

  async function handle(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    if (delayMs > 0) await setTimeout(delayMs);
    const body = Buffer.concat(chunks);
    const parsed: RpcCall | RpcCall[] = JSON.parse(String(body));
    const calls = [parsed].flat();
    if (!mayAnswer(calls)) {
      overPlan++;
      response.writeHead(429, { 'Content-Type': 'application/json' });
      response.end('{"error":{"message":"Your app has exceeded its compute units per second capacity."}}');
      return;
    }

    const spoiled = calls.map((call) => lieAbout(call, isTransportLie)).find((lie) => lie !== undefined);
    if (spoiled !== undefined && isTransportLie(spoiled.lie)) {
      const { lie, options } = spoiled;
      const honest = async () => {
        const answers = await forward(upstream, calls);
        return bodyOf(
          answers.map((answer, index) => textOf(calls[index]?.id, answer)),
          Array.isArray(parsed),
        );
      };
      const responseBytes = Math.round((await spoil[lie](response, honest, options)) / calls.length);
      for (const { method, params } of calls) {
        record({ method, params, lie, batchSize: calls.length, requestBytes: body.length, responseBytes });
      }
      return;
    }
    const texts = await answerCalls(calls, body.length);
    response.setHeader('Content-Type', 'application/json');
    response.end(bodyOf(texts, Array.isArray(parsed)));
  }

  const server = http.createServer((request, response) => {
    handle(request, response).catch((error) => {
      // The client or the real node is gone.
      if (!response.headersSent) response.writeHead(502);
      response.end(String(error));
    });
  });

  return {
    ...(await listen(server)),
    /** All calls, oldest first. */
    requests,
    /** The number of requests beyond the plan. */
    overPlan: () => overPlan,
    /** Has no block after this one. Undefined: has all blocks of the real node. */
    stopAt(block: number | undefined): void {
      newest = block;
    },
    /** From now on, answers with what `how` returns, if anything. */
    rewrite(how: Rewrite | undefined): void {
      rewrite = how;
    },
    /** Lies from now on, or is honest again. */
    lie(lie: Lie | undefined, options: LieOptions = {}): void {
      told = lie === undefined ? [] : [{ lie, options, times: 0 }];
    },
    /** Tells these lies from now on, each after the previous one was told its `times`. */
    lieInTurn(lies: readonly ToldLie[]): void {
      told = lies.map(({ lie, ...options }) => ({ lie, options, times: 0 }));
    },
    /** True if no lie is left. */
    isHonest: () => told.length === 0,
    /** The bytes of all requests and answers. */
    bytes(): { received: number; sent: number } {
      let [received, sent] = [0, 0];
      for (const { requestBytes, responseBytes, batchSize } of requests) {
        received += requestBytes / batchSize;
        sent += responseBytes;
      }
      return { received: Math.round(received), sent };
    },
    /** Resolves with the next request that matches, once it is answered. */
    next(matches: (request: NodeRequest) => boolean = () => true): Promise<NodeRequest> {
      return until((request) => matches(request));
    },
    /** Resolves once this lie has been told `times` times from now on. */
    async untilTold(lie: Lie, times = 1): Promise<void> {
      let left = times;
      await until((request) => request.lie === lie && --left === 0);
    },
  };
}

/** Returns a function that says whether a plan with so many units a second allows these calls. */
function plan(unitsPerSecond: number): (calls: readonly RpcCall[]) => boolean {
  let [units, atMs] = [unitsPerSecond, performance.now()];
  return (calls) => {
    if (unitsPerSecond === Number.POSITIVE_INFINITY) return true;
    const now = performance.now();
    units = Math.min(unitsPerSecond, units + ((now - atMs) / 1_000) * unitsPerSecond);
    atMs = now;
    const cost = calls.reduce((sum, { method }) => sum + (/Block|Logs/.test(method) ? 3 : 1), 0);
    if (cost > units) return false;
    units -= cost;
    return true;
  };
}

/** Changes a call for a node that has no block after this one. */
function withNewest(call: RpcCall, newest: number | undefined): RpcCall {
  const [block, ...others] = call.params ?? [];
  if (newest === undefined || call.method !== 'eth_getBlockByNumber' || block !== 'latest') return call;
  return { ...call, params: [`0x${newest.toString(16)}`, ...others] };
}

/** Returns the answer about a block that does not exist yet. */
function later({ method, params: [block] = [] }: RpcCall, newest: number | undefined): RpcAnswer | undefined {
  const isLater = method === 'eth_getBlockByNumber' && Number(block) > (newest ?? Number.POSITIVE_INFINITY);
  return isLater ? { result: null } : undefined;
}

const textOf = (id: unknown, answer: RpcAnswer) => JSON.stringify({ jsonrpc: '2.0', id, ...answer });

const bodyOf = (texts: readonly string[], isBatch: boolean) =>
  isBatch ? `[${texts.join(',')}]` : (texts[0] ?? '');

/** Asks the real node, and puts its answers in the order of the calls. */
async function forward(upstream: string, calls: readonly RpcCall[]): Promise<RpcAnswer[]> {
  const response = await fetch(upstream, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(
      calls.map(({ method, params = [] }, id) => ({ jsonrpc: '2.0', id, method, params })),
    ),
  });
  const answers = (await response.json()) as (RpcAnswer & { id: number })[];
  const byCall: RpcAnswer[] = calls.map(() => ({}));
  for (const { id, result, error } of answers) byCall[id] = error === undefined ? { result } : { error };
  return byCall;
}

function refusedTopics({ method, params }: RpcCall, maxTopicValues: number): RpcAnswer | undefined {
  if (method !== 'eth_getLogs') return undefined;
  const { topics = [] } = (params[0] ?? {}) as { topics?: unknown[] };
  const isTooMany = topics.some((values) => Array.isArray(values) && values.length > maxTopicValues);
  if (!isTooMany) return undefined;
  return { error: { code: -32602, message: 'exceed max addresses or topics per search position' } };
}

function refusedRange({ method, params }: RpcCall, maxRange: number): RpcAnswer | undefined {
  const { fromBlock, toBlock } = (params?.[0] ?? {}) as { fromBlock?: string; toBlock?: string };
  if (method !== 'eth_getLogs' || fromBlock === undefined) return undefined;
  if (Number(toBlock) - Number(fromBlock) < maxRange) return undefined;
  return { error: { code: -32600, message: `ranges of more than ${maxRange} blocks are not served` } };
}

function refusedResults(
  { method, params }: RpcCall,
  { result }: RpcAnswer,
  maxResults: number,
): RpcAnswer | undefined {
  if (method !== 'eth_getLogs' || 'blockHash' in ((params[0] ?? {}) as object)) return undefined;
  if (!Array.isArray(result) || result.length <= maxResults) return undefined;
  return { error: { code: -32005, message: `query returned more than ${maxResults} results` } };
}

/** Writes the response and returns how many bytes of it were written. */
type Spoil = (
  response: http.ServerResponse,
  honest: () => Promise<string>,
  options: LieOptions,
) => Promise<number>;

const json = { 'Content-Type': 'application/json' };

const spoil: Record<TransportLieName, Spoil> = {
  async 'rate limit'(response, _, { retryAfter = 0 }) {
    const body = '{"jsonrpc":"2.0","id":null,"error":{"code":429,"message":"Too Many Requests"}}';
    response.writeHead(429, { ...json, 'Retry-After': retryAfter }).end(body);
    return body.length;
  },
  async 'malformed JSON'(response, honest) {
    const half = firstHalf(await honest());
    response.writeHead(200, json).end(half);
    return half.length;
  },
  async 'endless body'(response) {
    response.writeHead(200, json).write('{"jsonrpc":"2.0","id":1,"result":"0x');
    const zeros = '0'.repeat(65_536);
    let bytes = 0;
    while (!response.destroyed) {
      bytes += zeros.length;
      response.write(zeros);
      // As fast as a network. A faster body would only take CPU time from other tests.
      await setTimeout(10);
    }
    return bytes;
  },
  async hang(response) {
    await once(response, 'close');
    return 0;
  },
  async 'cut connection'(response, honest) {
    const text = await honest();
    const half = firstHalf(text);
    response.writeHead(200, { ...json, 'Content-Length': Buffer.byteLength(text) });
    await new Promise<void>((resolve) => response.write(half, () => resolve()));
    response.destroy();
    return half.length;
  },
};

const firstHalf = (text: string) => text.slice(0, Math.ceil(text.length / 2));
