import { expect, onTestFinished, test, vi } from 'vitest';
import { usualWaits } from '../src/database/batcher.ts';
import { createTurns } from '../src/database/turns.ts';

const nothing = async () => {};

test('a call whose turn does not come in time does not keep a place in the queue', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const inTurn = createTurns(1, 'reads');
  const held = Promise.withResolvers<void>();
  const first = inTurn('a', () => held.promise);
  const late = expect(inTurn('a', nothing)).rejects.toMatchObject({ code: 'unavailable' });
  await vi.advanceTimersByTimeAsync(usualWaits.maxWaitMs);
  await late;
  held.resolve();
  await first;
  const next = expect(inTurn('b', nothing)).resolves.toBeUndefined();
  await vi.advanceTimersByTimeAsync(usualWaits.maxWaitMs);
  await next;
});

test('a merchant who fills the queue leaves room in it for the others', async () => {
  const inTurn = createTurns(1, 'reads');
  const held = Promise.withResolvers<void>();
  const all = [inTurn('a', () => held.promise)];
  for (let i = 0; i < usualWaits.maxWaiting; i++) all.push(inTurn('a', nothing));
  await expect(inTurn('a', nothing)).rejects.toMatchObject({ code: 'unavailable' });
  all.push(inTurn('b', nothing));
  held.resolve();
  await Promise.all(all);
});
