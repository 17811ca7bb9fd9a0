// What the parts of a watcher share: whom they ask, and what they know of the chain.

import type { Logger } from 'pino';
import type { ChainSettings } from '../contract/chains.ts';
import type { Expiry } from '../payment-intents/expire-payment-intents.ts';
import type { ChainWork } from '../requests/trace.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import type { Header, NodeError } from './node-answers.ts';

/** What a watcher reports of its chain. */
export interface WatchObserver {
  /** Transfers were too small to be recorded, and nobody's payment. */
  onDust?: (count: number) => void;
  /** A block was committed, so long after the node's first answer with its header. */
  onBlock?: (block: { number: number; transfers: number; lagMs: number }) => void;
  /** The node's newest block and the newest final one, and how far the chain is read. */
  onHead?: (head: { head: Header; finalized: number; cursor: number }) => void;
  /** Blocks were reverted, with so many transfers in them; and whether a node had called some of them final. */
  onReorganisation?: (reorganisation: { depth: number; transfers: number; isFinal: boolean }) => void;
  /** The second reading found transfers that the first one had missed, or did not find some that it had. */
  onSecondReading?: (difference: { missed: number; invented: number }) => void;
  /** The block time of the oldest transfer that is deep enough and not confirmed yet; undefined if there is none. */
  onUnconfirmed?: (since: Date | undefined) => void;
  onExpiry?: (expiry: Expiry) => void;
  /** An answer of a node could not be used, or contradicted another one. */
  onFault?: (error: NodeError) => void;
  /** The place of the node that reads, among those that are configured, from 0. */
  onReader?: (place: number) => void;
  /** Another watcher has the lease: what is measured here is measured by that one now. */
  onLeaseLost?: () => void;
}

/** What is known until the lease is lost. */
export interface ChainState {
  /** Who reads and who confirms: the same for as long as a reading takes. */
  node: Node;
  confirmer: Node;
  lease: bigint | undefined;
  /** The block that was read last. */
  cursor: Tip | undefined;
  /** The newest block of the node that reads. */
  headNumber: number | undefined;
  finalized: { number: number; readAtMs: number } | undefined;
  /** Blocks with transfers that are deep enough, and that a node denied last time. */
  deniedIn: number[];
}

export interface WatchContext {
  settings: ChainSettings;
  nodes: readonly [Node, ...Node[]];
  ledger: Ledger;
  logger: Logger;
  observer: WatchObserver;
  /** Runs work inside a trace of its own. */
  trace: <T>(work: ChainWork, run: () => Promise<T>) => Promise<T>;
  state: ChainState;
}
