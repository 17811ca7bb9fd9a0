// Random histories of payment intents on a chain, in readable words.

import fc from 'fast-check';
import { answerLies, type Lie } from './lies.ts';

/** Which of the watcher's nodes lies. The first is read, the second confirms. */
export type Liar = 'nobody' | 'the only node' | 'the first of two nodes' | 'the second of two nodes';

export interface PayCommand {
  do: 'pay';
  /** Its index among the intents so far, modulo their number, as for every index here. */
  intent: number;
  amount: 'a part' | 'what is missing' | 'the whole amount' | 'too much';
  way: 'with the id' | 'without the id' | 'through Multicall3' | 'in USDC.e';
}

export interface MineCommand {
  do: 'mine';
  blocks: number;
  /** Time of the first block: two seconds after the last, an intent's last second, or the first one after. */
  time: 'next' | 'in time' | 'too late' | 'in time for the refund' | 'too late for the refund';
  /** The intent or refund that the time refers to. */
  intent: number;
  /** Transfers that a reorganisation removed return in the first block. */
  withRemoved: boolean;
  isRead: boolean;
}

export interface ReorganiseCommand {
  do: 'reorganise';
  depth: number;
  /** The number of new blocks, compared with the removed ones. */
  more: -1 | 0 | 1;
  /** The new block in which the removed transfers return. */
  returning: 'nowhere' | 'in the first' | 'in the last';
  /** The transfers that return. */
  what: 'everything' | 'refunds';
  isRead: boolean;
}

/** Refunds and transfers are counted like intents, by their index among those so far. */
export type RefundCommand =
  | { do: 'refund'; intent: number; amount: 'all of it' | 'a part' | 'too much'; destination: number }
  | {
      do: 'send';
      refund: number;
      what: 'as prepared' | 'with another amount' | 'to another destination' | 'without the id';
      /** The wallet that was paid signs one transfer only: preferably one that is not as prepared. */
      by: 'the wallet' | 'another wallet';
      /** The refund whose destination it is. */
      other: number;
    }
  | { do: 'confirm'; refund: number; transfer: number }
  | { do: 'cancel refund'; refund: number }
  /** Sends money to the merchant's wallet that names no intent. */
  | { do: 'send astray' }
  | { do: 'attribute'; transfer: number; intent: number }
  | { do: 'detach'; transfer: number };

/** Authorizations are counted among those that nobody has sent. */
export type AuthorizationCommand =
  | {
      do: 'sign';
      intent: number;
      valid: 'for 20 seconds' | 'as long as the intent';
      nonce: 'with the intent in it' | 'random';
    }
  | { do: 'send signed'; authorization: number };

export type Command =
  /** `destination` is a wallet that refunds go to. */
  | { do: 'create'; wallet: 'own' | 'shared' | 'destination' }
  | RefundCommand
  | AuthorizationCommand
  | PayCommand
  | MineCommand
  | ReorganiseCommand
  | { do: 'cancel'; intent: number }
  /** Another watcher goes on. A killed one comes back later, and must not change anything. */
  | { do: 'restart'; how: 'stopped' | 'killed' }
  | { do: 'read again' }
  /** Tells the lies one after the other, each the given number of times. */
  | { do: 'lie'; lies: readonly { lie: Lie; times: number }[] }
  | { do: 'be honest' };

export interface History {
  liar: Liar;
  /** Blocks are verified while others are read, as in a process. A failure may not recur in a replay. */
  isReadAtOnce: boolean;
  commands: readonly Command[];
}

/**
 * Lies of a random sequence, without those about the transport that only take time: an answer that never ends
 * or never comes is a failed request, like a cut connection.
 */
const lies = [
  ...(Object.keys(answerLies) as Lie[]),
  'rate limit',
  'malformed JSON',
  'cut connection',
] as const satisfies readonly Lie[];

/** Lies that change what is read if they are told at the right moment. */
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
  what: fc.constant('everything' as const),
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

