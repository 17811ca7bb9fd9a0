// Reverts a reorganised chain to the newest block that we and the node have in common.

import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import type { Tip } from './ledger/cursor.ts';
import { NodeError } from './node-answers.ts';

/** So many headers are kept at most, and looked through. */
export const maxHeaders = 50_000;

export interface Reorganisation {
  /** Resolves with the block from which to go on. Rejects at the first time: one wrong answer reverts nothing. */
  revertToAncestor(held: bigint, from: Tip): Promise<Tip>;
  /** Forgets what the node said: a block has followed, or another node reads. */
  forget(): void;
}

export function createReorganisation(
  { settings, ledger, logger, observer, trace, state }: WatchContext,
  identity: ChainIdentity,
): Reorganisation {
  const { chainId } = settings;
  /** The ancestor to which the chain would have to be reverted, as the node said last time. */
  let suspected: string | undefined;

  const revertToAncestor = async (held: bigint, from: Tip): Promise<Tip> => {
    identity.forget(state.node);
    await identity.assertChain(state.node);
    if (state.cursor !== from) return state.cursor as Tip;
    const known = await ledger.knownBlocks(from.number, maxHeaders);
    const place = await firstTrue(known.length, async (i) => {
      await ledger.renew(held);
      const block = known[i] as Tip;
      const found = await state.node.header(block.number);
      if (found === undefined)
        throw new NodeError('no_answer', `${state.node.name} has no block ${block.number} any more`);
      return found.hash === block.hash;
    });
    const ancestor = known[place];
    if (ancestor === undefined) {
      throw new NodeError(
        'another_chain',
        `${state.node.name} has none of the blocks that were read before: it is a node of another chain`,
      );
    }
    if (ancestor.hash === from.hash)
      throw new NodeError(
        'contradiction',
        `${state.node.name} says that a block follows another one than it does`,
      );
    // Said twice, in two readings: one wrong answer reverts nothing.
    const said = `${ancestor.number} ${ancestor.hash}`;
    if (suspected !== said) {
      suspected = said;
      throw new NodeError(
        'contradiction',
        `${state.node.name} says that the chain has reorganised to block ${ancestor.number}; asked again`,
      );
    }
    suspected = undefined;
    const depth = from.number - ancestor.number;
    const work = { name: 'reorganisation', chainId, block: ancestor.number } as const;
    const transfers = await trace(work, () => ledger.revertTo(held, ancestor));
    const isFinal = ancestor.number < (state.finalized?.number ?? 0);
    observer.onReorganisation?.({ depth, transfers, isFinal });
    logger[isFinal ? 'error' : 'warn'](
      { chain_id: chainId, block: ancestor.number, depth, transfers },
      isFinal
        ? 'the chain reverted blocks that were final: a person has to look at it'
        : 'the chain has reorganised',
    );
    return ancestor;
  };

  return {
    revertToAncestor,
    forget() {
      suspected = undefined;
    },
  };
}

/**
 * The first of so many places for which it is true, if it stays true from there on; the number of places if it is true for
 * none. Asks for few: near the beginning first, then ever further away, then in halves.
 */
export async function firstTrue(count: number, isTrue: (place: number) => Promise<boolean>): Promise<number> {
  let [from, to] = [0, count];
  for (let step = 1; from < to; step *= 2) {
    const place = Math.min(from + step, to) - 1;
    if (await isTrue(place)) {
      to = place;
      break;
    }
    from = place + 1;
  }
  while (from < to) {
    const middle = (from + to) >> 1;
    if (await isTrue(middle)) to = middle;
    else from = middle + 1;
  }
  return to;
}
