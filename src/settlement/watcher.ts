// Watches one chain: follows its blocks, reverts reorged ones, confirms what is deep enough, reads
// everything a second time when it is final, and expires intents by the chain's clock. The database knows how far it is:
// a watcher may end at any moment, and any other goes on.

import type { Logger } from 'pino';
import type { Hash } from 'viem';
import type { ChainSettings } from '../contract/chains.ts';
import type { ChainWork } from '../requests/trace.ts';
import { readPurposes, transfersThatMatter } from './block-reader.ts';
import { createChainIdentity } from './chain-identity.ts';
import type { ChainState, WatchContext, WatchObserver } from './chain-state.ts';
import { createConfirmDue } from './confirm-payments.ts';
import type { Tip } from './ledger/cursor.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import { LeaseLost } from './ledger/lease.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';
import { createNodeChoice, type NodeChoiceTimes } from './node-choice.ts';
import { createRangeSize, type RangeSize } from './range-size.ts';
import { createReadBetween } from './read-between.ts';
import { createReorganisation, maxHeaders } from './reorganisation.ts';
import { createSecondReading } from './second-reading.ts';

/** From so many blocks below the final one on, blocks are read by ranges. */
const farBehind = 32;
/** Blocks, or ranges of them, that are read before other work has its turn: the newest block, and what is due. */
const maxBlocksAtOnce = 32;
/** The same for a node that is asked slowly. A tenth of the questions is left for that other work. */
const maxReadingMs = 5_000;
const maxRange = 2_000;
/** How long what is known of the final block stays new enough. */
const defaultFinalizedEveryMs = 10_000;
/** Payments are reverted if a node denies them again so much later: not by two answers of one bad moment. */
const defaultDeniedAgainMs = 60_000;
/** Headers are forgotten so many blocks apart, and so many are kept. */
const forgetEvery = 256;
const minHeaders = 256;

export interface WatcherOptions {
  settings: ChainSettings;
  /** The first that works is read, another one confirms; all are asked before a payment is reverted. */
  nodes: readonly [Node, ...Node[]];
  ledger: Ledger;
  /** Names this watcher among others. A UUID. */
  holder: string;
  logger: Logger;
  observer?: WatchObserver;
  /** Runs work inside a trace of its own. Blocks without transfers that matter have none. */
  trace?: <T>(work: ChainWork, run: () => Promise<T>) => Promise<T>;
  /** How often the node is asked for its final block. */
  finalizedEveryMs?: number;
  /** How much later a payment has to be denied again before it is reverted; then it is looked for no more often. */
  deniedAgainMs?: number;
  /** When another node reads. */
  nodeChoice?: Partial<NodeChoiceTimes>;
}

export interface Watcher {
  /** Reads what there is. Resolves with true if there is more at once. */
  follow(): Promise<boolean>;
  /** Reads again what has become final. Resolves with true if there is more at once. */
  readAgain(): Promise<boolean>;
  /** Gives up the lease. */
  release(): Promise<void>;
}

/**
 * Returns the watcher of one chain. Nothing runs by itself: call `follow` every block time, and `readAgain` now and then.
 * Both reject with NodeError if what a node says cannot be used, and go on from there when they are called again.
 */
