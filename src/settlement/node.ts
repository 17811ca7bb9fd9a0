// A node of a chain, over JSON-RPC. Validates that each answer is an answer to its request.

import * as Bloom from 'ox/Bloom';
import type { Hash, Hex } from 'viem';
import { callJsonRpc } from './json-rpc.ts';
import {
  blockTransactions,
  type Elements,
  type Header,
  NodeError,
  type NodeFault,
  type Receipt,
  readChainId,
  readFullBlock,
  readHeader,
  readReceipt,
  readTransaction,
  readTransferLogs,
  receiptLogs,
  type Transaction,
  type TransferLog,
  transferLogs,
  transferTopic,
} from './node-answers.ts';
import { createNodePace, type NodePace } from './node-pace.ts';

/** Includes reading the body. */
const defaultTimeoutMs = 10_000;
/** An empty answer that contradicts the block's bloom filter is accepted after this many attempts. */
const emptyAnswers = 5;
/** How long a rate-limited request is retried: half of a watcher's lease. */
const defaultPatienceMs = 3_000;
/** From this many transactions of a block on, fetching the whole block is cheaper. */
const wholeBlockFrom = 10;

/** Faults that mean that the node does not work, or not for us. */
const failureFaults: ReadonlySet<NodeFault> = new Set([
  'unreachable',
  'late',
  'malformed',
  'refused',
  'another_chain',
]);

export interface TransfersOfBlock {
  logs: TransferLog[];
  /** The node returned no transfers although the block's bloom filter may contain some. */
  isDoubtful: boolean;
}

export interface Node {
  /** Host and port. The rest of the address may be a secret. */
  readonly name: string;
  /** The request rate, shared by this process. */
  readonly pace: Pick<NodePace, 'perSecond'>;
  /** Since when every request has failed, by `performance.now()`. A rate limit is not a failure. */
  readonly failingSinceMs: number | undefined;
  /** Throws if the node is on another chain. */
  assertChain(): Promise<void>;
  /** The client version, such as `Geth/v1.14.12`. */
  version(): Promise<string>;
  /** The newest block, the newest final block, or a block by number. Undefined if the node does not have it. */
  header(at: number | 'latest' | 'finalized'): Promise<Header | undefined>;
  headerByHash(hash: Hash): Promise<Header | undefined>;
  /** Transfers of the tokens in one block, by its hash. */
  transfersOf(header: Header): Promise<TransfersOfBlock>;
  /** Transfers between two blocks, inclusive; only to these recipients, if given. */
  transfersBetween(from: number, to: number, recipients?: readonly Hex[]): Promise<TransferLog[]>;
  /** The transactions of one block with these hashes, as far as the node has them. */
  transactionsOf(
    header: Pick<Header, 'hash' | 'number'>,
    hashes: readonly Hash[],
  ): Promise<Map<Hash, Transaction>>;
  /** Undefined if the transaction is in no block. */
  receiptOf(hash: Hash): Promise<Receipt | undefined>;
}

export interface NodeOptions {
  url: string;
  chainId: number;
  /** Contracts of the tokens, in lower case. */
  tokens: readonly Hex[];
  /** Called for each answer that could not be used. */
  onFault?: (error: NodeError) => void;
  onRequest?: (method: string) => void;
  /** Runs a request in the trace of its work. */
  trace?: <T>(method: string, run: () => Promise<T>) => Promise<T>;
  timeoutMs?: number;
  patienceMs?: number;
}

