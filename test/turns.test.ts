import { expect, onTestFinished, test, vi } from 'vitest';
import { usualWaits } from '../src/database/batcher.ts';
import { createTurns, inTurn } from '../src/database/turns.ts';

const nothing = async () => {};

// A change may wait for a lock that is not its merchant's fault.
test.each([
  ['reads', 'rate_limited'],
  ['changes', 'unavailable'],
])(
  'of %s, one whose turn does not come in time keeps no place in the queue; behind its own: %s',
  async (kind, code) => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const inTurn = createTurns(1, kind);
    const held = Promise.withResolvers<void>();
    const first = inTurn('a', () => held.promise);
    const late = Promise.all([
      expect(inTurn('a', nothing)).rejects.toMatchObject({ code }),
      expect(inTurn('b', nothing)).rejects.toMatchObject({ code: 'unavailable' }),
    ]);
    await vi.advanceTimersByTimeAsync(3_000);
    await late;
    held.resolve();
    await first;
    const next = expect(inTurn('b', nothing)).resolves.toBeUndefined();
    await vi.advanceTimersByTimeAsync(usualWaits.maxWaitMs);
    await next;
  },
);

test('a merchant who fills the queue leaves room in it for the others', async () => {
  const inTurn = createTurns(1, 'reads');
  const held = Promise.withResolvers<void>();
  const all = [inTurn('a', () => held.promise)];
  for (let i = 0; i < usualWaits.maxWaiting; i++) all.push(inTurn('a', nothing));
  await expect(inTurn('a', nothing)).rejects.toMatchObject({ code: 'rate_limited' });
  all.push(inTurn('b', nothing));
  held.resolve();
  await Promise.all(all);
});

test.each([
  ['reads', 4],
  ['changes', 8],
] as const)(
  'of a pool of 16, %s hold %i connections, and those of one merchant one less',
  async (kind, most) => {
    const begun = async (merchants: string[]) => {
      const pool = { options: { max: 16 } };
      const em = { getConnection: () => ({ getNativeClient: async () => pool }) } as never;
      const held = Promise.withResolvers<void>();
      const work = vi.fn(() => held.promise);
      const all = merchants.map((merchant) => inTurn(em, kind, merchant, work));
      await new Promise(setImmediate);
      const count = work.mock.calls.length;
      held.resolve();
      await Promise.all(all);
      return count;
    };
    expect(await begun(Array.from({ length: 16 }, (_, i) => `${i}`))).toBe(most);
    expect(await begun(Array(16).fill('a'))).toBe(most - 1);
  },
);
