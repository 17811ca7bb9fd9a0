// The lies that a node can tell. A lie about an answer changes one answer. A lie about the transport spoils
// the whole HTTP response.

import { randomBytes } from 'node:crypto';
import {
  type Address,
  bytesToHex,
  concatHex,
  encodeEventTopics,
  erc20Abi,
  type Hex,
  hexToBigInt,
  numberToHex,
  size,
  slice,
} from 'viem';

export interface RpcCall {
  id: unknown;
  method: string;
  params: unknown[];
}

export interface RpcAnswer {
  result?: unknown;
  error?: { code: number; message: string };
}

export interface LieOptions {
  /** Lies only about these methods. Default: all methods that the lie concerns. */
  methods?: readonly string[];
  /** Honest again after so many lies. Default: lies until told otherwise. */
  times?: number;
  /** For `older head`: how many blocks behind. */
  depth?: number;
  /** For `rate limit`: the seconds in `Retry-After`. */
  retryAfter?: number;
  /** For `invented log`: the invented transfer. */
  transfer?: { token: Address; from?: Address; to: Address; amountUnits: bigint };
}

/** A lie, and how it is told. */
export interface ToldLie extends LieOptions {
  lie: Lie;
}

/** Asks the real node. */
type Ask = (method: string, params: unknown[]) => Promise<RpcAnswer>;

interface AnswerLie {
  methods: readonly string[];
  tell(call: RpcCall, honest: RpcAnswer, ask: Ask, options: LieOptions): RpcAnswer | Promise<RpcAnswer>;
}

interface Block {
  number: Hex;
  hash: Hex;
  parentHash: Hex;
  transactions: (Hex | Transaction)[];
}

interface Log {
  blockHash: Hex;
  data: Hex;
  logIndex: Hex;
}

interface Receipt {
  status: Hex;
  logs: Log[];
}

interface Transaction {
  input: Hex;
}

const blockMethods = ['eth_getBlockByNumber', 'eth_getBlockByHash'];
const blockContentMethods = [
  'eth_getLogs',
  ...blockMethods,
  'eth_getBlockReceipts',
  'eth_getTransactionReceipt',
];
const receiptMethods = ['eth_getTransactionReceipt'];
const transactionMethods = ['eth_getTransactionByHash', 'eth_getBlockByHash'];
/** The selector and the arguments of `transfer(address,uint256)`, in hexadecimal digits with `0x`. */
const transferCallDigits = 2 + 8 + 64 + 64;
const headTags = ['latest', 'safe', 'finalized', 'pending'];

const refusal =
  (code: number, message: string): AnswerLie['tell'] =>
  () => ({ error: { code, message } });

/** Returns the answer with its result changed by `change`, if it has one. */
function changed<Result>(
  { result, error }: RpcAnswer,
  change: (result: Result) => unknown | Promise<unknown>,
): RpcAnswer | Promise<RpcAnswer> {
  if (error !== undefined || result === null || result === undefined)
    return { result, ...(error && { error }) };
  const value = change(result as Result);
  return value instanceof Promise ? value.then((result) => ({ result })) : { result: value };
}

const changedReceipt =
  (change: (receipt: Receipt) => Receipt): AnswerLie['tell'] =>
  (_call, honest) =>
    changed<Receipt>(honest, change);

/** Changes the transaction, or each transaction of a block. Keeps hashes in place of transactions. */
const changedInput =
  (change: (input: Hex) => Hex): AnswerLie['tell'] =>
  ({ method }, honest) => {
    const changeOne = (transaction: Transaction) => ({ ...transaction, input: change(transaction.input) });
    return method === 'eth_getTransactionByHash'
      ? changed<Transaction>(honest, changeOne)
      : changed<Block>(honest, (block) => ({
          ...block,
          transactions: block.transactions.map((each) => (typeof each === 'string' ? each : changeOne(each))),
        }));
  };

