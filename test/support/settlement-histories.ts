// Random histories of payment intents on a chain, in words that a person can read.

import fc from 'fast-check';
import { answerLies, type Lie } from './lies.ts';

/** Which of the watcher's nodes lies. The first is read, the second confirms. */
export type Liar = 'nobody' | 'the only node' | 'the first of two nodes' | 'the second of two nodes';

export interface PayCommand {
  do: 'pay';
  /** Its place among the intents so far, modulo how many they are; as everywhere here. */
  intent: number;
  amount: 'a part' | 'what is missing' | 'the whole amount' | 'too much';
  way: 'with the id' | 'without the id' | 'through Multicall3' | 'in USDC.e';
}

export interface MineCommand {
  do: 'mine';
  blocks: number;
  /** Time of the first of them: two seconds after the last, the last second of an intent, or the first one after it. */
  time: 'next' | 'in time' | 'too late';
  /** The intent whose time it is. */
  intent: number;
  /** Transfers that a reorganisation removed return in the first of them. */
  withRemoved: boolean;
  isRead: boolean;
}

export interface ReorganiseCommand {
  do: 'reorganise';
  depth: number;
  /** New blocks, compared with those that are removed. */
  more: -1 | 0 | 1;
  /** The new block in which the removed transfers return. */
  returning: 'nowhere' | 'in the first' | 'in the last';
  isRead: boolean;
}

export type Command =
  | { do: 'create'; wallet: 'own' | 'shared' }
  | PayCommand
  | MineCommand
  | ReorganiseCommand
  | { do: 'cancel'; intent: number }
  /** Another watcher goes on. One that was killed comes back later, and may not do anything. */
  | { do: 'restart'; how: 'stopped' | 'killed' }
  | { do: 'read again' }
  /** One after the other, each as often as it says. */
  | { do: 'lie'; lies: readonly { lie: Lie; times: number }[] }
  | { do: 'be honest' };

export interface History {
  liar: Liar;
  /** Blocks are read again while others are read, as in a process. What fails then may not fail at every replay. */
  isReadAtOnce: boolean;
  commands: readonly Command[];
}

/**
 * Lies of a random sequence. Left out are those about the transport that only take time: an answer that does not end or
 * does not come is a failed request, as a cut connection is.
 */
const lies = [
  ...(Object.keys(answerLies) as Lie[]),
  'rate limit',
  'malformed JSON',
  'cut connection',
] as const satisfies readonly Lie[];

/** Lies that change what is read, if they are told at the right moment. */
const effectiveLies = [
  'half of the logs',
  'empty logs',
  'zero bloom',
  'invented log',
  'log of another amount',
  'receipt of another amount',
  'null receipts',
] as const satisfies readonly Lie[];

// Most money goes to the same intent.
const intent = fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(2) });
const isRead = fc.oneof(
  { weight: 3, arbitrary: fc.constant(true) },
  { weight: 1, arbitrary: fc.constant(false) },
);

const create = fc.record({
  do: fc.constant('create' as const),
  wallet: fc.constantFrom('own' as const, 'shared' as const),
});
const pay: fc.Arbitrary<PayCommand> = fc.record({
  do: fc.constant('pay' as const),
  intent,
  amount: fc.constantFrom('the whole amount', 'what is missing', 'a part', 'too much'),
  way: fc.oneof(
    { weight: 4, arbitrary: fc.constant('with the id' as const) },
    { weight: 1, arbitrary: fc.constantFrom('without the id', 'through Multicall3', 'in USDC.e') },
  ),
});
const mine: fc.Arbitrary<MineCommand> = fc.record({
  do: fc.constant('mine' as const),
  blocks: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(1, 2) },
    { weight: 2, arbitrary: fc.constantFrom(9, 10) },
  ),
  time: fc.oneof(
    { weight: 4, arbitrary: fc.constant('next' as const) },
    { weight: 1, arbitrary: fc.constantFrom('in time', 'too late') },
  ),
  intent,
  withRemoved: fc.boolean(),
  isRead,
});
const reorganise: fc.Arbitrary<ReorganiseCommand> = fc.record({
  do: fc.constant('reorganise' as const),
  depth: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(1, 2, 3) },
    { weight: 1, arbitrary: fc.constantFrom(10, 12) },
  ),
  more: fc.constantFrom(1, 0, -1),
  returning: fc.constantFrom('nowhere', 'nowhere', 'in the first', 'in the last'),
  isRead,
});
const cancel = fc.record({ do: fc.constant('cancel' as const), intent });
const restart = fc.record({
  do: fc.constant('restart' as const),
  how: fc.constantFrom('stopped' as const, 'killed' as const),
});
const verify = fc.record({ do: fc.constant('read again' as const) });
const lie = fc.record({
  do: fc.constant('lie' as const),
  lies: fc.array(
    fc.record({
      lie: fc.oneof(fc.constantFrom(...lies), fc.constantFrom(...effectiveLies)),
      times: fc.constantFrom(1, 2, 3, 5, 1_000),
    }),
    {
      minLength: 1,
      maxLength: 3,
    },
  ),
});
const beHonest = fc.record({ do: fc.constant('be honest' as const) });

