// Releases the signed authorizations that no block can take any more: one at or after their end has all confirmations. What a
// payer may be asked to sign again has to be unused, as both nodes say, or its transfer would have been seen: everything
// up to that block was read twice.

import { concat, pad } from 'viem';
import { authorizationState } from '../contract/eip-3009.ts';
import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import type { DueAuthorization } from './ledger/authorizations.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Node } from './node.ts';
import { NodeError } from './node-answers.ts';

/** An authorization that cannot be released is looked at again after this time. */
const againMs = 60_000;
const unused = `0x${'0'.repeat(64)}`;

/** Releases what is due below the tip. */
export type ReleaseAuthorizations = (lease: bigint, tip: Tip) => Promise<void>;

export function createReleaseAuthorizations(
  { settings, ledger, observer, state }: WatchContext,
  identity: ChainIdentity,
): ReleaseAuthorizations {
  /** By id, the time before which it is not looked at again. */
  const later = new Map<string, number>();

  const isUnused = async (asked: Node, { token, from, nonce }: DueAuthorization, at: number) =>
    (await asked.call(token, concat([authorizationState, pad(from, { size: 32 }), nonce]), at)) === unused;

  /** True if every node says so. What a node does not answer is asked again later. */
  const isUnusedForAll = async (
    nodes: readonly Node[],
    due: DueAuthorization,
    at: number,
  ): Promise<boolean> => {
    try {
      return (await Promise.all(nodes.map((asked) => isUnused(asked, due, at)))).every(Boolean);
    } catch (reason) {
      if (!(reason instanceof NodeError)) throw reason;
      observer.nodeFault?.(reason);
      return false;
    }
  };

  /** The times of the newest block with all confirmations, as the nodes say, and of the newest that was read twice. */
  const clocksAt = async (nodes: readonly Node[], deep: number, verified: number) => {
    const [read, ...confirmed] = await Promise.all([
      state.node.header(Math.min(deep, verified)),
      ...nodes.map((asked) => asked.header(deep)),
    ]);
    const times = confirmed.map((header) => header?.time.getTime() ?? 0);
    return { confirmedMs: Math.min(...times), readTwiceMs: read?.time.getTime() ?? 0 };
  };

  return async (lease, tip) => {
    const now = performance.now();
    for (const [id, ms] of later) if (ms <= now) later.delete(id);
    const due = await ledger.dueAuthorizations(tip.time, [...later.keys()]);
    if (due.length === 0) return;
    const confirmed = tip.number - settings.confirmations + 1;
    const deep = settings.needsFinality ? Math.min(confirmed, await identity.finalizedNumber()) : confirmed;
    if (deep < 0) return;
    const nodes = [...new Set([state.node, state.confirmer])];
    const verified = (await ledger.progress())?.verifiedNumber ?? 0;
    const { confirmedMs, readTwiceMs } = await clocksAt(nodes, deep, verified);
    const released: string[] = [];
    for (const each of due) {
      const endMs = each.validBefore.getTime();
      if (endMs > confirmedMs) continue;
      if (endMs > readTwiceMs) await ledger.renew(lease);
      if (endMs <= readTwiceMs || (await isUnusedForAll(nodes, each, deep))) released.push(each.id);
      else later.set(each.id, now + againMs);
    }
    if (released.length > 0) await ledger.releaseAuthorizations(lease, released);
  };
}