export const answerLies = {
  'empty logs': { methods: ['eth_getLogs'], tell: () => ({ result: [] }) },
  /** Only the logs at odd indexes: none if there is one log. */
  'half of the logs': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) => changed<Log[]>(honest, (logs) => logs.filter((_, index) => index % 2 === 1)),
  },
  'invented log': {
    methods: ['eth_getLogs'],
    tell: (call, honest, ask, options) =>
      changed<Log[]>(honest, async (logs) => [...logs, await invent(call, ask, options)]),
  },
  /** Every log has one unit more. */
  'log of another amount': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) =>
      changed<Log[]>(honest, (logs) => logs.map((log) => ({ ...log, data: oneMore(log.data) }))),
  },
  /** Every log has a copy before it in the same transaction. */
  'log twice': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) =>
      changed<Log[]>(honest, (logs) =>
        logs.flatMap((log) => [
          ...(Number(log.logIndex) > 0 ? [{ ...log, logIndex: numberToHex(Number(log.logIndex) - 1) }] : []),
          log,
        ]),
      ),
  },
  'zero bloom': {
    methods: blockMethods,
    tell: (_call, honest) =>
      changed<Block>(honest, (block) => ({ ...block, logsBloom: `0x${'0'.repeat(512)}` })),
  },
  'null blocks': { methods: blockMethods, tell: () => ({ result: null }) },
  'older head': {
    methods: ['eth_blockNumber', 'eth_getBlockByNumber'],
    async tell({ method, params }, honest, ask, { depth = 5 }) {
      const earlier = (head: Hex) => numberToHex(Math.max(0, Number(head) - depth));
      if (method === 'eth_blockNumber') return changed<Hex>(honest, earlier);
      const [tag, ...rest] = params;
      if (!headTags.includes(String(tag))) return honest;
      return changed<Block>(
        honest,
        async ({ number }) => (await ask(method, [earlier(number), ...rest])).result,
      );
    },
  },
  /** A final block above the newest one. */
  'far finalized': {
    methods: ['eth_getBlockByNumber'],
    tell: ({ params: [tag] }, honest) =>
      tag === 'finalized'
        ? changed<Block>(honest, (block) => ({ ...block, number: numberToHex(Number(block.number) + 1_000) }))
        : honest,
  },
  /** The tag `finalized` is refused, as by a node that does not know it. */
  'no finalized': {
    methods: ['eth_getBlockByNumber'],
    tell: (call, honest) =>
      call.params[0] === 'finalized' ? { error: { code: -32602, message: 'unknown block tag' } } : honest,
  },
  /** A newest block far above the real one. */
  'far head': {
    methods: ['eth_getBlockByNumber'],
    tell: ({ params: [tag] }, honest) =>
      tag === 'latest'
        ? changed<Block>(honest, (block) => ({
            ...block,
            number: numberToHex(Number(block.number) + 1_000_000),
          }))
        : honest,
  },
  /** All logs have the index of the first, as some Polygon nodes had for the logs of Polygon's messages. */
  'equal log index': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) =>
      changed<Log[]>(honest, (logs) => logs.map((log) => ({ ...log, logIndex: (logs[0] as Log).logIndex }))),
  },
  /** Every block has another hash, consistently. */
  'another fork': {
    methods: [...blockMethods, 'eth_getLogs', 'eth_getTransactionByHash', 'eth_getTransactionReceipt'],
    async tell({ method, params }, _honest, ask) {
      // Requests by a hash of the fork use the real hash.
      const asked = method === 'eth_getBlockByHash' ? /"(0x\w{64})"/g : /"blockHash":"(0x\w{64})"/g;
      const answer = await ask(method, JSON.parse(otherFork(JSON.stringify(params), asked)));
      return JSON.parse(otherFork(JSON.stringify(answer), hashesOfBlocks(method)));
    },
  },
  'other chain': {
    methods: ['eth_chainId', 'net_version'],
    tell: ({ method }) => ({ result: method === 'eth_chainId' ? '0x1' : '1' }),
  },
  /** The requested block and its logs have another hash. */
  'wrong hash': {
    methods: [...blockMethods, 'eth_getLogs'],
    tell: ({ method }, honest) =>
      method === 'eth_getLogs'
        ? changed<Log[]>(honest, (logs) => logs.map((log) => ({ ...log, blockHash: randomHash() })))
        : changed<Block>(honest, (block) => ({ ...block, hash: randomHash() })),
  },
  /** The parent of the requested block. */
  'other block': {
    methods: blockMethods,
    tell: ({ params: [, ...rest] }, honest, ask) =>
      changed<Block>(
        honest,
        async ({ parentHash }) => (await ask('eth_getBlockByHash', [parentHash, ...rest])).result,
      ),
  },
  /** A successful transaction has failed, and vice versa. */
  'other receipt status': {
    methods: receiptMethods,
    tell: changedReceipt((receipt) => ({ ...receipt, status: receipt.status === '0x1' ? '0x0' : '0x1' })),
  },
  'receipt without logs': {
    methods: receiptMethods,
    tell: changedReceipt((receipt) => ({ ...receipt, logs: [] })),
  },
  /** Every log has one unit more. */
  'receipt of another amount': {
    methods: receiptMethods,
    tell: changedReceipt((receipt) => ({
      ...receipt,
      logs: receipt.logs.map((log) => ({ ...log, data: oneMore(log.data) })),
    })),
  },
  'receipt too large': {
    methods: receiptMethods,
    tell: refusal(-32000, 'response size should not greater than 10000000 bytes'),
  },
  'null receipts': { methods: receiptMethods, tell: () => ({ result: null }) },
  /** The bytes after the arguments of a transfer, where the checkout puts the intent's id, are missing. */
  'calldata without id': {
    methods: transactionMethods,
    tell: changedInput((input) => input.slice(0, transferCallDigits) as Hex),
  },
  'other calldata': {
    methods: transactionMethods,
    tell: changedInput((input) => bytesToHex(randomBytes(size(input)))),
  },
  'null transactions': {
    methods: ['eth_getTransactionByHash'],
    tell: () => ({ result: null }),
  },
  'rate limit error': { methods: [], tell: refusal(-32005, 'rate limit exceeded') },
  'block not found': { methods: blockContentMethods, tell: refusal(-32000, 'block not found') },
  'too many topics': {
    methods: ['eth_getLogs'],
    tell: refusal(-32602, 'exceed max addresses or topics per search position'),
  },
  'too many results': {
    methods: ['eth_getLogs'],
    tell: refusal(-32005, 'query returned more than 10000 results'),
  },
} as const satisfies Record<string, AnswerLie>;

