// Watches one chain: follows its blocks, reverts reorged ones, confirms what is deep enough, reads
// everything a second time when it is final, and expires intents by the chain's clock. The database knows how far it is:
// a watcher may end at any moment, and any other goes on.

import type { Logger } from 'pino';
import { type Address, type Hash, zeroAddress } from 'viem';
import type { Expiry } from '../payment-intents/expire-payment-intents.ts';
import type { ChainWork } from '../requests/trace.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { holds, readPurposes, receiptsOf, transfersThatMatter } from './block-reader.ts';
import type { DueTransfer } from './ledger/confirming.ts';
import type { Tip } from './ledger/cursor.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import { LeaseLost } from './ledger/lease.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type TransferLog } from './node-answers.ts';
import { createNodeChoice, type NodeChoiceTimes } from './node-choice.ts';
import { createRangeSize, type RangeSize } from './range-size.ts';
import { type ChainSettings, isRightToken } from './watched-chain.ts';

/** Where a node has no `finalized` block: as far below its head a block counts as final. */
const finalDepth = 1_000;
/** From so many blocks below the final one on, blocks are read by ranges. */
const farBehind = 32;
/** Blocks, or ranges of them, that are read before other work has its turn: the newest block, and what is due. */
const maxBlocksAtOnce = 32;
/** The same for a node that is asked slowly. A tenth of the questions is left for that other work. */
const maxReadingMs = 5_000;
const maxRange = 2_000;
/** More recipients are no longer a filter that every node takes. */
const maxRecipients = 1_000;
/** How long what is known of the final block stays new enough. */
const defaultFinalizedEveryMs = 10_000;
/** Payments are reverted if a node denies them again so much later: not by two answers of one bad moment. */
const defaultDeniedAgainMs = 60_000;
/** Blocks that are doubted, and transfers that were reverted, that are asked for once more at a time. */
const maxDoubtful = 64;
/** Transfers whose receipts are read before they are confirmed, which takes a fraction of the lease. */
const maxConfirmedAtOnce = 100;
/** Headers are forgotten so many blocks apart, and so many are kept. */
const forgetEvery = 256;
const minHeaders = 256;
const maxHeaders = 50_000;

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
  const choice = createNodeChoice(nodes, logger, nodeChoice);
  /** Who reads and who confirms: the same for as long as a reading takes. */
  let node = choice.reader;
  let confirmer = choice.confirmer;
  const { chainId } = settings;
  const confirmations = Math.max(
    ...settings.networks.map(({ confirmationsRequired }) => confirmationsRequired),
  );
  let lease: bigint | undefined;
  let cursor: Tip | undefined;
  let headNumber: number | undefined;
  let finalized: { number: number; readAtMs: number } | undefined;
  /** Nodes whose chain was asked for since they last failed. */
  const checked = new Set<Node>();
  /** The ancestor to which the chain would have to be reverted, as the node said last time. */
  let suspected: string | undefined;
  /** When the second reading began to deny a transfer in its block. */
  const deniedSince = new Map<string, number>();
  /** Blocks with transfers that are deep enough, and that a node denied last time. */
  let deniedIn: number[] = [];
  const ranges = new Map(nodes.map((each) => [each, createRangeSize(maxRange)]));
  const rangeOf = (asked: Node) => ranges.get(asked) as RangeSize;
  let forgottenAt = 0;
  /** The second reading that runs now. */
  let readingAgain: Promise<unknown> | undefined;
  /** The node that reads has done its part of the present turn. */
  let isRead = false;
  /** It is far behind, and reads by ranges until it no longer can. */
  let isInRanges = false;
  /** When what was reverted was looked for. */
  let lookedForAtMs = Number.NEGATIVE_INFINITY;

  /** Begins from what the database knows. Resolves with false while another watcher has the lease. */
  const begin = async (): Promise<boolean> => {
    await assertChain(node);
    let progress = await ledger.progress();
    if (progress === undefined) {
      const genesis = await headerAt(0);
      const from = (await isStandIn()) ? genesis : await headerAt(await finalizedNumber());
      await ledger.begin(genesis.hash, from);
      progress = await ledger.progress();
    }
    // A chain that has begun anew has taken it already.
    lease ??= await ledger.acquire(holder);
    if (lease === undefined) return false;
    progress = await ledger.progress();
    cursor = progress?.cursor;
    suspected = undefined;
    deniedSince.clear();
    logger.info({ chain_id: chainId, block: cursor?.number }, 'watching the chain');
    return true;
  };

  /** A chain of this machine, which may begin anew. */
  const isStandIn = async () => settings.mode === 'testnet' && (await node.version()).startsWith('anvil/');

  const assertChain = async (asked: Node) => {
    if (checked.has(asked)) return;
    await asked.assertChain();
    if (asked === node) await assertGenesis();
    checked.add(asked);
  };

  const assertGenesis = async () => {
    const progress = await ledger.progress();
    if (progress === undefined) return;
    const genesis = await headerAt(0);
    if (genesis.hash === progress.genesisHash) return;
    if (!(await isStandIn())) {
      throw new NodeError(
        'another_chain',
        `${node.name} has another block 0 than the chain that was watched before: its address is wrong`,
      );
    }
    lease ??= await ledger.acquire(holder);
    if (lease === undefined) throw new LeaseLost();
    await ledger.beginAnew(lease, genesis);
    cursor = genesis;
    finalized = undefined;
    logger.warn(
      { chain_id: chainId },
      'the chain of this machine has begun anew; it is read from its beginning',
    );
  };

  /** True if the node has the blocks that are held, as far as they are final for it. */
  const isSameChain = async (candidate: Node): Promise<boolean> => {
    await candidate.assertChain();
    const progress = await ledger.progress();
    if (progress === undefined) return true;
    const genesis = await candidate.header(0);
    if (genesis?.hash !== progress.genesisHash) return false;
    const newest = (await candidate.header('latest'))?.number ?? 0;
    const final = (await finalizedOf(candidate))?.number ?? Math.max(0, newest - finalDepth);
    const [held] = await ledger.knownBlocks(Math.min(final, progress.cursor.number), 1);
    return held === undefined || (await candidate.header(held.number))?.hash === held.hash;
  };

  /** Lets another node read if the one that does has a problem. */
  const chooseNodes = async (): Promise<void> => {
    if (await choice.decide(isSameChain)) {
      // It was to compare the two that read and confirmed until now.
      await readingAgain?.catch(() => {});
      headNumber = undefined;
      suspected = undefined;
    }
    node = choice.reader;
    // A second reading asks the same node to its end.
    if (readingAgain === undefined) confirmer = choice.confirmer;
    observer.onReader?.(choice.place);
  };

  const headerAt = async (number: number): Promise<Header> => {
    const header = await node.header(number);
    if (header === undefined) throw new NodeError('no_answer', `${node.name} has no block ${number}`);
    return header;
  };

  /** Undefined if the node does not know what that is. */
  const finalizedOf = (asked: Node): Promise<Header | undefined> =>
    asked.header('finalized').catch((reason) => {
      if (reason instanceof NodeError && reason.fault === 'refused') return undefined;
      throw reason;
    });

  const finalizedNumber = async (maxAgeMs = finalizedEveryMs): Promise<number> => {
    const now = performance.now();
    if (finalized !== undefined && now - finalized.readAtMs < maxAgeMs) return finalized.number;
    const found = await finalizedOf(node);
    const newest = async () => (await node.header('latest'))?.number ?? 0;
    let head = headNumber ?? (await newest());
    // The chain may have grown meanwhile.
    if (found !== undefined && found.number > head) head = await newest();
    if (found !== undefined && found.number > head) {
      throw new NodeError(
        'contradiction',
        `${node.name} calls block ${found.number} final, and its newest one is ${head}`,
      );
    }
    const number = found?.number ?? Math.max(0, head - finalDepth);
    // What was final stays final.
    finalized = { number: Math.max(number, finalized?.number ?? 0), readAtMs: now };
    return finalized.number;
  };

  /** Takes the chain back to the newest block that we and the node have in common. */
  const revertToAncestor = async (held: bigint, from: Tip): Promise<Tip> => {
    checked.delete(node);
    await assertChain(node);
    if (cursor !== from) return cursor as Tip;
    const known = await ledger.knownBlocks(from.number, maxHeaders);
    const place = await firstTrue(known.length, async (i) => {
      await ledger.renew(held);
      const block = known[i] as Tip;
      const found = await node.header(block.number);
      if (found === undefined)
        throw new NodeError('no_answer', `${node.name} has no block ${block.number} any more`);
      return found.hash === block.hash;
    });
    const ancestor = known[place];
    if (ancestor === undefined) {
      throw new NodeError(
        'another_chain',
        `${node.name} has none of the blocks that were read before: it is a node of another chain`,
      );
    }
    if (ancestor.hash === from.hash)
      throw new NodeError('contradiction', `${node.name} says that a block follows another one than it does`);
    // Said twice, in two readings: one wrong answer takes nothing back.
    const said = `${ancestor.number} ${ancestor.hash}`;
    if (suspected !== said) {
      suspected = said;
      throw new NodeError(
        'contradiction',
        `${node.name} says that the chain has reorganised to block ${ancestor.number}; asked again`,
      );
    }
    suspected = undefined;
    const depth = from.number - ancestor.number;
    const work = { name: 'reorganisation', chainId, block: ancestor.number } as const;
    const transfers = await trace(work, () => ledger.revertTo(held, ancestor));
    const isFinal = ancestor.number < (finalized?.number ?? 0);
    observer.onReorganisation?.({ depth, transfers, isFinal });
    logger[isFinal ? 'error' : 'warn'](
      { chain_id: chainId, block: ancestor.number, depth, transfers },
      isFinal
        ? 'the chain reverted blocks that were final: a person has to look at it'
        : 'the chain has reorganised',
    );
    return ancestor;
  };

  const readBlock = async (held: bigint, header: Header, after: Tip, seenAtMs: number): Promise<void> => {
    const { logs, isDoubtful } = await node.transfersOf(header);
    const matter = await transfersThatMatter(logs, ledger.ownersOf);
    const apply = async () => {
      const found = await readPurposes(node, settings, header, matter, () => ledger.renew(held));
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

  /** The recipients to ask for, if they are few. */
  const recipients = async (): Promise<readonly Address[] | undefined> => {
    const wallets = await ledger.wallets(maxRecipients + 1);
    return wallets.length > maxRecipients ? undefined : wallets;
  };

  /** Transfers between two blocks that matter to somebody, by block. The headers are of the node that is asked. */
  const readBetween = async (held: bigint, asked: Node, from: number, to: number) => {
    const wallets = await recipients();
    const logs = wallets?.length === 0 ? [] : await asked.transfersBetween(from, to, wallets);
    const matter = await transfersThatMatter(logs, ledger.ownersOf);
    const byBlock = Map.groupBy(matter, ({ blockNumber }) => blockNumber);
    const blocks: { header: Header; found: FoundTransfer[] }[] = [];
    for (const [number, own] of [...byBlock].sort(([a], [b]) => a - b)) {
      await ledger.renew(held);
      const header = await asked.header(number);
      if (header === undefined || own.some(({ blockHash }) => blockHash !== header.hash)) {
        throw new NodeError('another_block', `${asked.name} has transfers of a block that it has not`);
      }
      const found = await readPurposes(asked, settings, header, own, () => ledger.renew(held));
      blocks.push({ header, found });
    }
    return blocks;
  };

  /** Reads a range of final blocks, and moves the cursor to its end. */
  const readRange = async (held: bigint, after: Tip, final: number): Promise<Tip> => {
    const { last, blocks } = await rangeOf(node).reading(final - after.number, async (count) => {
      // The chain of this machine does not keep empty blocks for ever.
      const end = (await node.header(after.number + count)) ?? (await headerAt(final));
      return { last: end, blocks: await readBetween(held, node, after.number + 1, end.number) };
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

  /** Confirms what is deep enough, if the confirming node says the same. Resolves with true if there is more at once. */
  const confirmDue = async (held: bigint, tip: Tip): Promise<boolean> => {
    const deepEnough = tip.number - confirmations + 1;
    let due = await ledger.due(deepEnough);
    observer.onUnconfirmed?.(due[0]?.blockTime);
    if (settings.needsFinality && due.length > 0) {
      const final = await finalizedNumber();
      due = due.filter(({ blockNumber }) => blockNumber <= final);
    }
    if (due.length === 0) {
      deniedIn = [];
      return false;
    }
    const work = { name: 'confirmation', chainId, block: deepEnough, transfers: due.length } as const;
    return trace(work, () => confirmSome(held, due));
  };

  const confirmSome = async (held: bigint, due: readonly DueTransfer[]): Promise<boolean> => {
    let [denied, confirmedCount] = [0, 0];
    const denying = new Set<Node>();
    const startedAtMs = performance.now();
    let hasMore = false;
    // What was denied before comes last, and holds up nothing.
    const before = new Set(deniedIn);
    const blocks = [...Map.groupBy(due, ({ blockNumber }) => blockNumber)];
    deniedIn = [];
    for (const [number, own] of blocks.sort(([a], [b]) => Number(before.has(a)) - Number(before.has(b)))) {
      // The next blocks have their turn, too.
      hasMore = performance.now() - startedAtMs > maxReadingMs;
      if (hasMore) break;
      await assertChain(confirmer);
      const head = await confirmer.header('latest');
      if (head === undefined || head.number - number + 1 < confirmations) break;
      const header = await confirmer.header(number);
      const onChain = own.filter(({ blockHash }) => `0x${blockHash}` === header?.hash);
      if (onChain.length < own.length) denying.add(confirmer);
      let left = own.length;
      // Stored bit by bit: what is confirmed stays so if the node fails later, and the lease is kept meanwhile.
      for (const some of inTransactions(onChain, maxConfirmedAtOnce)) {
        let confirmed = some;
        // What only the second reading has found was never asked of the first node.
        for (const each of new Set([confirmer, node])) {
          const has = await heldBy(held, each, confirmed);
          if (has.length < confirmed.length) denying.add(each);
          confirmed = has;
        }
        await ledger.confirmAll(
          held,
          confirmed.map(({ id }) => id),
        );
        left -= confirmed.length;
        confirmedCount += confirmed.length;
      }
      denied += left;
      if (left > 0) deniedIn.push(number);
    }
    if (denied > 0) {
      logger.warn(
        { chain_id: chainId, transfers: denied, nodes: [...denying].map(({ name }) => name) },
        'a node denies transfers that are deep enough; they are not confirmed, and asked for again',
      );
    }
    return hasMore && confirmedCount > 0;
  };

  /**
   * New money of a token that never counts. The bridged one comes by Polygon's own messages, and not every node has the
   * receipts of those.
   */
  const hasNoReceipt = ({ fromAddress, tokenAddress }: DueTransfer): boolean =>
    fromAddress === zeroAddress &&
    !settings.networks.some((network) => isRightToken(network, tokenAddress.toLowerCase()));

  /** Those of these transfers that the receipts of their transactions have, or that have none. */
  const heldBy = async (
    held: bigint,
    asked: Node,
    transfers: readonly DueTransfer[],
  ): Promise<DueTransfer[]> => {
    const receipts = await receiptsOf(
      asked,
      transfers.flatMap((transfer): Hash[] =>
        hasNoReceipt(transfer) ? [] : [`0x${transfer.transactionHash}`],
      ),
      () => ledger.renew(held),
    );
    return transfers.filter((transfer) => {
      const receipt = receipts.get(`0x${transfer.transactionHash}`);
      if (receipt === undefined) return hasNoReceipt(transfer);
      return holds(receipt, logOf(transfer), `0x${transfer.blockHash}`);
    });
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
    if ((lease === undefined || cursor === undefined) && !(await begin())) return false;
    await assertChain(node);
    const held = lease as bigint;
    const seenAtMs = performance.now();
    const head = await node.header('latest');
    if (head === undefined) throw new NodeError('no_answer', `${node.name} has no newest block`);
    headNumber = head.number;
    choice.noteHead(node, head.number);
    let tip = cursor as Tip;
    const isBehind = head.number - tip.number > farBehind;
    const final = await finalizedNumber(isBehind ? 0 : undefined);
    observer.onHead?.({ head, finalized: final, cursor: tip.number });
    await ledger.keep(held, { head: head.number, finalized: final });
    if (head.number < tip.number) {
      // A node behind, or a chain that has begun anew.
      await assertGenesis();
      return false;
    }
    const moveTo = (next: Tip) => {
      tip = next;
      cursor = next;
    };
    if (head.number === tip.number && head.hash !== tip.hash) moveTo(await revertToAncestor(held, tip));
    // The newest blocks are read one by one: their headers are the chain's clock.
    const rangesEnd = Math.min(final, head.number - 2 * confirmations);
    if (rangesEnd - tip.number > farBehind) {
      // Once for all ranges: what they begin with is final like their ends.
      const here = await headerAt(tip.number);
      if (here.hash !== tip.hash) moveTo(await revertToAncestor(held, tip));
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
      const header = tip.number + 1 === head.number ? head : await headerAt(tip.number + 1);
      if (header.parentHash !== tip.hash) {
        moveTo(await revertToAncestor(held, tip));
        continue;
      }
      await readBlock(held, header, tip, seenAtMs);
      suspected = undefined;
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

  /** Asks once more for blocks that the node said were empty, against their bloom filter. */
  const readDoubtful = async (held: bigint): Promise<void> => {
    for (const { number, hash } of await ledger.doubtful(maxDoubtful)) {
      await ledger.renew(held);
      const header = await confirmer.headerByHash(hash);
      if (header === undefined) continue;
      const logs = await confirmer.transfersBetween(number, number);
      if (logs.length === 0) continue;
      if (logs.some(({ blockHash }) => blockHash !== hash)) continue;
      const matter = await transfersThatMatter(logs, ledger.ownersOf);
      const found = await readPurposes(confirmer, settings, header, matter, () => ledger.renew(held));
      await assertCommon(held, [header]);
      const { changes } = await ledger.apply(held, header, found, undefined);
      await ledger.trust(held, number);
      reportDifference({ from: number, to: number, missed: changes.length, invented: 0 });
    }
  };

  const readAgain = async (): Promise<boolean> => {
    if (lease === undefined || finalized === undefined) return false;
    for (const each of new Set([confirmer, node])) await assertChain(each);
    const held = lease;
    const progress = await ledger.progress();
    if (progress === undefined) return false;
    await readDoubtful(held);
    // What the second reading itself was told, and nobody confirms, has to be reverted by a third one.
    const deniedAgain = deniedIn.filter((number) => number <= progress.secondNumber);
    for (const number of deniedAgain.slice(0, maxDoubtful)) await compareBlock(held, number);
    await lookForReverted(held, progress.secondNumber);
    const final = Math.min(finalized.number, progress.cursor.number);
    const from = progress.secondNumber + 1;
    if (from > final) return false;
    // Only what this node, too, has; the chain of this machine does not keep empty blocks for ever.
    const found = await rangeOf(confirmer).reading(final - from + 1, async (count) => {
      const last = (await confirmer.header(from + count - 1)) ?? (await confirmer.header(final));
      return last && { to: last.number, blocks: await readBetween(held, confirmer, from, last.number) };
    });
    if (found === undefined) return false;
    const { to, blocks } = found;
    // What was reverted is looked for once more, and returns if the node has it after all.
    if ((await compare(held, from, to, blocks)) > 0) return true;
    return (await ledger.noteSecondReading(held, to, progress.cursor)) && to < final;
  };

  /**
   * Reads once more the final blocks that have what was reverted: a node may have denied it for longer than a bad moment,
   * or said that it had moved.
   */
  const lookForReverted = async (held: bigint, secondNumber: number): Promise<void> => {
    if (performance.now() - lookedForAtMs < deniedAgainMs) return;
    lookedForAtMs = performance.now();
    const hashes = await ledger.reverted(maxDoubtful);
    const receipts = await receiptsOf(confirmer, hashes, () => ledger.renew(held));
    const numbers = new Set([...receipts.values()].map(({ blockNumber }) => blockNumber));
    for (const number of numbers) if (number <= secondNumber) await compareBlock(held, number);
  };

  /** Reads one final block again. */
  const compareBlock = async (held: bigint, number: number): Promise<number> =>
    compare(held, number, number, await readBetween(held, confirmer, number, number));

  /**
   * Compares final blocks with what the confirming node has said of them: records what was missed, and reverts what no
   * node has. Returns how much it has reverted.
   */
  const compare = async (
    held: bigint,
    from: number,
    to: number,
    blocks: Awaited<ReturnType<typeof readBetween>>,
  ): Promise<number> => {
    await assertCommon(
      held,
      blocks.map(({ header }) => header),
    );
    const known = await ledger.transfersIn(from, to);
    const read = new Set(
      await mapInSlices(
        blocks.flatMap(({ found }) => found),
        ({ log }) => keyOf(log),
      ),
    );
    const isRead = await mapInSlices(known, (transfer) =>
      read.has(keyOf({ ...logOf(transfer), blockHash: `0x${transfer.blockHash}` })),
    );
    let invented = known.filter((_, i) => !isRead[i]);
    // A node may have lost what it had: what any of them has is on the chain.
    for (const asked of new Set([confirmer, ...nodes])) {
      await assertReached(asked, invented);
      const real = new Set((await heldBy(held, asked, invented)).map(({ id }) => id));
      invented = invented.filter(({ id }) => !real.has(id));
    }
    assertDeniedBefore(known, invented);
    if (invented.length > 0) {
      await ledger.revertTransfers(
        held,
        invented.map(({ id }) => id),
      );
    }
    let missed = 0;
    const apply = async () => {
      for (const { header, found } of blocks) {
        missed += (await ledger.apply(held, header, found, undefined)).changes.length;
      }
    };
    const work = { name: 'second reading', chainId, block: to, transfers: read.size } as const;
    await (read.size === 0 ? undefined : trace(work, apply));
    reportDifference({ from, to, missed, invented: invented.length });
    return invented.length;
  };

  /** Throws unless each was denied before, long enough ago, and at every reading since: one bad moment takes nothing back. */
  const assertDeniedBefore = (known: readonly DueTransfer[], denied: readonly DueTransfer[]): void => {
    // A transfer that has moved to another block was not denied there.
    const placeOf = ({ id, blockHash }: DueTransfer) => `${id} ${blockHash}`;
    const places = new Set(denied.map(placeOf));
    if (deniedSince.size > 0) {
      for (const place of known.map(placeOf)) if (!places.has(place)) deniedSince.delete(place);
    }
    const now = performance.now();
    let isEarly = false;
    for (const place of places) {
      const since = deniedSince.get(place);
      if (since === undefined) deniedSince.set(place, now);
      isEarly ||= since === undefined || now - since < deniedAgainMs;
    }
    if (isEarly) {
      throw new NodeError(
        'contradiction',
        `${confirmer.name} denies ${denied.length} transfers that were read before; asked again`,
      );
    }
    for (const place of places) deniedSince.delete(place);
  };

  /** Throws if the node is so far behind that it has nothing to say about these transfers. */
  const assertReached = async (asked: Node, transfers: readonly DueTransfer[]): Promise<void> => {
    const highest = transfers.reduce((number, { blockNumber }) => Math.max(number, blockNumber), 0);
    if (transfers.length > 0 && (await asked.header(highest)) === undefined)
      throw new NodeError('no_answer', `${asked.name} does not have block ${highest}`);
  };

  /**
   * Throws unless the first node has these blocks of the confirming one, and the block that was read last: one of the two
   * is on another fork, or the chain has reorganised, and its new blocks are to be read once before they are read again.
   */
  const assertCommon = async (held: bigint, headers: readonly Header[]): Promise<void> => {
    if (headers.length === 0) return;
    const last = cursor as Tip;
    for (const { number, hash } of confirmer === node ? [last] : [...headers, last]) {
      await ledger.renew(held);
      const own = await node.header(number);
      if (own?.hash !== hash) {
        throw new NodeError(
          'contradiction',
          `${node.name} has another block ${number} than ${hash === last.hash ? 'was read' : confirmer.name}`,
        );
      }
    }
  };

  const reportDifference = (found: { from: number; to: number; missed: number; invented: number }): void => {
    if (found.missed === 0 && found.invented === 0) return;
    observer.onSecondReading?.(found);
    logger.error(
      { chain_id: chainId, ...found },
      'the second reading found different transfers: one node gave wrong data',
    );
  };

  /** After a node error its checks are repeated; after losing the lease all state is reloaded. */
  const guarded = (work: () => Promise<boolean>) => async (): Promise<boolean> => {
    try {
      return await work();
    } catch (reason) {
      if (reason instanceof NodeError) {
        if (work === follow && !isRead) choice.noteFailed();
        checked.clear();
        observer.onFault?.(reason);
      }
      if (reason instanceof LeaseLost) {
        lease = undefined;
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
      const reading = guarded(readAgain)().finally(() => {
        readingAgain = undefined;
      });
      readingAgain = reading;
      return reading;
    },
    async release() {
      const held = lease;
      lease = undefined;
      if (held !== undefined) await ledger.release(held);
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

/** The place of a transfer and what it says: one of the two is not enough to be the same. */
function keyOf({
  blockHash,
  logIndex,
  token,
  from,
  to,
  amountUnits,
}: Omit<TransferLog, 'transactionHash' | 'blockNumber'>): string {
  return [blockHash, logIndex, token, from, to, amountUnits].join(' ');
}

/** Parts of about that many; those of one transaction are together, so that its receipt is asked for once. */
function* inTransactions(transfers: readonly DueTransfer[], size: number): Generator<DueTransfer[]> {
  let part: DueTransfer[] = [];
  for (const own of Map.groupBy(transfers, ({ transactionHash }) => transactionHash).values()) {
    part = part.concat(own);
    if (part.length < size) continue;
    yield part;
    part = [];
  }
  if (part.length > 0) yield part;
}

function logOf(transfer: DueTransfer) {
  return {
    logIndex: transfer.logIndex,
    token: transfer.tokenAddress.toLowerCase() as Address,
    from: transfer.fromAddress.toLowerCase() as Address,
    to: transfer.toAddress.toLowerCase() as Address,
    amountUnits: transfer.amountUnits,
  };
}