/** Returns a client of the node. Connects lazily. Every method rejects with NodeError if its answer cannot be used. */
export function connectNode({
  url,
  chainId,
  tokens,
  onFault,
  onRequest,
  trace = (_, run) => run(),
  timeoutMs = defaultTimeoutMs,
  patienceMs = defaultPatienceMs,
}: NodeOptions): Node {
  const address = new URL(url);
  const name = address.host;
  const wanted: ReadonlySet<string> = new Set(tokens);
  const pace = createNodePace();
  let failingSinceMs: number | undefined;

  const ask = async <T>(
    method: string,
    params: readonly unknown[],
    read: (answer: unknown) => T,
    elements?: () => Elements,
  ): Promise<T> => {
    const deadlineMs = performance.now() + patienceMs;
    for (;;) {
      // Waiting longer would lose the lease.
      const pausedMs = pace.pausedMs();
      if (performance.now() + pausedMs > deadlineMs) {
        const seconds = Math.ceil(pausedMs / 1_000);
        throw new NodeError('rate_limited', `${name} asked to wait ${seconds} s more (rate limit)`);
      }
      await pace.turn();
      onRequest?.(method);
      try {
        const found = await trace(method, async () =>
          read(await callJsonRpc(address, method, params, timeoutMs, elements?.())),
        );
        pace.answered();
        failingSinceMs = undefined;
        return found;
      } catch (reason) {
        if (!(reason instanceof NodeError)) throw reason;
        const { fault, retryAfterMs } = reason;
        onFault?.(reason);
        if (fault === 'rate_limited') {
          pace.refused(retryAfterMs);
          if (performance.now() + (retryAfterMs ?? 0) < deadlineMs) continue;
        } else if (failureFaults.has(fault)) {
          failingSinceMs ??= performance.now();
        }
        throw reason;
      }
    }
  };

  const header: Node['header'] = (at) =>
    ask('eth_getBlockByNumber', [typeof at === 'number' ? hex(at) : at, false], (answer) => {
      if (answer === null) return undefined;
      const found = readHeader(answer);
      if (typeof at === 'number' && found.number !== at) throw anotherBlock(name);
      return found;
    });

  const logsOf = (header: Header) =>
    ask(
      'eth_getLogs',
      [{ blockHash: header.hash, address: tokens, topics: [transferTopic] }],
      (answer) => {
        const logs = readTransferLogs(answer);
        if (logs.some((log) => log.blockHash !== header.hash || log.blockNumber !== header.number)) {
          throw anotherBlock(name);
        }
        return logs;
      },
      () => transferLogs(wanted),
    );

  const mayHaveTransfers = ({ logsBloom }: Header) =>
    Bloom.contains(logsBloom, transferTopic) && tokens.some((token) => Bloom.contains(logsBloom, token));

  return {
    name,
    pace,
    get failingSinceMs() {
      return failingSinceMs;
    },
    async assertChain() {
      const found = await ask('eth_chainId', [], readChainId);
      if (found !== chainId) {
        const error = new NodeError('another_chain', `${name} is on chain ${found} instead of ${chainId}`);
        onFault?.(error);
        throw error;
      }
    },
    version: () => ask('web3_clientVersion', [], String),
    header,
    headerByHash: (hash) =>
      ask('eth_getBlockByHash', [hash, false], (answer) => {
        if (answer === null) return undefined;
        const found = readHeader(answer);
        if (found.hash !== hash) throw anotherBlock(name);
        return found;
      }),
    async transfersOf(block) {
      for (let empty = 0; ; ) {
        const logs = await logsOf(block);
        if (logs.length > 0 || !mayHaveTransfers(block)) return { logs, isDoubtful: false };
        if (++empty === emptyAnswers) return { logs, isDoubtful: true };
      }
    },
    transfersBetween: (from, to, recipients) =>
      ask(
        'eth_getLogs',
        [
          {
            fromBlock: hex(from),
            toBlock: hex(to),
            address: tokens,
            topics:
              recipients === undefined ? [transferTopic] : [transferTopic, null, recipients.map(topicOf)],
          },
        ],
        (answer) => {
          const logs = readTransferLogs(answer);
          if (logs.some(({ blockNumber }) => blockNumber < from || blockNumber > to))
            throw anotherBlock(name);
          return logs;
        },
        () => transferLogs(wanted),
      ),
    async transactionsOf(block, hashes) {
      const found =
        hashes.length < wholeBlockFrom
          ? await Promise.all(
              hashes.map((hash) =>
                ask('eth_getTransactionByHash', [hash], (answer) =>
                  answer === null ? [] : [readTransaction(answer)],
                ),
              ),
            ).then((some) => some.flat())
          : await ask(
              'eth_getBlockByHash',
              [block.hash, true],
              (answer) => {
                const full = readFullBlock(answer);
                if (full.header.hash !== block.hash) throw anotherBlock(name);
                return full.transactions;
              },
              () => blockTransactions(new Set(hashes)),
            );
      const byHash = new Map(found.map((transaction) => [transaction.hash, transaction]));
      for (const hash of hashes) {
        if ((byHash.get(hash)?.blockHash ?? block.hash) !== block.hash) throw anotherBlock(name);
      }
      return byHash;
    },
    receiptOf: (hash) =>
      ask(
        'eth_getTransactionReceipt',
        [hash],
        (answer) => {
          if (answer === null) return undefined;
          const receipt = readReceipt(answer);
          if (receipt.transactionHash !== hash) throw anotherBlock(name);
          return receipt;
        },
        () => receiptLogs,
      ),
  };
}

const hex = (number: number): Hex => `0x${number.toString(16)}`;
const topicOf = (address: Hex): Hex => `0x${'0'.repeat(24)}${address.slice(2)}`;

function anotherBlock(name: string): NodeError {
  return new NodeError('another_block', `${name} answered with another block than requested`);
}
