import fc from 'fast-check';
import { expect, test } from 'vitest';
import { describeHistory, type History, history, honestHistory } from './settlement-histories.ts';
import { play } from './settlement-play.ts';
import { startWorld } from './settlement-world.ts';

/** Set these to repeat a failure, which prints both. */
const { HISTORY_SEED, HISTORY_PATH } = process.env;
/** Gives the same histories each time, so that only changes of the code matter. With `HISTORIES` others. */
const usualSeed = 1_611_000_627;
const seed = Number(
  HISTORY_SEED ?? (process.env.HISTORIES === undefined ? usualSeed : Math.floor(Math.random() * 2 ** 31)),
);

/**
 * The worlds in which histories are played concurrently, because each waits for its chain and its database
 * half of the time. Their seeds are this one and the next.
 */
const worlds = HISTORY_PATH === undefined ? 2 : 1;

/**
 * Plays random histories of payment intents and refunds against a model of the contract. With honest nodes,
 * every status, sum, label and event is the model's after every step. With a node that lies, nothing succeeds
 * that is not on the chain, and once the node is honest again, nothing on the chain is missing. With
 * `losesCommits` every node is honest, but watchers do not learn whether some of their commits are done.
 */
export function testHistories(defaultCount: number, { losesCommits = false } = {}): void {
  const count = Number(process.env.HISTORIES ?? defaultCount);
  const although = losesCommits ? ' although the answers to commits are lost' : '';
  test(
    `${count} random histories of payment intents follow the contract${although}`,
    {
      timeout: 60_000 + count * 3_000,
    },
    () => checkHistories(count, losesCommits),
  );
}

/** Rejects with the shortest history that fails, and how to repeat it. */
async function checkHistories(histories: number, losesCommits: boolean): Promise<void> {
  const started = performance.now();
  console.log(`random histories of payments: seed ${seed}`);
  const seen = new Set<string>();
  const checks = Array.from({ length: worlds }, (_, i) =>
    checkInOneWorld(seed + i, Math.ceil(histories / worlds), seen, losesCommits),
  );
  const failed = (await Promise.allSettled(checks)).find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') throw failed.reason;
  const seconds = Math.round((performance.now() - started) / 1000);
  console.log(`${histories} histories in ${seconds} s, with ${[...seen].sort().join(' ')}`);
  // Histories in which nothing happens prove nothing. A few of another seed may lack the rare outcomes.
  if (losesCommits || HISTORY_PATH !== undefined || histories < (seed === usualSeed ? 200 : 5_000)) return;
  expect([...seen]).toEqual(
    expect.arrayContaining([
      'succeeded',
      'expired',
      'canceled',
      'late',
      'overpaid',
      'wrong_token',
      '.reorged',
      '.payment_detached',
      'refund succeeded',
      'refund expired',
      'refund .reorged',
      'refund other_amount',
      'refund other_destination',
      'refund twice',
      'refund after_cancel',
      'refund late',
      'refund payment_reorged',
      'authorization landed',
      'authorization released',
      'authorization submitted',
    ]),
  );
}

async function checkInOneWorld(
  seed: number,
  numRuns: number,
  seen: Set<string>,
  losesCommits: boolean,
): Promise<void> {
  const world = await startWorld({ losesCommits });
  const property = fc.asyncProperty(losesCommits ? honestHistory : history, async (one) => {
    for (const each of await play(world, one)) seen.add(each);
  });
  const path = HISTORY_PATH === undefined ? {} : { path: HISTORY_PATH };
  const result = await fc.check(property, { seed, numRuns, ...path }).finally(() => world.close());
  if (result.failed) throw failureOf(result);
  if (losesCommits && HISTORY_PATH === undefined) expect(world.lostCommits()).toBeGreaterThan(0);
}

function failureOf({
  seed,
  counterexamplePath,
  counterexample,
  errorInstance,
}: fc.RunDetails<[History]>): Error {
  const words = counterexample === null ? 'no history' : describeHistory(counterexample[0]);
  const message = errorInstance instanceof Error ? errorInstance.message : String(errorInstance);
  return new Error(`HISTORY_SEED=${seed} HISTORY_PATH=${counterexamplePath}\n${words}\n\n${message}`, {
    cause: errorInstance,
  });
}
