import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createReadiness } from '../src/doors/operations/readiness.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a hanging database is not probed again before it answers', async () => {
  let answer: ((isWritable: boolean) => void) | undefined;
  let probes = 0;
  const readiness = createReadiness(() => {
    probes++;
    return new Promise((resolve) => {
      answer = resolve;
    });
  });
  for (let i = 0; i < 3; i++) {
    const status = readiness.check();
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await status).toBe('database_unreachable');
  }
  expect(probes).toBe(1);
  answer?.(true);
  await vi.advanceTimersByTimeAsync(0);
  const status = readiness.check();
  answer?.(true);
  expect(await status).toBe('ready');
  expect(probes).toBe(2);
});

test('once ready, stays ready while the database fails for less than the tolerated time', async () => {
  let isThere = false;
  const probe = async () => isThere || Promise.reject(new Error('gone'));
  const { check } = createReadiness(probe, 5_000);
  // Never ready before.
  expect(await check()).toBe('database_unreachable');
  isThere = true;
  expect(await check()).toBe('ready');
  for (let i = 0; i < 2; i++) {
    isThere = false;
    expect(await check()).toBe('ready');
    await vi.advanceTimersByTimeAsync(4_900);
    expect(await check()).toBe('ready');
    if (i === 1) break;
    // An answer begins the time anew.
    isThere = true;
    expect(await check()).toBe('ready');
  }
  await vi.advanceTimersByTimeAsync(100);
  expect(await check()).toBe('database_unreachable');
});

test('a database that answers and cannot store intents is reported at once', async () => {
  let isWritable = true;
  const { check } = createReadiness(async () => isWritable, 5_000);
  expect(await check()).toBe('ready');
  isWritable = false;
  expect(await check()).toBe('database_not_writable');
});
