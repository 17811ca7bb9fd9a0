// A node of a chain, over JSON-RPC. Validates that each answer is an answer to its request.

import * as Bloom from 'ox/Bloom';
import type { Hash, Hex } from 'viem';
import { traceNodeRequest } from '../telemetry/spans.ts';
import { callJsonRpc } from './json-rpc.ts';
import type { Elements, Header, NodeFault, Receipt, Transaction, TransferLog } from './node-answers.ts';
import {
  blockTransactions,
  NodeError,
  readBytes,
  readFirstTransaction,
  readFullBlock,
  readHeader,
  readNumber,
  readReceipt,
  readTransaction,
  readTransferLogs,
  receiptLogs,
  transferLogs,
  transferTopic,
} from './node-answers.ts';
import { paceOf } from './node-pace.ts';
import { createRangeSize } from './range-size.ts';

const maxRange = 2_000;
const maxNewest = 32;
const maxBurst = 16;
/** Includes reading the body. */
const defaultTimeoutMs = 10_000;
/** An empty answer that contradicts the block's bloom filter is accepted after this many attempts. */
const emptyAnswers = 5;
/** How long a rate-limited request is retried, from its first turn on: half of a watcher's lease. */
const defaultPatienceMs = 3_000;
/** How long a node is trusted to have receipts of older blocks after it had one. */
const keptMs = 10_000;
/** For this many transactions of a block or more, fetching the whole block is cheaper. */
const wholeBlockFrom = 10;

/** Faults that mean that the node does not work, or not for us. */
const failureFaults = new Set<NodeFault>(['unreachable', 'late', 'malformed', 'refused', 'another_chain']);

interface NodeOptions {
  url: string;
  chainId: number;
  /** Contracts of the tokens, in lower case. */
  tokens: readonly Hex[];
  /** Called for each answer that could not be used. */
  onFault?: (error: NodeError) => void;
  onRequest?: (method: string) => void;
  timeoutMs?: number;
  patienceMs?: number;
}

/** A client of a node. Connects lazily. Every method rejects with NodeError if its answer cannot be used. */
export class Node {
  /** Host and port. The rest of the address may be a secret. */
  readonly name: string;
  /** The request rate, shared by this process. */
  readonly pace: ReturnType<typeof paceOf>;
  /** How many blocks one request for transfers covers. */
  readonly range = createRangeSize(maxRange);
  /** The same at the tip, where a refusal does not shrink it: a node that lags refuses blocks as too new. */
  readonly newest = createRangeSize(maxNewest, new Set(['too_large', 'late']));
  /** How many receipts are requested at once, in the time of one: strangers decide how large they are. */
  readonly receipts = createRangeSize(maxBurst, new Set(['late']));
  /** Since when every request has failed, by `performance.now()`. A rate limit is not a failure. */
  failingSinceMs: number | undefined;
  /** The node had receipts from block `from` on, and is not checked again until `untilMs`. */
  #receiptsChecked = { from: Number.POSITIVE_INFINITY, untilMs: 0 };
  readonly #address: URL;
  readonly #options: NodeOptions;
  readonly #wanted: ReadonlySet<string>;

