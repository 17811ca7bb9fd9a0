// How long a block takes at the tip of a chain: a large one by itself, and a block each second.

import type { Payment, TestChain } from '../test/support/chain.ts';
import { untilProgress, untilRead, type Watcher } from './following.ts';
import { pay, payEachSecond } from './paying.ts';
import { type PreparedDatabase, postgresCpuSeconds, type Setting } from './setting.ts';

/** Blocks after a payment's own until it is confirmed, on either chain. */
const confirmingBlocks = 12;

export interface LargeBlock {
  /** From the first answer with the header to the commit. */
  lagMs: number;
  /** From the block that confirms the payments to the success of all intents. */
  confirmingMs: number;
  /** Processor time until the commit. */
  watcherCpuMs: number;
  postgresCpuMs: number;
}

/** Mines one block with these payments, and follows it until all of them are confirmed. */
export async function followLargeBlock(
  setting: Setting,
  database: PreparedDatabase,
  watcher: Watcher,
  chain: TestChain,
  payments: readonly Payment[],
): Promise<LargeBlock> {
  await untilRead(database, chain);
  await pay(chain, payments);
  const cpu = async () => ({
    watcher: await watcher.cpuSeconds(),
    postgres: await postgresCpuSeconds(setting),
  });
  const cpuBefore = await cpu();
  await chain.mine();
  await untilRead(database, chain);
  const cpuAfter = await cpu();
  const { blocks } = await watcher.watched();
  const { transfers, lagMs } = blocks.at(-1) ?? { transfers: 0, lagMs: Number.NaN };
  if (transfers !== payments.length) throw new Error(`${transfers} of ${payments.length} payments were read`);
  const beganAtMs = performance.now();
  await chain.mine(confirmingBlocks);
  const settled = await untilProgress(database, chain, ({ pending }) => pending === 0);
  return {
    lagMs,
    confirmingMs: settled.atMs - beganAtMs,
    watcherCpuMs: (cpuAfter.watcher - cpuBefore.watcher) * 1000,
    postgresCpuMs: (cpuAfter.postgres - cpuBefore.postgres) * 1000,
  };
}

/** Blocks to begin with, so that the JIT compiler has optimised the watcher. */
const warmUpBlocks = 10;

export interface Tip {
  /** From the first answer with each header to the commit. */
  lagsMs: number[];
  /** From the moment each block was mined to the commit. */
  delaysMs: number[];
}

/** Mines a block each second, with the payments that `next` returns. */
export async function followTip(
  database: PreparedDatabase,
  watcher: Watcher,
  chain: TestChain,
  blocks: number,
  next: () => readonly Payment[],
): Promise<Tip> {
  await untilRead(database, chain);
  const before = (await watcher.watched()).blocks.length;
  const minedAtMs = await payEachSecond(chain, warmUpBlocks + blocks, next);
  await untilRead(database, chain);
  const read = (await watcher.watched()).blocks.slice(before);
  if (read.length !== minedAtMs.length) {
    throw new Error(`${read.length} of ${minedAtMs.length} blocks were read one by one`);
  }
  const delaysMs = read.map(({ committedAtMs }, i) => committedAtMs - (minedAtMs[i] ?? Number.NaN));
  return {
    lagsMs: read.slice(warmUpBlocks).map(({ lagMs }) => lagMs),
    delaysMs: delaysMs.slice(warmUpBlocks),
  };
}