const sign = fc.record({
  do: fc.constant('sign' as const),
  intent,
  valid: fc.constantFrom('for 20 seconds' as const, 'as long as the intent'),
  nonce: fc.constantFrom('with the intent in it' as const, 'random'),
});
const sendSigned = fc.record({ do: fc.constant('send signed' as const), authorization: fc.nat(2) });

const honestCommands: fc.WeightedArbitrary<Command>[] = [
  { weight: 4, arbitrary: sign },
  { weight: 4, arbitrary: sendSigned },
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

const refund = fc.record({
  do: fc.constant('refund' as const),
  intent,
  amount: fc.constantFrom('a part' as const, 'too much', 'all of it', 'a part'),
  destination: fc.nat(2),
});
const send = fc.record({
  do: fc.constant('send' as const),
  refund: fc.nat(3),
  what: fc.oneof(
    { weight: 3, arbitrary: fc.constant('as prepared' as const) },
    {
      weight: 2,
      arbitrary: fc.constantFrom('with another amount', 'to another destination', 'without the id'),
    },
  ),
  by: fc.constantFrom('the wallet' as const, 'another wallet' as const),
  other: fc.nat(3),
});
const confirm = fc.record({ do: fc.constant('confirm' as const), refund: fc.nat(3), transfer: fc.nat(5) });
const cancelRefund = fc.record({ do: fc.constant('cancel refund' as const), refund: fc.nat(3) });
const ofRefunds: fc.WeightedArbitrary<Command>[] = [
  { weight: 6, arbitrary: refund },
  { weight: 9, arbitrary: send },
  { weight: 2, arbitrary: confirm },
  { weight: 2, arbitrary: cancelRefund },
  {
    weight: 9,
    arbitrary: fc.record({
      do: fc.constant('mine' as const),
      blocks: fc.constantFrom(10, 1),
      time: fc.oneof(
        { weight: 8, arbitrary: fc.constant('next' as const) },
        { weight: 1, arbitrary: fc.constantFrom('in time for the refund', 'too late for the refund') },
      ),
      intent: fc.nat(3),
      withRemoved: fc.boolean(),
      isRead,
    }),
  },
  // Deep enough for refunded payments, which may not return.
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('reorganise' as const),
      depth: fc.constantFrom(1, 3, 12, 20, 30),
      more: fc.constantFrom(1, 0),
      returning: fc.constantFrom('nowhere', 'in the first', 'in the first', 'in the last'),
      what: fc.constantFrom('everything', 'refunds'),
      isRead,
    }),
  },
];
/** Only with honest nodes, because people attribute according to what the service says. */
const ofPeople: fc.WeightedArbitrary<Command>[] = [
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('create' as const),
      wallet: fc.constantFrom('shared', 'destination'),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('send astray' as const) }) },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('attribute' as const), transfer: fc.nat(2), intent: fc.nat(3) }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('detach' as const), transfer: fc.nat(2) }) },
];

/** Refunds begin with a confirmed payment. */
const refunded: fc.Arbitrary<Command[]> = refund.map((first) => [
  { do: 'pay', intent: 0, amount: 'the whole amount', way: 'with the id' },
  { do: 'mine', blocks: 10, time: 'next', intent: 0, withRemoved: false, isRead: true },
  { ...first, intent: 0, amount: first.amount === 'too much' ? 'all of it' : first.amount },
]);

/** Two intents, and money that a person has to attribute. */
const astray: Command[] = [
  { do: 'create', wallet: 'shared' },
  { do: 'create', wallet: 'shared' },
  { do: 'send astray' },
  { do: 'mine', blocks: 10, time: 'next', intent: 0, withRemoved: false, isRead: true },
  { do: 'attribute', transfer: 0, intent: 0 },
];

