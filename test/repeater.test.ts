// The pace of background tasks: intervals, pauses after failures, wakes.

import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { type RepeaterOptions, startRepeater } from '../src/scheduling/repeater.ts';

const logger = pino({ level: 'silent' });

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

/** Starts a task that has just run. `runs` are the times of its runs. */
async function started(work: () => Promise<boolean | undefined>, options: Partial<RepeaterOptions> = {}) {
  const beganAtMs = performance.now();
  const runs: number[] = [];
  const counted = () => {
    runs.push(performance.now() - beganAtMs);
    return work();
  };
  const repeater = startRepeater({
    name: 'a task',
    work: counted,
    intervalMs: undefined,
    logger,
    ...options,
  });
  onTestFinished(repeater.stop);
  await vi.advanceTimersByTimeAsync(0);
  return { ...repeater, runs };
}

test('pauses after failures double up to the longest, and a wake does not end one', async () => {
  // The longest of each random pause.
  const random = vi.spyOn(Math, 'random').mockReturnValue(1);
  onTestFinished(() => random.mockRestore());
  let isBroken = true;
  const work = async () => {
    if (isBroken) throw new Error('broken');
    return false;
  };
  const { runs, wake } = await started(work, { maxRetryMs: 3_000 });
  for (let i = 0; i < 100; i++) {
    wake();
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(runs).toEqual([0, 500, 1_500, 3_500, 6_500, 9_500]);
  isBroken = false;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(runs.slice(6)).toEqual([12_500]);
  wake();
  await vi.advanceTimersByTimeAsync(0);
  expect(runs).toHaveLength(8);
});

test('a task that has more to do keeps its pace, and one that has not waits for its interval', async () => {
  let left = 2;
  const { runs } = await started(async () => left-- > 0, { intervalMs: 10_000, paceMs: 100 });
  await vi.advanceTimersByTimeAsync(15_000);
  expect(runs).toEqual([0, 100, 200, 10_200]);
});

test('a task that is woken while it runs is run once more', async () => {
  const held = Promise.withResolvers<boolean>();
  const { runs, wake } = await started(() => held.promise);
  wake();
  wake();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(runs).toEqual([0]);
  held.resolve(false);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(runs).toHaveLength(2);
});
