// Which connections are closed when strangers together hold too much memory.

import { PassThrough } from 'node:stream';
import { beforeEach, expect, test } from 'vitest';
import { Strangers } from '../src/doors/strangers.ts';

let strangers: Strangers;
const open = () => new PassThrough();
/** Lets the connection hold about 10 MB of bytes that were read and not parsed. */
const hold = (connection: PassThrough) => strangers.countUnanswered(connection, 1, 10_000_000);
const closed = (...all: PassThrough[]) => all.map(({ destroyed }) => destroyed);

beforeEach(() => {
  strangers = new Strangers();
});

test('the connection that has held memory for longest is closed, and payers are closed last', () => {
  const [payer, first, second, third] = [open(), open(), open(), open()];
  hold(payer);
  // The secret is read after the request was counted.
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

test('a payer is closed instead of a newcomer if payers hold most of the memory', () => {
  const payers = Array.from({ length: 3 }, open);
  for (const each of payers) {
    strangers.countUnanswered(each, 1, 6_900_000);
    strangers.noteClientSecret(each);
  }
  const newcomer = open();
  strangers.countUnanswered(newcomer, 0, 500_000);
  expect(closed(newcomer, ...payers)).toEqual([false, true, false, false]);
  // What they held is free again.
  for (const each of [newcomer, ...payers]) strangers.release(each);
  const payer = open();
  strangers.noteClientSecret(payer);
  strangers.countUnanswered(payer, 1, 100_000);
  const others = [open(), open(), open()];
  others.forEach(hold);
  expect(closed(payer, ...others)).toEqual([false, true, false, false]);
});

test('a payer whose request was refused is closed like any other stranger', () => {
  const [refused, other, third] = [open(), open(), open()];
  strangers.noteClientSecret(refused);
  strangers.noteNoCredential(refused);
  for (const each of [refused, other, third]) hold(each);
  expect(closed(refused, other, third)).toEqual([true, false, false]);
});

test('a connection whose key is being looked up is not closed', () => {
  const [looked, other, third, last] = [open(), open(), open(), open()];
  strangers.noteIssuedKey(looked);
  for (const each of [looked, other, third, last]) hold(each);
  expect(closed(looked, other, third, last)).toEqual([false, true, false, false]);
  strangers.noteNoCredential(looked);
  for (const each of [third, last]) strangers.release(each);
  for (const each of [looked, open(), open()]) hold(each);
  expect(closed(looked)).toEqual([true]);
});
