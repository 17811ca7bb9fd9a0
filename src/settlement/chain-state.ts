// State shared by the parts of a watcher.

import type { Logger } from 'pino';
import type { ChainSettings } from '../contract/chains.ts';
import type { ChainWork } from '../requests/trace.ts';
import type { ChainMetrics } from '../telemetry/chain-metrics.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import type { Header } from './node-answers.ts';

/** Valid while the lease is held. */
export interface ChainState {
  /** The reader and the node that confirms. Fixed for the duration of one pass. */
  node: Node;
  confirmer: Node;
  lease: bigint | undefined;
  /** The last block read. */
  cursor: Tip | undefined;
  /** The reader's newest block. */
  headNumber: number | undefined;
  finalized: { number: number; readAtMs: number } | undefined;
  /** Blocks with confirmed-depth transfers that a node denied at the last attempt. */
  deniedIn: number[];
  /** The ancestor that the node reported when a reorganisation was first seen. */
  suspected: string | undefined;
  /** Authorizations that could not be released, by id, and the time before which they are not looked at again. */
  later: Map<string, number>;
}

export interface ChainIdentity {
  /** True for the local chain of the embedded mode, whose history may restart. */
  isLocalChain(): Promise<boolean>;
  /** Throws if the node is on another chain. Asks each node once, until `forget`. */
  assertChain(asked: Node): Promise<void>;
  /** Throws if the reader has another block 0 than the watched chain. Restarts the watch if it is a local chain. */
  assertGenesis(): Promise<void>;
  /** True if the node has the newest recorded block that is final for it. */
  isSameChain(candidate: Node): Promise<boolean>;
  /** Throws if the reader does not have the block. */
  headerAt(number: number): Promise<Header>;
  /** The reader's final block, from the cache if that is no older than `maxAgeMs`. */
  finalizedNumber(maxAgeMs?: number): Promise<number>;
  /** Makes `assertChain` ask this node, or every node, again. */
  forget(asked?: Node): void;
}

export interface WatchContext {
  settings: ChainSettings;
  identity: ChainIdentity;
  /** The first that works is the reader, another one confirms. All are asked before a payment is reverted. */
  nodes: readonly [Node, ...Node[]];
  ledger: Ledger;
  logger: Logger;
  observer: Partial<ChainMetrics>;
  /** Runs work in a trace of its own. Blocks without transfers to merchants have none. */
  trace: <T>(work: ChainWork, run: () => Promise<T>) => Promise<T>;
  state: ChainState;
}
