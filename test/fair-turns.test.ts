import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FairTurns } from '../src/doors/fair-turns.ts';

/** Work that uses a whole turn. */
function spend(turns: FairTurns): void {
  while (turns.take(1)) {
    // Until the turn is used up.
  }
}

test('connections take turns, and requests of each are processed in order', async () => {
  const turns = new FairTurns();
  spend(turns);
  const begun: string[] = [];
  for (const connection of ['a', 'b']) {
    const owner = {};
    for (let i = 1; i <= 3; i++) turns.wait(owner, 1, () => begun.push(`${connection}${i}`));
  }
  await nextTurn();
  await nextTurn();
  expect(begun).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'b3']);
});

test('waiting requests of a closed connection are dropped and free their places', async () => {
  const turns = new FairTurns();
  spend(turns);
  const [greedy, other] = [{}, {}];
  const begun: string[] = [];
  while (turns.wait(greedy, 1, () => begun.push('greedy'))) {
    // Until its share of the queue is used up.
  }
  turns.forget(greedy);
  turns.wait(other, 1, () => begun.push('other'));
  turns.wait(other, 1, () => begun.push('other'));
  await nextTurn();
  await nextTurn();
  expect(begun).toEqual(['other', 'other']);
});
