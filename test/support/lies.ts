// What a node can say that is not so. A lie about an answer changes one answer; a lie about the transport spoils the
// whole HTTP response.

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
  /** Lies only about these methods; about all that the lie is about unless given. */
  methods?: readonly string[];
  /** Honest again after so many; lies until told otherwise unless given. */
  times?: number;
  /** For `older head`: how many blocks behind. */
  depth?: number;
  /** For `rate limit`: how many seconds it asks to be left alone. */
  retryAfter?: number;
  /** For `invented log`: the transfer that never was. */
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

/** The result, changed by `change` if there is one. */
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

/** Changes the transaction, or every one of a block. Hashes in place of transactions stay. */
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
  /** Those at odd places; of one log, none. */
  'half of the logs': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) => changed<Log[]>(honest, (logs) => logs.filter((_, index) => index % 2 === 1)),
  },
  'invented log': {
    methods: ['eth_getLogs'],
    tell: (call, honest, ask, options) =>
      changed<Log[]>(honest, async (logs) => [...logs, await invent(call, ask, options)]),
  },
  /** One unit more in every log. */
  'log of another amount': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) =>
      changed<Log[]>(honest, (logs) => logs.map((log) => ({ ...log, data: oneMore(log.data) }))),
  },
  /** Every log, and the same before it in the same transaction. */
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
  /** A final block that is further than the newest one. */
  'far finalized': {
    methods: ['eth_getBlockByNumber'],
    tell: ({ params: [tag] }, honest) =>
      tag === 'finalized'
        ? changed<Block>(honest, (block) => ({ ...block, number: numberToHex(Number(block.number) + 1_000) }))
        : honest,
  },
  /** A newest block that is far behind the one there is. */
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
  /** All logs at the index of the first: as some nodes of Polygon had the logs of its own messages. */
  'equal log index': {
    methods: ['eth_getLogs'],
    tell: (_call, honest) =>
      changed<Log[]>(honest, (logs) => logs.map((log) => ({ ...log, logIndex: (logs[0] as Log).logIndex }))),
  },
  /** Every block under another hash, which is always the same. */
  'another fork': {
    methods: [...blockMethods, 'eth_getLogs', 'eth_getTransactionByHash', 'eth_getTransactionReceipt'],
    async tell({ method, params }, _honest, ask) {
      // What is asked for by a hash of the fork is asked for by the real one.
      const asked = method === 'eth_getBlockByHash' ? /"(0x\w{64})"/g : /"blockHash":"(0x\w{64})"/g;
      const answer = await ask(method, JSON.parse(otherFork(JSON.stringify(params), asked)));
      return JSON.parse(otherFork(JSON.stringify(answer), hashesOfBlocks(method)));
    },
  },
  'other chain': {
    methods: ['eth_chainId', 'net_version'],
    tell: ({ method }) => ({ result: method === 'eth_chainId' ? '0x1' : '1' }),
  },
  /** The block that was asked for, and its logs, under another hash. */
  'wrong hash': {
    methods: [...blockMethods, 'eth_getLogs'],
    tell: ({ method }, honest) =>
      method === 'eth_getLogs'
        ? changed<Log[]>(honest, (logs) => logs.map((log) => ({ ...log, blockHash: randomHash() })))
        : changed<Block>(honest, (block) => ({ ...block, hash: randomHash() })),
  },
  /** The parent of the block that was asked for. */
  'other block': {
    methods: blockMethods,
    tell: ({ params: [, ...rest] }, honest, ask) =>
      changed<Block>(
        honest,
        async ({ parentHash }) => (await ask('eth_getBlockByHash', [parentHash, ...rest])).result,
      ),
  },
  /** Of a transaction that succeeded it says that it failed, and the other way round. */
  'other receipt status': {
    methods: receiptMethods,
    tell: changedReceipt((receipt) => ({ ...receipt, status: receipt.status === '0x1' ? '0x0' : '0x1' })),
  },
  'receipt without logs': {
    methods: receiptMethods,
    tell: changedReceipt((receipt) => ({ ...receipt, logs: [] })),
  },
  /** One unit more in every log. */
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
  /** Without what follows the arguments of a transfer, where the checkout puts the intent's id. */
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
  /** The body stops in the middle of its JSON, as if it ended there. */
  'malformed JSON',
  /** The body never ends. */
  'endless body',
  /** There is never an answer. */
  'hang',
  /** The connection ends in the middle of the body. */
  'cut connection',
] as const;

export type AnswerLieName = keyof typeof answerLies;
export type TransportLieName = (typeof transportLies)[number];
export type Lie = AnswerLieName | TransportLieName;

export const isTransportLie = (lie: Lie): lie is TransportLieName =>
  (transportLies as readonly string[]).includes(lie);

/** True if the lie is about calls of this method. */
export function concerns(lie: Lie, { methods }: LieOptions, { method }: RpcCall): boolean {
  const about = methods ?? (isTransportLie(lie) ? [] : answerLies[lie].methods);
  return about.length === 0 || about.includes(method);
}

const hashesOfBlocks = (method: string): RegExp =>
  blockMethods.includes(method)
    ? /"(?:hash|parentHash|blockHash)":"(0x\w{64})"/g
    : /"blockHash":"(0x\w{64})"/g;

/** JSON whose hashes have another first digit; and the same again, when it is done twice. */
function otherFork(json: string, hashes: RegExp): string {
  const flipped = (digit: string) => (Number.parseInt(digit, 16) ^ 8).toString(16);
  return json.replace(hashes, (field, hash: string) =>
    field.replace(hash, `0x${flipped(hash[2] as string)}${hash.slice(3)}`),
  );
}

/** The number in the first word, and one. */
const oneMore = (data: Hex): Hex =>
  concatHex([numberToHex(hexToBigInt(slice(data, 0, 32)) + 1n, { size: 32 }), `0x${data.slice(2 + 64)}`]);

const randomHash = (): Hex => bytesToHex(randomBytes(32));

/** A log of the block that was asked for, or of the last of the range, after its real ones. */
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
