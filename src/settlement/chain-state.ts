// State shared by the parts of a watcher.

import type { Logger } from 'pino';
import type { ChainSettings } from '../contract/chains.ts';
import type { ChainWork } from '../requests/trace.ts';
import type { ChainMetrics } from '../telemetry/chain-metrics.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';

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
}

export interface WatchContext {
  settings: ChainSettings;
  nodes: readonly [Node, ...Node[]];
  ledger: Ledger;
  logger: Logger;
  observer: Partial<ChainMetrics>;
  /** Runs work in a trace of its own. */
  trace: <T>(work: ChainWork, run: () => Promise<T>) => Promise<T>;
  state: ChainState;
}
