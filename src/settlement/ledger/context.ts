// What the parts of a chain's ledger share.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ChainSettings } from '../../contract/chains.ts';
import type { EventType } from '../../contract/event-types.ts';
import type { RefundStatusName } from '../../contract/words.ts';
import type { RunPrepared } from '../../database/prepared.ts';
import type { ApplySteps, IntentChange } from '../../payment-intents/change-payment-intents.ts';
import type { Refunding } from '../../refunds/refunding.ts';
import type { createLease } from './lease.ts';

/** A durable change of an intent or of a refund, or unattributed transfers: one of the three is set. */
export interface Change {
  merchantId: string;
  event: EventType;
  paymentIntent?: IntentChange['paymentIntent'];
  refund?: { id: string; status: RefundStatusName; labels: readonly string[] };
  /** Set if an earlier reading may rightly have left out the transfers: that it is late accuses no node. */
  mayBeLeftOut?: boolean;
  /** The largest of the unattributed transfers, and their number. */
  transfer?: { id: string; transactionHash: string; amountUnits: bigint; count: number };
}

export interface LedgerOptions {
  settings: ChainSettings;
  logger: Logger;
  /** Unattributed transfers below this amount are not recorded. In the token's smallest unit. */
  unattributedMinUnits: bigint;
  /** Called with the changes after each commit, except those of an expiry. */
  onChanges: (changes: readonly Change[]) => void;
  /** Called after a signed payment commits, with the time from storing the authorization to the block. */
  onSettled?: (ms: number) => void;
  /** Called when a transfer could not be recorded as a payment. */
  onFailed?: () => void;
  times?: Parameters<typeof createLease>[2];
}

export interface LedgerContext extends Omit<LedgerOptions, 'onChanges' | 'times'> {
  em: EntityManager;
  run: RunPrepared;
  lease: ReturnType<typeof createLease>;
  steps: ApplySteps;
  refunding: Refunding;
  /**
   * Runs the work in a transaction that checks the lease, and reports its changes after the commit. Returns
   * their number, without those that `mayBeLeftOut`. Throws LeaseLost.
   */
  commit(lease: bigint, work: (inside: RunPrepared) => Promise<Change[]>): Promise<number>;
}
