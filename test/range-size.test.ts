// How many blocks a node is asked for at once.

import { expect, test } from 'vitest';
import { NodeError } from '../src/settlement/node-answers.ts';
import { createRangeSize, type RangeSize } from '../src/settlement/range-size.ts';

const read = async (size: RangeSize, times: number, blocks = size.blocks) => {
  for (let i = 0; i < times; i++) await size.reading(blocks, async () => {});
};

const fail = (size: RangeSize, reason: unknown, blocks = size.blocks) =>
  expect(size.reading(blocks, () => Promise.reject(reason))).rejects.toBe(reason);

const refused = new NodeError('refused', 'too many blocks');

test('a failure halves what was asked, and one block is the least', async () => {
  const size = createRangeSize(2_000);
  await fail(size, refused);
  expect(size.blocks).toBe(1_000);
  await fail(size, refused, 300);
  expect(size.blocks).toBe(150);
  for (let i = 0; i < 10; i++) await fail(size, refused);
  expect(size.blocks).toBe(1);
});

test('what is not of the node tells nothing of it', async () => {
  const size = createRangeSize(2_000);
  await fail(size, new Error('the database is gone'));
  expect(size.blocks).toBe(2_000);
});

test('sixteen ranges of this size double it, up to the first one', async () => {
  const size = createRangeSize(2_000);
  await fail(size, refused);
  await read(size, 15);
  expect(size.blocks).toBe(1_000);
  await read(size, 1);
  expect(size.blocks).toBe(2_000);
  await read(size, 16);
  expect(size.blocks).toBe(2_000);
});

test('shorter ranges do not: they say nothing of longer ones', async () => {
  const size = createRangeSize(2_000);
  await fail(size, refused);
  await read(size, 100, 999);
  expect(size.blocks).toBe(1_000);
});
