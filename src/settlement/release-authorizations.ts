// Releases authorizations that no block can take any more. Either a block at or after their end has all
// confirmations, and both nodes have them unused in it or everything up to it was verified. Or both have them
// used in a verified block, but no transfer was seen: their payers have canceled them. Doubtful ones, perhaps
// used by a transfer whose receipt no node serves, are released after their end if both have them unused.

import { concat, padLeft } from 'ox/Hex';
import { blocksIn } from '../contract/chains.ts';
import { authorizationState } from '../contract/eip-3009.ts';
import type { WatchContext } from './chain-state.ts';
import type { DueAuthorization } from './ledger/authorizations.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Node } from './node.ts';
import { NodeError } from './node-answers.ts';

/** An authorization that cannot be released is looked at again after this time. */
const againMs = 60_000;
/** The same for a doubtful one, which may never be released. */
const doubtfulAgainMs = 3_600_000;
/** How long one pass asks nodes. */
const maxReleasingMs = 1_000;
const unused = `0x${'0'.repeat(64)}`;
const used = `0x${'0'.repeat(63)}1`;

/** Releases the authorizations that are due below the tip. */
export async function releaseAuthorizations(context: WatchContext, lease: bigint, tip: Tip): Promise<void> {
  const { settings, identity, ledger, state } = context;
  const { later } = state;
  const now = performance.now();
  for (const [id, ms] of later) if (ms <= now) later.delete(id);
  const due = await ledger.dueAuthorizations(tip.time, [...later.keys()]);
  if (due.length === 0) return;
  const confirmed = tip.number - Math.max(settings.confirmations - 1, blocksIn(settings, state.minDepthMs));
  const deep = settings.needsFinality ? Math.min(confirmed, await identity.commonFinal()) : confirmed;
  if (deep < 0) return;
  const nodes = [...new Set([state.node, state.confirmer])];
  const verified = (await ledger.progress())?.verifiedNumber ?? 0;
  // The times of the newest block with all confirmations, and of the newest verified one, as both nodes say.
  const timeOf = async (number: number) => {
    const headers = await Promise.all(nodes.map((asked) => asked.header(number)));
    return Math.min(...headers.map((header) => header?.time.getTime() ?? 0));
  };
  const [confirmedMs, readTwiceMs] = await Promise.all([timeOf(deep), timeOf(Math.min(deep, verified))]);
  const released: DueAuthorization[] = [];
  const beganAtMs = performance.now();
  for (const [i, each] of due.entries()) {
    // The others stay due for the next pass: blocks are read in between.
    if (i > 0 && performance.now() > beganAtMs + maxReleasingMs) break;
    const endMs = each.validBefore.getTime();
    const isOver = endMs <= confirmedMs;
    if (!isOver && endMs <= tip.time.getTime()) continue;
    if (endMs > readTwiceMs) await ledger.renew(lease);
    // Unless every receipt was read, an unseen transfer may still exist.
    const isReleased = isOver
      ? (endMs <= readTwiceMs && !each.isDoubtful) || (await allSay(unused, context, nodes, each, deep))
      : !each.isDoubtful && (await allSay(used, context, nodes, each, Math.min(deep, verified)));
    if (isReleased) released.push(each);
    else later.set(each.id, now + (each.isDoubtful ? doubtfulAgainMs : againMs));
  }
  if (released.length > 0) await ledger.releaseAuthorizations(lease, released);
}

/** True if every node reports this state. False if a node does not answer: it is asked again later. */
async function allSay(
  wanted: string,
  { observer }: WatchContext,
  nodes: readonly Node[],
  { token, from, nonce }: DueAuthorization,
  at: number,
): Promise<boolean> {
  const call = concat(authorizationState, padLeft(from, 32), nonce);
  try {
    const states = await Promise.all(nodes.map((asked) => asked.call(token, call, at)));
    return states.every((state) => state === wanted);
  } catch (reason) {
    if (!(reason instanceof NodeError)) throw reason;
    observer.nodeFault?.(reason);
    return false;
  }
}
