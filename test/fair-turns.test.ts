import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FairTurns } from '../src/doors/fair-turns.ts';

/** Takes all that a turn has. */
function spend(turns: FairTurns): void {
  while (turns.take(1)) {
    // Until nothing is left.
  }
}

test('connections are served by turns, each in the order its requests came', async () => {
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

test('what waits of a connection that is closed is not begun, and takes no place', async () => {
  const turns = new FairTurns();
  spend(turns);
  const [greedy, other] = [{}, {}];
  const begun: string[] = [];
  while (turns.wait(greedy, 1, () => begun.push('greedy'))) {
    // Until it has its share.
  }
  turns.forget(greedy);
  turns.wait(other, 1, () => begun.push('other'));
  turns.wait(other, 1, () => begun.push('other'));
  await nextTurn();
  await nextTurn();
  expect(begun).toEqual(['other', 'other']);
});