export const transportLies = [
  /** HTTP 429 with `Retry-After`. */
  'rate limit',
  /** The body ends in the middle of its JSON. */
  'malformed JSON',
  /** The body never ends. */
  'endless body',
  /** No answer ever comes. */
  'hang',
  /** The connection ends in the middle of the body. */
  'cut connection',
] as const;

export type AnswerLieName = keyof typeof answerLies;
export type TransportLieName = (typeof transportLies)[number];
export type Lie = AnswerLieName | TransportLieName;

export const isTransportLie = (lie: Lie): lie is TransportLieName =>
  (transportLies as readonly string[]).includes(lie);

/** True if the lie concerns calls of this method. */
export function concerns(lie: Lie, { methods }: LieOptions, { method }: RpcCall): boolean {
  const about = methods ?? (isTransportLie(lie) ? [] : answerLies[lie].methods);
  return about.length === 0 || about.includes(method);
}

const hashesOfBlocks = (method: string): RegExp =>
  blockMethods.includes(method)
    ? /"(?:hash|parentHash|blockHash)":"(0x\w{64})"/g
    : /"blockHash":"(0x\w{64})"/g;

/** Changes the first digit of hashes in JSON. Doing so twice restores them. */
function otherFork(json: string, hashes: RegExp): string {
  const flipped = (digit: string) => (Number.parseInt(digit, 16) ^ 8).toString(16);
  return json.replace(hashes, (field, hash: string) =>
    field.replace(hash, `0x${flipped(hash[2] as string)}${hash.slice(3)}`),
  );
}

/** Adds one to the number in the first word. */
const oneMore = (data: Hex): Hex =>
  concatHex([numberToHex(hexToBigInt(slice(data, 0, 32)) + 1n, { size: 32 }), `0x${data.slice(2 + 64)}`]);

const randomHash = (): Hex => bytesToHex(randomBytes(32));

/** Adds a log to the requested block, or to the last one of the range, after its real logs. */
async function invent({ params: [filter] }: RpcCall, ask: Ask, { transfer }: LieOptions): Promise<unknown> {
  if (transfer === undefined) throw new Error('an invented log needs a transfer');
  const { blockHash, toBlock = 'latest' } = filter as { blockHash?: Hex; toBlock?: string };
  const { result } = blockHash
    ? await ask('eth_getBlockByHash', [blockHash, false])
    : await ask('eth_getBlockByNumber', [toBlock, false]);
  const block = result as { number: Hex; hash: Hex; timestamp: Hex };
  const { token, to, amountUnits } = transfer;
  const from = transfer.from ?? '0x00000000000000000000000000000000DeaDBeef';
  return {
    address: token.toLowerCase(),
    topics: encodeEventTopics({ abi: erc20Abi, eventName: 'Transfer', args: { from, to } }),
    data: numberToHex(amountUnits, { size: 32 }),
    blockNumber: block.number,
    blockHash: block.hash,
    blockTimestamp: block.timestamp,
    transactionHash: randomHash(),
    transactionIndex: '0x3e7',
    logIndex: '0x3e7',
    removed: false,
  };
}