export function createWatcher({
  settings,
  nodes,
  ledger,
  holder,
  logger,
  observer = {},
  trace = (_, run) => run(),
  finalizedEveryMs = defaultFinalizedEveryMs,
  deniedAgainMs = defaultDeniedAgainMs,
  nodeChoice,
}: WatcherOptions): Watcher {
  const { chainId } = settings;
  const choice = createNodeChoice(nodes, logger, nodeChoice);
  const state: ChainState = {
    node: choice.reader,
    confirmer: choice.confirmer,
    lease: undefined,
    cursor: undefined,
    headNumber: undefined,
    finalized: undefined,
    deniedIn: [],
  };
  const context: WatchContext = { settings, nodes, ledger, logger, observer, trace, state };
  const ranges = new Map(nodes.map((each) => [each, createRangeSize(maxRange)]));
  const rangeOf = (asked: Node) => ranges.get(asked) as RangeSize;
  const identity = createChainIdentity(context, holder, finalizedEveryMs);
  const reorganisation = createReorganisation(context, identity);
  const readBetween = createReadBetween(context);
  const confirmDue = createConfirmDue(context, identity);
  const second = createSecondReading(context, identity, readBetween, rangeOf, deniedAgainMs);
  let forgottenAt = 0;
  /** The second reading that runs now. */
  let readingAgain: Promise<unknown> | undefined;
  /** The node that reads has done its part of the present turn. */
  let isRead = false;
  /** It is far behind, and reads by ranges until it no longer can. */
  let isInRanges = false;

  /** Begins from what the database knows. Resolves with false while another watcher has the lease. */
  const begin = async (): Promise<boolean> => {
    await identity.assertChain(state.node);
    let progress = await ledger.progress();
    if (progress === undefined) {
      const genesis = await identity.headerAt(0);
      const from = (await identity.isStandIn())
        ? genesis
        : await identity.headerAt(await identity.finalizedNumber());
      await ledger.begin(genesis.hash, from);
      progress = await ledger.progress();
    }
    // A chain that has begun anew has taken it already.
    state.lease ??= await ledger.acquire(holder);
    if (state.lease === undefined) return false;
    progress = await ledger.progress();
    state.cursor = progress?.cursor;
    reorganisation.forget();
    second.forgetDenials();
    logger.info({ chain_id: chainId, block: state.cursor?.number }, 'watching the chain');
    return true;
  };

  /** Lets another node read if the one that does has a problem. */
  const chooseNodes = async (): Promise<void> => {
    if (await choice.decide(identity.isSameChain)) {
      // It was to compare the two that read and confirmed until now.
      await readingAgain?.catch(() => {});
      state.headNumber = undefined;
      reorganisation.forget();
    }
    state.node = choice.reader;
    // A second reading asks the same node to its end.
    if (readingAgain === undefined) state.confirmer = choice.confirmer;
    observer.onReader?.(choice.place);
  };

  const readBlock = async (held: bigint, header: Header, after: Tip, seenAtMs: number): Promise<void> => {
    const { logs, isDoubtful } = await state.node.transfersOf(header);
    const matter = await transfersThatMatter(logs, ledger.ownersOf);
    const apply = async () => {
      const found = await readPurposes(state.node, settings, header, matter, () => ledger.renew(held));
      const { dust } = await ledger.apply(held, { ...header, isDoubtful }, found, after.hash);
      observer.onDust?.(dust);
    };
    const work = { name: 'block', chainId, block: header.number, transfers: matter.length } as const;
    await (matter.length === 0 ? apply() : trace({ ...work, sinceMs: seenAtMs }, apply));
    observer.onBlock?.({
      number: header.number,
      transfers: matter.length,
      lagMs: performance.now() - seenAtMs,
    });
  };

  /** Reads a range of final blocks, and moves the cursor to its end. */
  const readRange = async (held: bigint, after: Tip, final: number): Promise<Tip> => {
    const { last, blocks } = await rangeOf(state.node).reading(final - after.number, async (count) => {
      // The chain of this machine does not keep empty blocks for ever.
      const end = (await state.node.header(after.number + count)) ?? (await identity.headerAt(final));
      return { last: end, blocks: await readBetween(held, state.node, after.number + 1, end.number) };
    });
    const to = last.number;
    const apply = async (header: Header, found: readonly FoundTransfer[], follows: Hash | undefined) => {
      const { dust } = await ledger.apply(held, header, found, follows);
      observer.onDust?.(dust);
    };
    for (const { header, found } of blocks) {
      if (header.number < to) await apply(header, found, undefined);
    }
    await apply(last, blocks.find(({ header }) => header.number === to)?.found ?? [], after.hash);
    return last;
  };

  const expire = async (held: bigint): Promise<boolean> => {
    const expiry = await ledger.expireSome(held);
    observer.onExpiry?.(expiry);
    return expiry.hasMore;
  };

  const forget = async (held: bigint, tip: Tip, final: number): Promise<void> => {
    if (tip.number - forgottenAt < forgetEvery) return;
    const below = Math.max(Math.min(final, tip.number - minHeaders), tip.number - maxHeaders);
    await ledger.forgetHeaders(held, below);
    forgottenAt = tip.number;
  };

  const follow = async (): Promise<boolean> => {
    isRead = false;
    await chooseNodes();
    // Without a cursor it has begun only half: the database failed after the lease was taken.
    if ((state.lease === undefined || state.cursor === undefined) && !(await begin())) return false;
    await identity.assertChain(state.node);
    const held = state.lease as bigint;
    const seenAtMs = performance.now();
    const head = await state.node.header('latest');
    if (head === undefined) throw new NodeError('no_answer', `${state.node.name} has no newest block`);
    state.headNumber = head.number;
    choice.noteHead(state.node, head.number);
    let tip = state.cursor as Tip;
    const isBehind = head.number - tip.number > farBehind;
    const final = await identity.finalizedNumber(isBehind ? 0 : undefined);
    observer.onHead?.({ head, finalized: final, cursor: tip.number });
    await ledger.keep(held, { head: head.number, finalized: final });
    if (head.number < tip.number) {
      // A node behind, or a chain that has begun anew.
      await identity.assertGenesis();
      return false;
    }
    const moveTo = (next: Tip) => {
      tip = next;
      state.cursor = next;
    };
    if (head.number === tip.number && head.hash !== tip.hash)
      moveTo(await reorganisation.revertToAncestor(held, tip));
    // The newest blocks are read one by one: their headers are the chain's clock.
    const rangesEnd = Math.min(final, head.number - 2 * settings.confirmations);
    if (rangesEnd - tip.number > farBehind) {
      // Once for all ranges: what they begin with is final like their ends.
      const here = await identity.headerAt(tip.number);
      if (here.hash !== tip.hash) moveTo(await reorganisation.revertToAncestor(held, tip));
      isInRanges = true;
    }
    const mayRead = (blocks: number) =>
      blocks < maxBlocksAtOnce && performance.now() - seenAtMs < maxReadingMs;
    for (let blocks = 0; tip.number < head.number && mayRead(blocks); blocks++) {
      if (isInRanges && rangesEnd > tip.number) {
        moveTo(await readRange(held, tip, rangesEnd));
        continue;
      }
      isInRanges = false;
      const header = tip.number + 1 === head.number ? head : await identity.headerAt(tip.number + 1);
      if (header.parentHash !== tip.hash) {
        moveTo(await reorganisation.revertToAncestor(held, tip));
        continue;
      }
      await readBlock(held, header, tip, seenAtMs);
      reorganisation.forget();
      moveTo(header);
    }
    isRead = true;
    choice.noteWorked();
    // What needs another node comes last: the rest goes on without it.
    const mayExpireMore = await expire(held);
    await forget(held, tip, final);
    const mayConfirmMore = await confirmDue(held, tip);
    return tip.number < head.number || mayExpireMore || mayConfirmMore;
  };

  /** After a node error its checks are repeated; after losing the lease all state is reloaded. */
  const guarded = (work: () => Promise<boolean>) => async (): Promise<boolean> => {
    try {
      return await work();
    } catch (reason) {
      if (reason instanceof NodeError) {
        if (work === follow && !isRead) choice.noteFailed();
        identity.forget();
        observer.onFault?.(reason);
      }
      if (reason instanceof LeaseLost) {
        state.lease = undefined;
        observer.onLeaseLost?.();
        logger.warn({ chain_id: chainId }, reason.message);
        return false;
      }
      throw reason;
    }
  };

  return {
    follow: guarded(follow),
    readAgain() {
      const reading = guarded(second.readAgain)().finally(() => {
        readingAgain = undefined;
      });
      readingAgain = reading;
      return reading;
    },
    async release() {
      const held = state.lease;
      state.lease = undefined;
      if (held !== undefined) await ledger.release(held);
    },
  };
}
