// State shared by the parts of a watcher.

import type { Logger } from 'pino';
import type { ChainSettings } from '../contract/chains.ts';
import type { Expiry } from '../payment-intents/expire-payment-intents.ts';
import type { ChainWork } from '../requests/trace.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import type { Header, NodeError } from './node-answers.ts';

export interface WatchObserver {
  /** Unattributed transfers below the recording limit were dropped. */
  onDust?: (count: number) => void;
  /** A block was committed, `lagMs` after the first answer with its header. */
  onBlock?: (block: { number: number; transfers: number; lagMs: number }) => void;
  /** The reader's newest and newest final block, and the last block read. */
  onHead?: (head: { head: Header; finalized: number; cursor: number }) => void;
  /** Blocks were reverted. `isFinal`: the reader had reported some of them as final. */
  onReorganisation?: (reorganisation: { depth: number; transfers: number; isFinal: boolean }) => void;
  /** Verification found transfers that were missed, or recorded ones that no node has. */
  onDifference?: (difference: { missed: number; invented: number }) => void;
  /** The block time of the oldest pending transfer that has enough confirmations; undefined if there is none. */
  onUnconfirmed?: (since: Date | undefined) => void;
  onExpiry?: (expiry: Expiry) => void;
  /** An answer of a node could not be used, or contradicted another one. */
  onFault?: (error: NodeError) => void;
  /** The index of the reader among the configured nodes. */
  onReader?: (place: number) => void;
  /** Another watcher has the lease and exports the chain metrics now. */
  onLeaseLost?: () => void;
}

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
  observer: WatchObserver;
  /** Runs work in a trace of its own. */
  trace: <T>(work: ChainWork, run: () => Promise<T>) => Promise<T>;
  state: ChainState;
}