  constructor(options: NodeOptions) {
    this.#address = new URL(options.url);
    this.pace = paceOf(this.#address.href);
    this.#options = options;
    this.#wanted = new Set(options.tokens);
    this.name = this.#address.host;
  }

  /** How many requests are sent at once: at most a second's worth of the rate, so that none waits longer. */
  get burst(): number {
    return Math.max(1, Math.min(maxBurst, Math.floor(this.pace.perSecond)));
  }

  /** Throws if the node is on another chain. */
  async assertChain(): Promise<void> {
    const { chainId, onFault } = this.#options;
    const found = await this.#ask('eth_chainId', [], (answer) => readNumber(answer, 'chain id'));
    if (found === chainId) return;
    const error = new NodeError('another_chain', `${this.name} is on chain ${found} instead of ${chainId}`);
    onFault?.(error);
    throw error;
  }

  /** The client version, such as `Geth/v1.14.12`. */
  version(): Promise<string> {
    return this.#ask('web3_clientVersion', [], String);
  }

  /** The newest block, the newest final one, or a block by number. Undefined if the node does not have it. */
  header(at: number | 'latest' | 'finalized'): Promise<Header | undefined> {
    return this.#ask('eth_getBlockByNumber', [typeof at === 'number' ? hex(at) : at, false], (answer) => {
      if (answer === null) return undefined;
      const found = readHeader(answer);
      if (typeof at === 'number' && found.number !== at) throw this.#anotherBlock();
      return found;
    });
  }

  headerByHash(hash: Hash): Promise<Header | undefined> {
    return this.#ask('eth_getBlockByHash', [hash, false], (answer) => {
      if (answer === null) return undefined;
      const found = readHeader(answer);
      if (found.hash !== hash) throw this.#anotherBlock();
      return found;
    });
  }

  /**
   * Throws if the node has pruned the receipts of these blocks, judged by a sample. Reth before September
   * 2026, and Erigon, return no logs for blocks whose receipts they have pruned.
   */
  async assertReceipts(from: number, to: number): Promise<void> {
    if (from >= this.#receiptsChecked.from && performance.now() < this.#receiptsChecked.untilMs) return;
    for (const at of new Set([0, 1, 2, 3].map((part) => from + Math.floor((part * (to - from)) / 3)))) {
      const hash = await this.#ask('eth_getBlockByNumber', [hex(at), false], readFirstTransaction);
      if (hash === undefined) continue;
      if (!(await this.#hasReceipt(hash))) {
        throw new NodeError(
          'no_answer',
          `${this.name} no longer has the receipts of block ${at}: add a node that keeps them`,
        );
      }
      // Older receipts are pruned first.
      this.#receiptsChecked = { from, untilMs: performance.now() + keptMs };
      return;
    }
  }

  /** A block's transfers of the tokens, by its hash. Doubtful: none, though its bloom filter allows some. */
  async transfersOf(block: Header) {
    for (let empty = 0; ; ) {
      const { logs, isEmpty } = await this.#logs(
        { blockHash: block.hash, topics: [transferTopic] },
        ({ blockHash, blockNumber }) => blockHash === block.hash && blockNumber === block.number,
      );
      if (!isEmpty || !this.mayHaveTransfers(block)) return { logs, isDoubtful: false };
      if (++empty === emptyAnswers) return { logs, isDoubtful: true };
    }
  }

  /** Transfers between two blocks, inclusive; only to these recipients, if given. */
  async transfersBetween(from: number, to: number, recipients?: readonly Hex[]): Promise<TransferLog[]> {
    const topics =
      recipients === undefined ? [transferTopic] : [transferTopic, null, recipients.map(topicOf)];
    const filter = { fromBlock: hex(from), toBlock: hex(to), topics };
    const { logs } = await this.#logs(filter, ({ blockNumber }) => blockNumber >= from && blockNumber <= to);
    return logs;
  }

  /** False if the block's bloom filter excludes transfers of the tokens. */
  mayHaveTransfers({ logsBloom }: Header): boolean {
    const { tokens } = this.#options;
    return (
      Bloom.contains(logsBloom, transferTopic) && tokens.some((token) => Bloom.contains(logsBloom, token))
    );
  }

  /** The transactions of one block with these hashes, as far as the node has them. */
  async transactionsOf(block: Pick<Header, 'hash' | 'number'>, hashes: readonly Hash[]) {
    const found =
      hashes.length < wholeBlockFrom
        ? await Promise.all(hashes.map((hash) => this.#transaction(hash))).then((some) => some.flat())
        : await this.#transactionsOfWhole(block, hashes);
    const byHash = new Map(found.map((transaction) => [transaction.hash, transaction]));
    for (const hash of hashes) {
      if ((byHash.get(hash)?.blockHash ?? block.hash) !== block.hash) throw this.#anotherBlock();
    }
    return byHash;
  }

  /** Undefined if the transaction is in no block. */
  receiptOf(hash: Hash): Promise<Receipt | undefined> {
    const read = (answer: unknown) => {
      if (answer === null) return undefined;
      const receipt = readReceipt(answer);
      if (receipt.transactionHash !== hash) throw this.#anotherBlock();
      return receipt;
    };
    return this.#ask('eth_getTransactionReceipt', [hash], read, () => receiptLogs);
  }

  /** Calls a contract without a transaction. Rejects with the fault `refused` if it reverts. */
  call(to: Hex, data: Hex, at: number | 'latest'): Promise<Hex> {
    const block = typeof at === 'number' ? hex(at) : at;
    return this.#ask('eth_call', [{ to, data }, block], (answer) =>
      readBytes(answer, 'the result of a call'),
    );
  }

  /** True if there is code at the address. */
  hasCode(address: Hex): Promise<boolean> {
    return this.#ask('eth_getCode', [address, 'latest'], (answer) => readBytes(answer, 'code') !== '0x');
  }

  #hasReceipt(hash: Hash): Promise<boolean> {
    return this.receiptOf(hash).then(
      (receipt) => receipt !== undefined,
      (reason) => {
        if (reason instanceof NodeError && reason.fault === 'too_large') return true;
        throw reason;
      },
    );
  }

  #logs(filter: object, isAsked: (log: TransferLog) => boolean) {
    const read = (answer: unknown) => {
      const found = readTransferLogs(answer);
      if (!found.logs.every(isAsked)) throw this.#anotherBlock();
      return found;
    };
    const asked = { ...filter, address: this.#options.tokens };
    return this.#ask('eth_getLogs', [asked], read, () => transferLogs(this.#wanted));
  }

  #transaction(hash: Hash): Promise<Transaction[]> {
    return this.#ask('eth_getTransactionByHash', [hash], (answer) =>
      answer === null ? [] : [readTransaction(answer)],
    );
  }

  #transactionsOfWhole(block: Pick<Header, 'hash'>, hashes: readonly Hash[]): Promise<Transaction[]> {
    const read = (answer: unknown) => {
      const full = readFullBlock(answer);
      if (full.header.hash !== block.hash) throw this.#anotherBlock();
      return full.transactions;
    };
    return this.#ask('eth_getBlockByHash', [block.hash, true], read, () =>
      blockTransactions(new Set(hashes)),
    );
  }

  /** Sends a request at the node's pace, again after a rate limit, and reads the answer. Throws NodeError. */
  async #ask<T>(
    method: string,
    params: readonly unknown[],
    read: (answer: unknown) => T,
    elements?: () => Elements,
  ): Promise<T> {
    const { patienceMs = defaultPatienceMs, timeoutMs = defaultTimeoutMs } = this.#options;
    let deadlineMs: number | undefined;
    for (;;) {
      // Waiting longer would lose the lease.
      const pausedMs = this.pace.pausedMs();
      if (pausedMs > 0 && performance.now() + pausedMs > (deadlineMs ?? performance.now() + patienceMs)) {
        const seconds = Math.ceil(pausedMs / 1_000);
        throw new NodeError('rate_limited', `${this.name} asked to wait ${seconds} s more (rate limit)`);
      }
      const sentAtMs = await this.pace.turn();
      deadlineMs ??= sentAtMs + patienceMs;
      this.#options.onRequest?.(method);
      const send = async () =>
        read(await callJsonRpc(this.#address, method, params, timeoutMs, elements?.()));
      try {
        const found = await traceNodeRequest(method, this.#address, send);
        this.pace.answered();
        this.failingSinceMs = undefined;
        return found;
      } catch (reason) {
        if (!this.#mayRetry(reason, deadlineMs, sentAtMs)) throw reason;
      }
    }
  }

  #mayRetry(reason: unknown, deadlineMs: number, sentAtMs: number): boolean {
    if (!(reason instanceof NodeError)) return false;
    const { fault, retryAfterMs } = reason;
    this.#options.onFault?.(reason);
    if (fault === 'rate_limited') {
      this.pace.refused(retryAfterMs, sentAtMs);
      return performance.now() + (retryAfterMs ?? 0) < deadlineMs;
    }
    if (failureFaults.has(fault)) this.failingSinceMs ??= performance.now();
    return false;
  }

  #anotherBlock(): NodeError {
    return new NodeError('another_block', `${this.name} answered with another block than requested`);
  }
}

const hex = (number: number): Hex => `0x${number.toString(16)}`;
const topicOf = (address: Hex): Hex => `0x${'0'.repeat(24)}${address.slice(2)}`;