const historyOf = (
  liar: Liar,
  commands: fc.Arbitrary<Command>,
  first: fc.Arbitrary<Command[]> = fc.constant([]),
): fc.Arbitrary<History> =>
  fc.record({
    liar: fc.constant(liar),
    isReadAtOnce: liar === 'nobody' ? fc.constant(false) : fc.boolean(),
    commands: fc
      .tuple(first, fc.array(commands, { minLength: 5, maxLength: 20, size: 'max' }))
      .map((both) => both.flat()),
  });

const withoutRefunds = (liar: Liar): fc.Arbitrary<History> =>
  historyOf(liar, fc.oneof(...(liar === 'nobody' ? honestCommands : lyingCommands)));

const withRefunds = (liar: Liar): fc.Arbitrary<History> => {
  const commands =
    liar === 'nobody'
      ? fc.oneof(...ofRefunds, ...ofRefunds, ...honestCommands, ...ofPeople)
      : fc.oneof(...ofRefunds, ...ofRefunds, ...lyingCommands);
  const first = fc.tuple(refunded, fc.constantFrom([], liar === 'nobody' ? astray : []));
  return historyOf(
    liar,
    commands,
    first.map((both) => both.flat()),
  );
};

/** Every node is honest, and half have refunds. */
export const honestHistory: fc.Arbitrary<History> = fc.oneof(withoutRefunds('nobody'), withRefunds('nobody'));

/** In half of the histories every node is honest, and half have refunds. */
export const history: fc.Arbitrary<History> = fc.oneof(
  ...[withoutRefunds, withRefunds].flatMap((of) => [
    { weight: 3, arbitrary: of('nobody') },
    { weight: 1, arbitrary: of('the only node') },
    { weight: 1, arbitrary: of('the first of two nodes') },
    { weight: 1, arbitrary: of('the second of two nodes') },
  ]),
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

const walletWords = {
  own: 'a wallet of its own',
  shared: "the merchant's wallet",
  destination: 'the first destination of refunds, if none has',
} as const;

function describeCommand(command: Command): string {
  const unread = 'isRead' in command && !command.isRead ? ', unread' : '';
  switch (command.do) {
    case 'create':
      return `create an intent with ${walletWords[command.wallet]}`;
    case 'pay':
      return `pay ${command.amount} to intent #${command.intent} ${command.way}`;
    case 'mine': {
      const { blocks, time, intent } = command;
      const whose = time.endsWith('refund') ? '' : ' for intent';
      const at = time === 'next' ? '' : `, the first ${time}${whose} #${intent}`;
      const removed = command.withRemoved ? ', with what was removed' : '';
      return `mine ${blocks} block${blocks === 1 ? '' : 's'}${at}${removed}${unread}`;
    }
    case 'reorganise': {
      const { depth, more, returning, what } = command;
      return `reorganise ${depth} deep into ${depth + more} new; ${what} returns ${returning}${unread}`;
    }
    case 'cancel':
      return `cancel intent #${command.intent}`;
    case 'restart':
      return `the watcher is ${command.how}, another goes on`;
    case 'lie':
      return `lie: ${command.lies.map(({ lie, times }) => `${lie} (${times} times)`).join(', then ')}`;
    case 'refund':
      return `refund ${command.amount} of intent #${command.intent} to destination #${command.destination}`;
    case 'send': {
      const { refund, what, by, other } = command;
      return `send refund #${refund} ${what} by ${by}${what === 'to another destination' ? ` (of refund #${other})` : ''}`;
    }
    case 'confirm':
      return `confirm refund #${command.refund} with transfer #${command.transfer}`;
    case 'cancel refund':
      return `cancel refund #${command.refund}`;
    case 'attribute':
      return `attribute stray transfer #${command.transfer} to intent #${command.intent}`;
    case 'detach':
      return `detach stray transfer #${command.transfer}`;
    case 'sign':
      return `sign for intent #${command.intent}, valid ${command.valid}, with a nonce ${command.nonce}`;
    case 'send signed':
      return `somebody sends authorization #${command.authorization}`;
    case 'send astray':
    case 'read again':
    case 'be honest':
      return command.do;
  }
}
