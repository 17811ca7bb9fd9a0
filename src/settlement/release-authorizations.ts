// Releases the signed authorizations that can no longer be used: a block that is deep enough has come after their end, and
// both nodes say that they are unused or canceled. A used one that was not seen stays: its transfer will be found.

import { concat, pad } from 'viem';
import { authorizationCanceledTopic, authorizationState } from '../contract/eip-3009.ts';
import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import type { DueAuthorization } from './ledger/authorizations.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Node } from './node.ts';

/** Blocks asked for at once. */
const maxRange = 2_000;
/** An authorization that cannot be released is looked at again after this time. */
const againMs = 60_000;
/** How far the clock of a chain may be behind ours. */
const maxSkewMs = 60_000;
const used = `0x${'1'.padStart(64, '0')}`;

/** Releases what is due below the tip. */
export type ReleaseAuthorizations = (lease: bigint, tip: Tip) => Promise<void>;

export function createReleaseAuthorizations(
  { settings, ledger, state }: WatchContext,
  identity: ChainIdentity,
): ReleaseAuthorizations {
  /** By id, the time before which it is not looked at again. */
  const later = new Map<string, number>();

  /** True if the node is sure that the authorization is unused, or canceled, for ever. */
  const isOver = async (asked: Node, due: DueAuthorization, deep: number): Promise<boolean> => {
    const { token, from, nonce, validBefore, createdAt } = due;
    const clock = await asked.header(deep);
    const head = await asked.header('latest');
    if (clock === undefined || head === undefined || clock.time < validBefore) return false;
    const authorizer = pad(from, { size: 32 });
    const question = concat([authorizationState, authorizer, nonce]);
    if ((await asked.call(token, question, 'latest')) !== used) return true;
    const topics = [authorizationCanceledTopic, authorizer, nonce] as const;
    for (let { number: last } = head; last >= 0; last -= maxRange) {
      const first = Math.max(0, last - maxRange + 1);
      if (await asked.hasLog(token, topics, first, last)) return true;
      const oldest = await asked.header(first);
      if (oldest === undefined || oldest.time.getTime() < createdAt.getTime() - maxSkewMs) return false;
    }
    return false;
  };

  return async (lease, tip) => {
    const now = performance.now();
    for (const [id, ms] of later) if (ms <= now) later.delete(id);
    const due = (await ledger.dueAuthorizations(tip.time)).filter(({ id }) => !later.has(id));
    if (due.length === 0) return;
    const confirmed = tip.number - settings.confirmations + 1;
    const deep = settings.needsFinality ? Math.min(confirmed, await identity.finalizedNumber()) : confirmed;
    const released: string[] = [];
    for (const each of deep < 0 ? [] : due) {
      await ledger.renew(lease);
      const nodes = [...new Set([state.node, state.confirmer])];
      const answers = await Promise.all(nodes.map((asked) => isOver(asked, each, deep)));
      if (answers.every(Boolean)) released.push(each.id);
      else if (tip.time.getTime() - each.validBefore.getTime() > againMs) later.set(each.id, now + againMs);
    }
    if (released.length > 0) await ledger.releaseAuthorizations(lease, released);
  };
}
