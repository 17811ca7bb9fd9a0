// Who is closed when strangers hold too much together.

import { PassThrough } from 'node:stream';
import { beforeEach, expect, test } from 'vitest';
import { Strangers } from '../src/doors/strangers.ts';

let strangers: Strangers;
const open = () => new PassThrough();
/** About 10 MB, by the bytes that were read and not parsed. */
const hold = (connection: PassThrough) => strangers.countUnanswered(connection, 1, 10_000_000);
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

test('it is a payer if payers hold most of it, and not whoever has just come', () => {
  const payers = Array.from({ length: 3 }, open);
  for (const each of payers) {
    strangers.countUnanswered(each, 1, 6_900_000);
    strangers.noteClientSecret(each);
  }
  const newcomer = open();
  strangers.countUnanswered(newcomer, 0, 500_000);
  expect(closed(newcomer, ...payers)).toEqual([false, true, false, false]);
});

test('it is a payer too whose request was refused', () => {
  const [refused, other, third] = [open(), open(), open()];
  strangers.noteClientSecret(refused);
  strangers.noteNoCredential(refused);
  for (const each of [refused, other, third]) hold(each);
  expect(closed(refused, other, third)).toEqual([true, false, false]);
});

test('it is none whose key is looked up', () => {
  const [looked, other, third, last] = [open(), open(), open(), open()];
  strangers.noteIssuedKey(looked);
  for (const each of [looked, other, third, last]) hold(each);
  expect(closed(looked, other, third, last)).toEqual([false, true, false, false]);
  strangers.noteNoCredential(looked);
  for (const each of [third, last]) strangers.release(each);
  for (const each of [looked, open(), open()]) hold(each);
  expect(closed(looked)).toEqual([true]);
});
