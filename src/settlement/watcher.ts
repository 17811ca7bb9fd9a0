// Watches one chain: follows its blocks, reverts reorged ones, confirms payments that are deep enough,
// verifies final blocks, and expires intents by the chain's clock. All progress is in the database: a watcher
// may stop at any time, and any other continues.

import { setTimeout as sleep } from 'node:timers/promises';
import { blocksIn } from '../contract/chains.ts';
import { NewerThanProcess } from '../contract/words.ts';
import { type ChainState, createChainIdentity, type WatchContext } from './chain-state.ts';
import { confirmDue } from './confirm-payments.ts';
import { type ChainStep, followChain, isFarBehind } from './follow-chain.ts';
import type { Tip } from './ledger/cursor.ts';
import { LeaseLost } from './ledger/lease.ts';
import { type Header, NodeError } from './node-answers.ts';
import { createNodeChoice, type NodeChoiceTimes } from './node-choice.ts';
import { readBlock, readNewest, readRange } from './read-chain.ts';
import { releaseAuthorizations } from './release-authorizations.ts';
import { maxHeaders, revertToAncestor } from './reorganisation.ts';
import { isUnable, Verification } from './verify-final-blocks.ts';

const defaultFinalizedEveryMs = 10_000;
const defaultSpreadMs = 1_000;
/** A node that is this far below another one is behind. */
const behindMs = 40_000;
/** A denied payment is reverted if denied again after this time, so that a short failure reverts nothing. */
const defaultDeniedAgainMs = 60_000;
/** How long a backlog of expiries may take in each pass. */
const maxExpiringMs = 1_000;
/** How long to wait for the second node's final block, and how old that block may be. */
const maxAskingMs = 1_500;
const maxOldMs = 3_600_000;
/** Old headers are deleted every `forgetEvery` blocks; at least `minHeaders` are kept. */
const forgetEvery = 256;
const minHeaders = 256;

interface WatcherOptions
  extends Pick<WatchContext, 'settings' | 'nodes' | 'ledger' | 'logger'>,
    Partial<Pick<WatchContext, 'observer' | 'deniedAgainMs'>> {
  /** How often the reader is asked for its final block. */
  finalizedEveryMs?: number;
  /** How far apart the servers of one node may be. */
  spreadMs?: number;
  nodeChoice?: Partial<NodeChoiceTimes>;
}

/**
 * The watcher of one chain. It has no timers: call `follow` often, and `verify` from time to time. Both
 * reject with NodeError if an answer cannot be used, and continue there at the next call.
 */
export class Watcher {
  readonly #context: WatchContext;
  readonly #choice: ReturnType<typeof createNodeChoice>;
  readonly #verification: Verification;
  /** The same as `spreadMs`, in blocks. */
  readonly #spread: number;
  #forgottenAt = 0;
  /** When an expiry last succeeded, or the watch began. */
  #expiredAtMs = 0;
  /** The verification in progress. */
  #verifying: Promise<unknown> | undefined;
  /** The reader has finished its part of this pass. */
  #isRead = false;

  constructor({
    finalizedEveryMs = defaultFinalizedEveryMs,
    deniedAgainMs = defaultDeniedAgainMs,
    spreadMs = defaultSpreadMs,
    nodeChoice,
    ...given
  }: WatcherOptions) {
    const behindBlocks = blocksIn(given.settings, behindMs);
    this.#spread = blocksIn(given.settings, spreadMs);
    this.#choice = createNodeChoice(given.nodes, given.logger, { behindBlocks, ...nodeChoice });
    const state: ChainState = {
      node: this.#choice.reader,
      confirmer: this.#choice.confirmer,
      lease: undefined,
      minDepthMs: given.settings.minDepthMs,
      cursor: undefined,
      headNumber: undefined,
      finalized: undefined,
      finalRead: 0,
      readBefore: 0,
      deniedIn: new Set(),
      unanswered: new Map(),
      suspected: undefined,
      later: new Map(),
    };
    const context = { observer: {}, ...given, deniedAgainMs, state };
    const identity = createChainIdentity(context, finalizedEveryMs);
    this.#context = { ...context, identity };
    this.#verification = new Verification(this.#context);
  }

