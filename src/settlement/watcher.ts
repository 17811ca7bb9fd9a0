// Watches one chain: follows its blocks, reverts reorged ones, confirms payments that are deep enough, verifies final
// blocks, and expires intents by the chain's clock. All progress is in the database: a watcher may stop at any time,
// and any other continues.

import type { Logger } from 'pino';
import type { ChainSettings } from '../contract/chains.ts';
import type { ChainWork } from '../requests/trace.ts';
import { createChainIdentity } from './chain-identity.ts';
import type { ChainState, WatchContext, WatchObserver } from './chain-state.ts';
import { createConfirmDue } from './confirm-payments.ts';
import { type ChainStep, createFollowChain, isFarBehind } from './follow-chain.ts';
import type { Tip } from './ledger/cursor.ts';
import { LeaseLost } from './ledger/lease.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import { NodeError } from './node-answers.ts';
import { createNodeChoice, type NodeChoiceTimes } from './node-choice.ts';
import { createRangeSize, type RangeSize } from './range-size.ts';
import { createReadBetween } from './read-between.ts';
import { createReadChain } from './read-chain.ts';
import { createReorganisation, maxHeaders } from './reorganisation.ts';
import { createVerification } from './verify-final-blocks.ts';

const maxRange = 2_000;
const defaultFinalizedEveryMs = 10_000;
/** A denied payment is reverted if it is denied again after this time, so that a short failure reverts nothing. */
const defaultDeniedAgainMs = 60_000;
/** Old headers are deleted every `forgetEvery` blocks; at least `minHeaders` are kept. */
const forgetEvery = 256;
const minHeaders = 256;

export interface WatcherOptions {
  settings: ChainSettings;
  /** The first that works is the reader, another one confirms. All are asked before a payment is reverted. */
  nodes: readonly [Node, ...Node[]];
  ledger: Ledger;
  /** The UUID of this watcher. */
  holder: string;
  logger: Logger;
  observer?: WatchObserver;
  /** Runs work in a trace of its own. Blocks without transfers to merchants have none. */
  trace?: <T>(work: ChainWork, run: () => Promise<T>) => Promise<T>;
  /** How often the reader is asked for its final block. */
  finalizedEveryMs?: number;
  /**
   * How much later a denied payment must be denied again to be reverted, and how often reverted payments are looked for.
   */
  deniedAgainMs?: number;
  nodeChoice?: Partial<NodeChoiceTimes>;
}

export interface Watcher {
  /** Reads new blocks. Resolves with true if there are more. */
  follow(): Promise<boolean>;
  /** Verifies blocks that have become final. Resolves with true if there are more. */
  verify(): Promise<boolean>;
  release(): Promise<void>;
}

/**
 * Returns the watcher of one chain. It has no timers: call `follow` every block time, and `verify` from time to
 * time. Both reject with NodeError if an answer cannot be used, and continue there at the next call.
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
  const followChain = createFollowChain(settings.confirmations);
  const readChain = createReadChain(context, identity, readBetween, rangeOf);
  const confirmDue = createConfirmDue(context, identity);
  const verification = createVerification(context, identity, readBetween, rangeOf, deniedAgainMs);
  let forgottenAt = 0;
  /** The verification in progress. */
  let verifying: Promise<unknown> | undefined;
  /** The reader has finished its part of this pass. */
  let isRead = false;

  /** Loads the state from the database. Resolves with false while another watcher has the lease. */
  const begin = async (): Promise<boolean> => {
    await identity.assertChain(state.node);
    let progress = await ledger.progress();
    if (progress === undefined) {
      const genesis = await identity.headerAt(0);
      const from = (await identity.isLocalChain())
        ? genesis
        : await identity.headerAt(await identity.finalizedNumber());
      await ledger.begin(genesis.hash, from);
      progress = await ledger.progress();
    }
    // A restarted local chain has acquired it already.
    state.lease ??= await ledger.acquire(holder);
    if (state.lease === undefined) return false;
    progress = await ledger.progress();
    state.cursor = progress?.cursor;
    reorganisation.forget();
    verification.forgetDenials();
    logger.info({ chain_id: chainId, block: state.cursor?.number }, 'watching the chain');
    return true;
  };

  /** Changes the reader if it has a problem. */
  const chooseNodes = async (): Promise<void> => {
    if (await choice.decide(identity.isSameChain)) {
      // The verification in progress uses the previous nodes.
      await verifying?.catch(() => {});
      state.headNumber = undefined;
      reorganisation.forget();
    }
    state.node = choice.reader;
    // A verification uses one node from beginning to end.
    if (verifying === undefined) state.confirmer = choice.confirmer;
    observer.onReader?.(choice.place);
  };

  const expire = async (lease: bigint): Promise<boolean> => {
    const expiry = await ledger.expireSome(lease);
    observer.onExpiry?.(expiry);
    return expiry.hasMore;
  };

  const forget = async (lease: bigint, tip: Tip, final: number): Promise<void> => {
    if (tip.number - forgottenAt < forgetEvery) return;
    const below = Math.max(Math.min(final, tip.number - minHeaders), tip.number - maxHeaders);
    await ledger.forgetHeaders(lease, below);
    forgottenAt = tip.number;
  };

  /** Takes a step from the block that was read last, and returns the one that now is. */
  const take = async (step: ChainStep, lease: bigint, from: Tip, seenAtMs: number): Promise<Tip> => {
    if (step.kind === 'reorg') return reorganisation.revertToAncestor(lease, from);
    if (step.kind === 'range') return readChain.range(lease, from, step.to);
    await readChain.block(lease, step.header, from, seenAtMs);
    reorganisation.forget();
    return step.header;
  };

  const follow = async (): Promise<boolean> => {
    isRead = false;
    await chooseNodes();
    // Without a cursor, `begin` failed after it acquired the lease.
    if ((state.lease === undefined || state.cursor === undefined) && !(await begin())) return false;
    await identity.assertChain(state.node);
    const lease = state.lease as bigint;
    const seenAtMs = performance.now();
    const head = await state.node.header('latest');
    if (head === undefined) throw new NodeError('no_answer', `${state.node.name} has no newest block`);
    state.headNumber = head.number;
    choice.noteHead(state.node, head.number);
    const tip = () => state.cursor as Tip;
    const final = await identity.finalizedNumber(isFarBehind(tip(), head) ? 0 : undefined);
    observer.onHead?.({ head, finalized: final, cursor: tip().number });
    await ledger.keep(lease, { head: head.number, finalized: final });
    if (head.number < tip().number) {
      // The node is behind, or the local chain was restarted.
      await identity.assertGenesis();
      return false;
    }
    const view = { head, final, startedAtMs: seenAtMs, tip, headerAt: identity.headerAt };
    for await (const step of followChain(view)) state.cursor = await take(step, lease, tip(), seenAtMs);
    isRead = true;
    choice.noteWorked();
    // Last, because confirming depends on another node.
    const mayExpireMore = await expire(lease);
    await forget(lease, tip(), final);
    const mayConfirmMore = await confirmDue(lease, tip());
    return tip().number < head.number || mayExpireMore || mayConfirmMore;
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
    verify() {
      const reading = guarded(verification.verify)().finally(() => {
        verifying = undefined;
      });
      verifying = reading;
      return reading;
    },
    async release() {
      const lease = state.lease;
      state.lease = undefined;
      if (lease !== undefined) await ledger.release(lease);
    },
  };
}
