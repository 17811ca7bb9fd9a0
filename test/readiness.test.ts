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
