// Who is closed when strangers hold too much together.

import { PassThrough } from 'node:stream';
import { beforeEach, expect, test } from 'vitest';
import { Strangers } from '../src/doors/strangers.ts';

let strangers: Strangers;
const open = () => new PassThrough();
/** About 10 MB, by the bytes that were read and not parsed. */
const hold = (connection: PassThrough) => strangers.countUnanswered(connection, 1, 10_000_000);
const refusal = () => Promise.reject(new Error('refused'));
const closed = (...all: PassThrough[]) => all.map(({ destroyed }) => destroyed);

beforeEach(() => {
  strangers = new Strangers();
});

test('it is the one that has held some for longest, and a payer last', () => {
  const [payer, first, second, third] = [open(), open(), open(), open()];
  hold(payer);
  // Its secret was read after its request was counted.
  strangers.noteClientSecret(payer);
  for (const each of [first, second, third]) hold(each);
  expect(closed(payer, first, second, third)).toEqual([false, true, true, false]);
  strangers.release(third);
  const payers = [open(), open()];
  for (const each of payers) {
    strangers.noteClientSecret(each);
    hold(each);
  }
  expect(closed(payer, ...payers)).toEqual([true, false, false]);
});

test('it is a payer too whose request was refused', async () => {
  const [refused, other, third] = [open(), open(), open()];
  strangers.noteClientSecret(refused);
  await expect(strangers.admit(refused, refusal)).rejects.toThrow();
  for (const each of [refused, other, third]) hold(each);
  expect(closed(refused, other, third)).toEqual([true, false, false]);
});

test('it is none whose key is looked up', async () => {
  const [looked, other, third, last] = [open(), open(), open(), open()];
  strangers.noteIssuedKey(looked);
  for (const each of [looked, other, third, last]) hold(each);
  expect(closed(looked, other, third, last)).toEqual([false, true, false, false]);
  await expect(strangers.admit(looked, refusal)).rejects.toThrow();
  for (const each of [third, last]) strangers.release(each);
  for (const each of [looked, open(), open()]) hold(each);
  expect(closed(looked)).toEqual([true]);
});
