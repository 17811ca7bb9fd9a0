// How fast a watcher reads the blocks of the last hours, and what a block at the tip costs it afterwards.

import type { TestChain } from '../test/support/chain.ts';
import { startWatcher, untilProgress, untilRead, type Watched } from './following.ts';
import { pay, paymentsFor, paymentsOfOthers, startPayingChain } from './paying.ts';
import type { PreparedDatabase } from './setting.ts';
import { followTip, type Tip } from './tip.ts';

export const catchingUpBlocks = 10_000;
/** One block in `payingEvery` has payments: one for an intent, and the others for nobody. */
export const payingEvery = 50;
export const othersEach = 9;
/** Blocks at the tip, one a second, and the payments in each. */
const tipBlocks = 20;
export const tipPayments = 20;
export const tipOthers = 80;

export interface CatchingUp {
  blocksPerSecond: number;
  /** Requests to the node, by method. */
  requests: Watched['requests'];
  tip: Tip;
}

/** Lets a new watcher read a chain from its first block. */
export async function catchUp(database: PreparedDatabase): Promise<CatchingUp> {
  const genesisTimestamp = Math.floor(Date.now() / 1000) - catchingUpBlocks - 60;
  const chain = await startPayingChain({ genesisTimestamp });
  const payments = await paymentsFor(database);
  const paying = catchingUpBlocks / payingEvery;
  await makePast(chain, payments.splice(0, paying));

  const watcher = await startWatcher(database, { RPC_URL_BASE_SEPOLIA: chain.url }, 1_000);
  const first = await untilProgress(database, chain, ({ block }) => block >= 0);
  const last = await untilRead(database, chain);
  await untilProgress(database, chain, ({ pending }) => pending === 0);
  const { requests } = await watcher.watched();
  const tip = await followTip(database, watcher, chain, tipBlocks, () => [
    ...payments.splice(0, tipPayments),
    ...paymentsOfOthers(tipOthers),
  ]);
  await watcher.stop();
  await chain.stop();
  return {
    blocksPerSecond: ((last.block - first.block) * 1000) / (last.atMs - first.atMs),
    requests,
    tip,
  };
}

async function makePast(chain: TestChain, payments: Awaited<ReturnType<typeof paymentsFor>>): Promise<void> {
  for (const payment of payments) {
    await pay(chain, [payment, ...paymentsOfOthers(othersEach)]);
    await chain.mine(1);
    await chain.mine(payingEvery - 1, { timestampStep: 1 });
  }
}
