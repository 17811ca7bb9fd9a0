// The default times of the node choice, on a clock that the test moves.

import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { chainNamed } from '../src/contract/chains.ts';
import { followChain } from '../src/settlement/follow-chain.ts';
import type { Node } from '../src/settlement/node.ts';
import { createNodeChoice } from '../src/settlement/node-choice.ts';
import { Watcher } from '../src/settlement/watcher.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] });
});

afterEach(() => {
  vi.useRealTimers();
});

/** The parts of a node that the choice uses. */
interface FakeNode {
  name: string;
  head: number;
  failingSinceMs: number | undefined;
  /** How often it was asked for its newest block. */
  asked: number;
}

function startChoice(...others: string[]) {
  const fakeNode = (name: string): FakeNode => {
    const node: FakeNode & Pick<Node, 'header'> = {
      name,
      head: 1_000,
      failingSinceMs: undefined,
      asked: 0,
      header: async () => {
        node.asked++;
        return { number: node.head } as Awaited<ReturnType<Node['header']>>;
      },
    };
    return node;
  };
  const nodes = [fakeNode('first'), fakeNode('second'), ...others.map(fakeNode)] as const;
  const choice = createNodeChoice(nodes as never, pino({ enabled: false }));
  const decide = async () => {
    choice.noteHead(choice.reader, nodes[choice.place]?.head ?? 0);
    await choice.decide(async () => true);
    // Lets the nodes that were asked for their newest block answer.
    await Promise.resolve();
    return choice.reader.name;
  };
  /** Decides every second, as the watcher does, and resolves with the reader. */
  const wait = async (seconds: number) => {
    for (let i = 0; i < seconds; i++) {
      vi.advanceTimersByTime(1_000);
      await decide();
    }
    return choice.reader.name;
  };
  /** Decides every second without the lease: nobody follows the chain. Resolves with the readers. */
  const standBy = async (seconds: number) => {
    const readers = new Set<string>();
    for (let i = 0; i < seconds; i++) {
      vi.advanceTimersByTime(1_000);
      for (const node of nodes) node.head++;
      await choice.decide(async () => true);
      await Promise.resolve();
      readers.add(choice.reader.name);
    }
    return [...readers];
  };
  return { choice, first: nodes[0], second: nodes[1], decide, wait, standBy };
}

test('a pass reads for 5 s, and up to four new blocks one by one', async () => {
  const hash = '0x0';
  const kindsOf = async (number: number) => {
    const kinds: string[] = [];
    const head = { number, hash, parentHash: hash } as never;
    let tip = 0;
    const view = { head, final: 0, startedAtMs: performance.now(), together: () => 32 };
    const headerAt = async (at: number) => ({ number: at, hash, parentHash: hash }) as never;
    for await (const { kind } of followChain(
      { ...view, headerAt, tip: () => ({ number: tip, hash }) as never },
      10,
    )) {
      kinds.push(kind);
      tip += kind === 'newest' ? Math.min(32, number - tip) : 1;
      vi.advanceTimersByTime(2_000);
    }
    return kinds;
  };
  expect(await kindsOf(4)).toEqual(['block', 'block', 'block']);
  expect(await kindsOf(5)).toEqual(['newest']);
});

test('on Base a reader is behind another node at 40 s of blocks', async () => {
  const warn = vi.fn();
  const node = (number: number) => ({
    name: '',
    head: number,
    header: async () => ({ number }),
    assertChain: async () => {},
  });
  const switchesAt = async (blocks: number) => {
    warn.mockClear();
    const ledger = { progress: async () => undefined, isOver: () => false };
    const nodes = [node(1_000), node(1_000 + blocks)] as never;
    const logger = { ...pino({ enabled: false }), warn } as never;
    const watcher = new Watcher({
      settings: chainNamed('testnet', 'base'),
      nodes,
      ledger: ledger as never,
      logger,
    });
    for (let i = 0; i < 2; i++) await watcher.follow().catch(() => {});
    return warn.mock.calls.some(([, text]) => /switched/.test(text));
  };
  expect([await switchesAt(199), await switchesAt(200)]).toEqual([false, true]);
});

test('a reader that has not answered yet is not behind', async () => {
  const { first, standBy } = startChoice();
  Object.assign(first, { header: () => new Promise(() => {}) });
  expect(await standBy(10)).toEqual(['first']);
});

test('a watcher without the lease keeps its reader', async () => {
  const { first, standBy } = startChoice();
  expect(await standBy(300)).toEqual(['first']);
  // Every 15 s, like the other nodes.
  expect(first.asked).toBe(20);
});

test('the reader moves after it has failed for 15 s, and back once the first node has been healthy for 10 min', async () => {
  const { choice, first, decide, wait } = startChoice();
  await decide();
  await decide();
  first.failingSinceMs = performance.now();
  expect(await wait(14)).toBe('first');
  vi.advanceTimersByTime(1_000);
  // It does not move to a node on another chain.
  expect(await choice.decide(async () => false)).toBe(false);
  expect(await decide()).toBe('second');
  first.failingSinceMs = undefined;
  await decide();
  expect(await wait(599)).toBe('second');
  expect(await wait(1)).toBe('first');
});

test('the reader moves after 2 min without a new block, if another node has one', async () => {
  const { second, decide, wait } = startChoice();
  await decide();
  second.head = 1_001;
  expect(await wait(119)).toBe('first');
  expect(await wait(1)).toBe('second');
});

test('the reader moves when it is 20 blocks behind', async () => {
  const { second, decide, wait } = startChoice();
  await decide();
  second.head = 1_019;
  expect(await wait(30)).toBe('first');
  second.head = 1_020;
  expect(await wait(30)).toBe('second');
});

test('a node that has never reported a newest block does not confirm', async () => {
  const { choice, second, decide } = startChoice('third');
  // A rate limit is not a failure.
  Object.assign(second, { header: () => Promise.reject(new Error('rate limit')) });
  await decide();
  expect(choice.confirmer.name).toBe('third');
});

test('a node that could not answer for an old block does not confirm for 10 min', async () => {
  const { choice, second, decide, wait } = startChoice('third');
  await decide();
  expect(choice.confirmer).toBe(second);
  choice.noteUnable(second as never);
  expect(choice.confirmer.name).toBe('third');
  await wait(599);
  expect(choice.confirmer.name).toBe('third');
  await wait(1);
  expect(choice.confirmer).toBe(second);
});

test('the other nodes are asked for their newest block every 15 s', async () => {
  const { second, decide, wait } = startChoice();
  await decide();
  expect(second.asked).toBe(1);
  await wait(14);
  expect(second.asked).toBe(1);
  await wait(1);
  expect(second.asked).toBe(2);
});