  /** Reads new blocks. Resolves with true if there are more. */
  follow(): Promise<boolean> {
    return this.#guard(async () => {
      this.#isRead = false;
      try {
        return await this.#follow();
      } catch (reason) {
        if (reason instanceof NodeError && !this.#isRead) this.#choice.noteFailed();
        throw reason;
      }
    });
  }

  /** Verifies blocks that have become final. Resolves with true if there are more. */
  verify(): Promise<boolean> {
    const { confirmer } = this.#context.state;
    const verifyOnce = () =>
      this.#verification.verify().catch((reason) => {
        if (isUnable(reason)) this.#choice.noteUnable(confirmer);
        throw reason;
      });
    const verifying = this.#guard(verifyOnce).finally(() => {
      this.#verifying = undefined;
    });
    this.#verifying = verifying;
    return verifying;
  }

  async release(): Promise<void> {
    const { ledger, state } = this.#context;
    const { lease } = state;
    state.lease = undefined;
    if (lease !== undefined) await ledger.release(lease);
  }

  /** After a node error its checks are repeated; after losing the lease all state is reloaded. */
  async #guard(work: () => Promise<boolean>): Promise<boolean> {
    const { settings, identity, ledger, logger, observer, state } = this.#context;
    try {
      return await work();
    } catch (reason) {
      if (reason instanceof NodeError) {
        identity.forget();
        observer.nodeFault?.(reason);
      }
      // Lets a newer process, which can read the row, take the lease.
      if (reason instanceof NewerThanProcess) await this.release().catch(() => {});
      // While the node fails, nothing is written that would reveal that another process has the lease.
      if (reason instanceof LeaseLost || ledger.isOver()) observer.leaseLost?.();
      if (!(reason instanceof LeaseLost)) throw reason;
      state.lease = undefined;
      logger.warn({ chain_id: settings.chainId }, reason.message);
      return false;
    }
  }

  async #follow(): Promise<boolean> {
    const { settings, identity, ledger, observer, state } = this.#context;
    await this.#chooseNodes();
    // Without a cursor, the first pass failed after it acquired the lease.
    if ((state.lease === undefined || state.cursor === undefined) && !(await this.#begin())) {
      this.#choice.noteWorked();
      return false;
    }
    observer.reader?.(this.#choice.place);
    await identity.assertChain(state.node);
    const lease = state.lease as bigint;
    const seenAtMs = performance.now();
    const newest = await state.node.header('latest');
    if (newest === undefined) throw new NodeError('no_answer', `${state.node.name} has no newest block`);
    const head = await this.#sharedHead(newest);
    state.headNumber = newest.number;
    this.#choice.noteHead(state.node, newest.number);
    const tip = () => state.cursor as Tip;
    const final = await identity.finalizedNumber(isFarBehind(tip(), head) ? 0 : undefined);
    await ledger.keep(lease, { head: newest.number, finalized: final });
    observer.head?.({ head: newest, finalized: final, cursor: tip().number });
    if (newest.number < tip().number) {
      // The node is behind, or the local chain was restarted, or a node had made up what was read.
      await identity.assertGenesis();
      const [recorded] = isFarBehind(newest, tip()) ? await ledger.knownBlocks(newest.number, 1) : [];
      if (recorded && (await identity.headerAt(recorded.number)).hash !== recorded.hash) {
        state.cursor = await revertToAncestor(this.#context, lease, tip());
      }
      return false;
    }
    const endOfRanges = isFarBehind(tip(), head) ? await this.#assuredFinal(final) : final;
    await ledger.renew(lease);
    const startedAtMs = performance.now();
    const together = () => state.node.newest.blocks;
    const view = { head, final: endOfRanges, startedAtMs, tip, headerAt: identity.headerAt, together };
    for await (const step of followChain(view, settings.confirmations)) {
      state.cursor = await this.#take(step, lease, tip(), seenAtMs);
    }
    state.finalRead = Math.min(final, tip().number);
    this.#isRead = true;
    this.#choice.noteWorked();
    // Last, because confirming depends on another node.
    let failure: unknown;
    const failLater = (reason: unknown): boolean => {
      if (reason instanceof LeaseLost) throw reason;
      failure ??= reason;
      return false;
    };
    // A failed expiry must not hold up confirmations.
    const mayExpireMore = await this.#expire(lease).catch(failLater);
    await this.#forget(lease, tip(), final).catch(failLater);
    const mayConfirmMore = await confirmDue(this.#context, lease, tip());
    await releaseAuthorizations(this.#context, lease, tip());
    if (failure !== undefined) throw failure;
    return tip().number < head.number || mayExpireMore || mayConfirmMore;
  }

  /**
   * With several blocks a second, as on the real chains with a `minDepthMs`, not all servers behind one
   * address have the newest block. All have the one from a second ago, or the newest of the last pass.
   */
  async #sharedHead(newest: Header): Promise<Header> {
    const { identity, state } = this.#context;
    const had = Math.max(state.headNumber ?? 0, state.cursor?.number ?? 0);
    const behind = Math.min(this.#spread, newest.number - had);
    return state.minDepthMs > 0 && behind > 0 ? identity.headerAt(newest.number - behind) : newest;
  }

  /**
   * The reader's final block, or the confirming node's if it is lower: no hash links a range to the blocks
   * before it, or a watch's first block to any. A second node that is slow, or behind itself, is ignored.
   */
  async #assuredFinal(final: number): Promise<number> {
    const { identity, state } = this.#context;
    const { node, confirmer } = state;
    if (confirmer === node || confirmer.failingSinceMs !== undefined) return final;
    const asked = identity.finalOf(confirmer).catch((reason) => {
      if (reason instanceof NodeError) return undefined;
      throw reason;
    });
    const other = await Promise.race([asked, sleep(maxAskingMs, undefined, { ref: false })]);
    const isCurrent = other !== undefined && other.timeMs > Date.now() - maxOldMs;
    return isCurrent ? Math.min(final, other.number) : final;
  }

  /** Changes the reader if it has a problem. */
  async #chooseNodes(): Promise<void> {
    const { identity, state } = this.#context;
    if (await this.#choice.decide(identity.isSameChain)) {
      // The verification in progress uses the previous nodes.
      await this.#verifying?.catch(() => {});
      state.headNumber = undefined;
      state.finalized = undefined;
      state.suspected = undefined;
      state.readBefore = state.cursor?.number ?? 0;
    }
    state.node = this.#choice.reader;
    // A verification uses one node from beginning to end.
    if (this.#verifying === undefined) state.confirmer = this.#choice.confirmer;
  }

  /** Loads the state from the database. Resolves with false while another watcher has the lease. */
  async #begin(): Promise<boolean> {
    const { settings, identity, ledger, observer, logger, state } = this.#context;
    await identity.assertChain(state.node);
    if ((await ledger.progress()) === undefined) {
      const isLocal = await identity.isLocalChain();
      const from = isLocal
        ? await identity.headerAt(0)
        : await identity.headerAt(await this.#assuredFinal(await identity.finalizedNumber()));
      await ledger.begin(isLocal ? from.hash : await identity.genesisOf(state.node), from);
    }
    // A restarted local chain has acquired it already.
    state.lease ??= await ledger.acquire();
    if (state.lease === undefined) {
      observer.leaseLost?.();
      return false;
    }
    state.minDepthMs = (await identity.isLocalChain()) ? 0 : settings.minDepthMs;
    const progress = await ledger.progress();
    // Just unwatched.
    if (progress === undefined) throw new LeaseLost();
    state.cursor = progress.cursor;
    state.finalRead = progress.finalNumber;
    state.readBefore = progress.cursor.number;
    observer.verified?.(progress.verifiedNumber);
    state.suspected = undefined;
    this.#expiredAtMs = performance.now();
    this.#verification.forgetDenials();
    logger.info({ chain_id: settings.chainId, block: progress.cursor.number }, 'watching the chain');
    return true;
  }

  /** Takes a step from the last block read, and returns the new last block. */
  async #take(step: ChainStep, lease: bigint, from: Tip, seenAtMs: number): Promise<Tip> {
    if (step.kind === 'reorg') return revertToAncestor(this.#context, lease, from);
    if (step.kind === 'range') return readRange(this.#context, lease, from, step.to);
    const read = step.kind === 'newest' ? readNewest : readBlock;
    const last = await read(this.#context, lease, from, step.header, seenAtMs);
    if (last === undefined) return revertToAncestor(this.#context, lease, from);
    this.#context.state.suspected = undefined;
    return last;
  }

  async #expire(lease: bigint): Promise<boolean> {
    const { ledger, observer, state } = this.#context;
    const startedAtMs = performance.now();
    for (;;) {
      const expiry = await ledger.expireSome(lease, state.minDepthMs).catch((reason) => {
        observer.expiry?.({ expired: 0, lagMs: performance.now() - this.#expiredAtMs });
        throw reason;
      });
      this.#expiredAtMs = performance.now();
      observer.expiry?.(expiry);
      if (!expiry.hasMore || performance.now() - startedAtMs > maxExpiringMs) return expiry.hasMore;
    }
  }

  async #forget(lease: bigint, tip: Tip, final: number): Promise<void> {
    if (tip.number - this.#forgottenAt < forgetEvery) return;
    // The reader alone may be wrong about what is final, and a revert needs the headers.
    const assured = await this.#assuredFinal(final);
    const below = Math.max(Math.min(assured, tip.number - minHeaders), tip.number - maxHeaders);
    await this.#context.ledger.forgetHeaders(lease, below);
    this.#forgottenAt = tip.number;
  }
}