const honestCommands: fc.WeightedArbitrary<Command>[] = [
  { weight: 2, arbitrary: create },
  { weight: 8, arbitrary: pay },
  { weight: 8, arbitrary: mine },
  { weight: 5, arbitrary: reorganise },
  { weight: 3, arbitrary: cancel },
  { weight: 1, arbitrary: restart },
  { weight: 1, arbitrary: verify },
];
const lyingCommands: fc.WeightedArbitrary<Command>[] = [
  ...honestCommands,
  { weight: 7, arbitrary: lie },
  { weight: 1, arbitrary: beHonest },
];

const historyOf = (liar: Liar, commands: fc.WeightedArbitrary<Command>[]): fc.Arbitrary<History> =>
  fc.record({
    liar: fc.constant(liar),
    isReadAtOnce: liar === 'nobody' ? fc.constant(false) : fc.boolean(),
    commands: fc.array(fc.oneof(...commands), { minLength: 5, maxLength: 20, size: 'max' }),
  });

/** In half of them every node is honest. */
export const history: fc.Arbitrary<History> = fc.oneof(
  { weight: 3, arbitrary: historyOf('nobody', honestCommands) },
  { weight: 1, arbitrary: historyOf('the only node', lyingCommands) },
  { weight: 1, arbitrary: historyOf('the first of two nodes', lyingCommands) },
  { weight: 1, arbitrary: historyOf('the second of two nodes', lyingCommands) },
);

/** One line for each command. */
export function describeHistory({ liar, isReadAtOnce, commands }: History): string {
  let intents = 1;
  const lines = commands.map((command, place) => {
    const line = describeCommand(
      'intent' in command ? { ...command, intent: command.intent % intents } : command,
    );
    if (command.do === 'create') intents++;
    return `${place + 1}. ${line}`;
  });
  const reading = isReadAtOnce ? 'both readings run at once' : 'one reading follows the other';
  return [`${liar} lies; ${reading}; there is an intent #0 with a wallet of its own`, ...lines].join('\n');
}

function describeCommand(command: Command): string {
  const unread = 'isRead' in command && !command.isRead ? ', unread' : '';
  switch (command.do) {
    case 'create':
      return `create an intent with ${command.wallet === 'own' ? 'a wallet of its own' : "the merchant's wallet"}`;
    case 'pay':
      return `pay ${command.amount} to intent #${command.intent} ${command.way}`;
    case 'mine': {
      const { blocks, time, intent } = command;
      const at = time === 'next' ? '' : `, the first ${time} for intent #${intent}`;
      const removed = command.withRemoved ? ', with what was removed' : '';
      return `mine ${blocks} block${blocks === 1 ? '' : 's'}${at}${removed}${unread}`;
    }
    case 'reorganise': {
      const { depth, more, returning } = command;
      return `reorganise ${depth} deep into ${depth + more} new; transfers return ${returning}${unread}`;
    }
    case 'cancel':
      return `cancel intent #${command.intent}`;
    case 'restart':
      return `the watcher is ${command.how}, another goes on`;
    case 'lie':
      return `lie: ${command.lies.map(({ lie, times }) => `${lie} (${times} times)`).join(', then ')}`;
    case 'read again':
    case 'be honest':
      return command.do;
  }
}
