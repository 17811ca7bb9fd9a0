// The number of blocks per request to a node.

import { expect, onTestFinished, test, vi } from 'vitest';
import { NodeError, type NodeFault } from '../src/settlement/node-answers.ts';
import { createRangeSize } from '../src/settlement/range-size.ts';

type RangeSize = ReturnType<typeof createRangeSize>;

const read = async (size: RangeSize, times: number, blocks = size.blocks) => {
  for (let i = 0; i < times; i++) await size.reading(blocks, async () => {});
};

const fail = (size: RangeSize, reason: unknown, blocks = size.blocks) =>
  expect(size.reading(blocks, () => Promise.reject(reason))).rejects.toBe(reason);

const late = new NodeError('late', 'no answer in time');

/** A node that serves at most that many blocks at once, and the sizes it was asked for. */
function nodeWith(limit: number) {
  const asked: number[] = [];
  return {
    asked,
    async read(count: number) {
      asked.push(count);
      if (count > limit) throw new NodeError('too_large', `at most ${limit} blocks`);
      return count;
    },
  };
}

test('after a failure the range is halved, down to one block', async () => {
  const size = createRangeSize(2_000);
  await fail(size, late);
  expect(size.blocks).toBe(1_000);
  await fail(size, late, 300);
  expect(size.blocks).toBe(150);
  for (let i = 0; i < 10; i++) await fail(size, late);
  expect(size.blocks).toBe(1);
});

test('two concurrent failures still leave a size of one block', async () => {
  const size = createRangeSize(2);
  await Promise.all([fail(size, late), fail(size, late)]);
  expect(size.blocks).toBe(1);
});

test.each<[string, unknown]>([
  ['an error that the node did not cause', new Error('the database is gone')],
  ...(['rate_limited', 'unreachable', 'no_answer', 'contradiction', 'another_block'] as NodeFault[]).map(
    (fault): [string, unknown] => [`the fault ${fault}`, new NodeError(fault, 'x')],
  ),
])('%s does not change the size', async (_, reason) => {
  const size = createRangeSize(2_000);
  await fail(size, reason);
  expect(size.blocks).toBe(2_000);
});

test('a refused range is retried at once in parts', async () => {
  const size = createRangeSize(2_000);
  const node = nodeWith(10);
  expect(await size.reading(500, node.read)).toBe(7);
  expect(node.asked).toEqual([500, 250, 125, 62, 31, 15, 7]);
  const none = nodeWith(0);
  await expect(size.reading(500, none.read)).rejects.toMatchObject({ fault: 'too_large' });
  expect(none.asked).toEqual([7, 3, 1]);
});

test('the largest served size is found and remembered', async () => {
  const size = createRangeSize(2_000);
  const node = nodeWith(10);
  for (let i = 0; i < 1_000; i++) await size.reading(500, node.read);
  expect(size.blocks).toBe(10);
  // Six refusals of sizes far above the limit, and one just above it.
  expect(node.asked.filter((count) => count > 10)).toEqual([500, 250, 125, 62, 31, 15, 11]);
});

test('a limit is remembered for an hour', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const [size, node] = [createRangeSize(2_000), nodeWith(10)];
  for (let i = 0; i < 1_000; i++) await size.reading(500, node.read);
  const after = async (ms: number) => {
    vi.advanceTimersByTime(ms);
    node.asked.length = 0;
    for (let i = 0; i < 16; i++) await size.reading(500, node.read);
    await size.reading(500, node.read);
    return Math.max(...node.asked);
  };
  expect([await after(3_599_000), await after(2_000)]).toEqual([10, 20]);
});

test('sixteen successes in a row double the size, up to the maximum', async () => {
  const size = createRangeSize(2_000);
  await fail(size, late);
  await read(size, 15);
  expect(size.blocks).toBe(1_000);
  await read(size, 1);
  expect(size.blocks).toBe(2_000);
  await read(size, 16);
  expect(size.blocks).toBe(2_000);
});

test('shorter ranges do not grow the size', async () => {
  const size = createRangeSize(2_000);
  await fail(size, late);
  await read(size, 100, 999);
  expect(size.blocks).toBe(1_000);
});
