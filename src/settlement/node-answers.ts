// Parses the answers of nodes and validates the form of each value. Callers check that it is what they asked.

import type { Address, Hash, Hex } from 'viem';

/** Why an answer of a node was not used. Each is the value of a metric label. */
export const nodeFaults = [
  ...(['unreachable', 'late', 'refused', 'rate_limited', 'too_large', 'malformed'] as const),
  ...(['another_chain', 'another_block', 'no_answer', 'contradiction'] as const),
] as const;

export type NodeFault = (typeof nodeFaults)[number];

/** A node did not answer, or its answer cannot be used. Retry later. */
export class NodeError extends Error {
  readonly fault: NodeFault;
  /** When to ask again, if the node said so. */
  readonly retryAfterMs: number | undefined;

  constructor(
    fault: NodeFault,
    message: string,
    { retryAfterMs, ...options }: ErrorOptions & { retryAfterMs?: number | undefined } = {},
  ) {
    super(message, options);
    this.name = 'NodeError';
    this.fault = fault;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Parses each element of a list as it arrives and keeps the result in its place. */
export interface Elements {
  /** Such as `$.result.*`. */
  path: string;
  /** May throw NodeError. */
  read(element: unknown): unknown;
}

export interface Header {
  number: number;
  hash: Hash;
  parentHash: Hash;
  /** Whole seconds. */
  time: Date;
  logsBloom: Hex;
}

/** A `Transfer` log of one of the tokens. Addresses are in lower case. */
export interface TransferLog {
  token: Address;
  from: Address;
  to: Address;
  amountUnits: bigint;
  transactionHash: Hash;
  logIndex: number;
  blockNumber: number;
  blockHash: Hash;
}

/** The sender of a mint. */
export const zeroAddress: Address = `0x${'0'.repeat(40)}`;

export type PlainLog = { address: Address; topics: readonly Hex[]; data: Hex; logIndex: number };

export interface Transaction {
  hash: Hash;
  from: Address;
  /** Null for a contract creation. */
  to: Address | null;
  input: Hex;
  blockHash: Hash;
}

export interface Receipt {
  transactionHash: Hash;
  blockHash: Hash;
  blockNumber: number;
  /** In log order. */
  logs: readonly PlainLog[];
  /** The same, by log index. */
  logAt: ReadonlyMap<number, PlainLog>;
}

/** Topic 0 of `Transfer(address,address,uint256)`. */
export const transferTopic: Hash = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

/** The largest amount that every JSON client holds exactly: 9 billion USDC. Larger transfers are ignored. */
const maxAmount = BigInt(Number.MAX_SAFE_INTEGER);

/** Numbers above these are rejected here: an error of the database would not make another node the reader. */
const maxNumber = 1e13;
const maxTime = Date.UTC(9999, 0) / 1_000;
const maxLogIndex = 2 ** 31 - 1;

/** Parses a block without its transactions. Throws NodeError (`malformed`). */
export function readHeader(value: unknown): Header {
  const block = objectOf(value, 'a block');
  return {
    number: readNumber(block.number, 'number'),
    hash: hashOf(block.hash, 'hash'),
    parentHash: hashOf(block.parentHash, 'parentHash'),
    time: new Date(readNumber(block.timestamp, 'timestamp', maxTime) * 1000),
    logsBloom: readBytes(block.logsBloom, 'logsBloom', 256),
  };
}

/**
 * The hash of a block's first transaction, whose receipt a node has if it has any of the block. Undefined if
 * there may be no receipt: Polygon's state-sync transactions come last, and the local chain removes old empty
 * blocks. Throws NodeError (`no_answer`) if the block's transactions are missing.
 */
export function readFirstTransaction(value: unknown): Hash | undefined {
  if (value === null) return undefined;
  const { transactions } = objectOf(value, 'a block');
  const [first, second] = listOf(transactions, 'transactions');
  if (first === undefined && !/^0x0*$/.test(readHeader(value).logsBloom)) {
    throw new NodeError('no_answer', 'the node has a block with logs but not its transactions');
  }
  return second === undefined ? undefined : hashOf(first, 'a transaction');
}

/**
 * Returns the parser of the `Transfer` logs of one answer. It returns undefined for a transfer to its sender
 * and for an amount of 0 or above `maxAmount`. It throws for a repeated, removed or unrequested log.
 */
export function transferLogs(tokens: ReadonlySet<string>): Elements {
  const seen = new Set<string>();
  const readLog = (entry: unknown): TransferLog | undefined => {
    const log = objectOf(entry, 'a log');
    const { address, topics, data, logIndex } = readPlainLog(log);
    const [topic, from = '', to = '', ...others] = topics;
    if (log.removed === true) throw malformed('a removed log');
    // Another contract may emit an event with this topic 0. Our tokens never emit one with other topics.
    if (topic !== transferTopic || !tokens.has(address) || others.length > 0) {
      throw new NodeError('contradiction', 'the node returned a log that was not asked for');
    }
    const read: TransferLog = {
      token: address,
      from: addressOfTopic(from),
      to: addressOfTopic(to),
      amountUnits: BigInt(readBytes(data, 'data', 32)),
      transactionHash: hashOf(log.transactionHash, 'transactionHash'),
      logIndex,
      blockNumber: readNumber(log.blockNumber, 'blockNumber'),
      blockHash: hashOf(log.blockHash, 'blockHash'),
    };
    // Polygon nodes have returned state-sync logs with the index of a log of another transaction.
    const place = `${read.blockHash} ${read.transactionHash} ${logIndex}`;
    if (seen.has(place))
      throw new NodeError('contradiction', 'the node returned two logs with the same index');
    seen.add(place);
    const movesMoney = read.amountUnits > 0n && read.amountUnits <= maxAmount && read.from !== read.to;
    return movesMoney ? read : undefined;
  };
  return { path: '$.result.*', read: readLog };
}

/** Returns the transfers that move money. `isEmpty`: there were no logs at all. */
export function readTransferLogs(value: unknown): { logs: TransferLog[]; isEmpty: boolean } {
  const all = listOf(value, 'logs') as readonly (TransferLog | undefined)[];
  return { logs: all.filter((log) => log !== undefined), isEmpty: all.length === 0 };
}

export function readTransaction(value: unknown): Transaction {
  const transaction = objectOf(value, 'a transaction');
  if (transaction.blockHash === null)
    throw new NodeError('no_answer', 'the node has a transaction in no block');
  return {
    hash: hashOf(transaction.hash, 'hash'),
    // A transaction of an unknown form names no intent, and must not stop the reading.
    from: transaction.from == null ? zeroAddress : addressOf(transaction.from, 'from'),
    to: transaction.to == null ? null : addressOf(transaction.to, 'to'),
    input: transaction.input == null ? '0x' : readBytes(transaction.input, 'input'),
    blockHash: hashOf(transaction.blockHash, 'blockHash'),
  };
}

export const receiptLogs: Elements = {
  path: '$.result.logs.*',
  read: (log) => readPlainLog(objectOf(log, 'a log')),
};

/** Parses a receipt whose logs `receiptLogs` has parsed. Throws NodeError (`malformed`). */
export function readReceipt(value: unknown): Receipt {
  const receipt = objectOf(value, 'a receipt');
  const logs = listOf(receipt.logs, 'logs') as readonly PlainLog[];
  return {
    transactionHash: hashOf(receipt.transactionHash, 'transactionHash'),
    blockHash: hashOf(receipt.blockHash, 'blockHash'),
    blockNumber: readNumber(receipt.blockNumber, 'blockNumber'),
    logs,
    logAt: new Map(logs.map((log) => [log.logIndex, log])),
  };
}

/** Parses only a block's transactions with these hashes: strangers decide how large the others are. */
export function blockTransactions(hashes: ReadonlySet<Hash>): Elements {
  return {
    path: '$.result.transactions.*',
    read(element) {
      // Others are not parsed: a chain may have its own forms of transactions.
      const { hash } = objectOf(element, 'a transaction');
      return typeof hash === 'string' && hashes.has(hash.toLowerCase() as Hash)
        ? readTransaction(element)
        : undefined;
    },
  };
}

/** The block's header, and the transactions kept by `blockTransactions`. */
export function readFullBlock(value: unknown): { header: Header; transactions: Transaction[] } {
  const { transactions } = objectOf(value, 'a block');
  const read = listOf(transactions, 'transactions') as readonly (Transaction | undefined)[];
  return { header: readHeader(value), transactions: read.filter((each) => each !== undefined) };
}

function readPlainLog(log: Readonly<Record<string, unknown>>): PlainLog {
  return {
    address: addressOf(log.address, 'address'),
    topics: listOf(log.topics, 'topics').map((topic) => readBytes(topic, 'a topic', 32)),
    data: readBytes(log.data, 'data'),
    logIndex: readNumber(log.logIndex, 'logIndex', maxLogIndex),
  };
}

const malformed = (what: string): NodeError => new NodeError('malformed', `the node answered with ${what}`);

function objectOf(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return value as Record<string, unknown>;
  }
  throw malformed(`something that is not ${name}`);
}

function listOf(value: unknown, name: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw malformed(`something that is not a list of ${name}`);
}

/** Throws NodeError (`malformed`), as do the other functions here. */
export function readNumber(value: unknown, name: string, max = maxNumber): number {
  const number = typeof value === 'string' && /^0x[0-9a-f]{1,16}$/i.test(value) ? Number(value) : Number.NaN;
  if (number <= max) return number;
  throw malformed(`a wrong ${name}`);
}

/** Returns the value in lower case. Any length is accepted unless one is given. */
export function readBytes(value: unknown, name: string, length?: number): Hex {
  if (
    typeof value === 'string' &&
    (length === undefined ? value.length % 2 === 0 : value.length === 2 + 2 * length) &&
    /^0x[0-9a-f]*$/i.test(value)
  ) {
    return value.toLowerCase() as Hex;
  }
  throw malformed(`a wrong ${name}`);
}

const hashOf = (value: unknown, name: string): Hash => readBytes(value, name, 32);
const addressOf = (value: unknown, name: string): Address => readBytes(value, name, 20);

function addressOfTopic(topic: string): Address {
  if (!topic.startsWith(`0x${'0'.repeat(24)}`)) throw malformed('a wrong address in a topic');
  return `0x${topic.slice(26)}`;
}
