// How fast the service follows a chain, what that costs, and whether creates slow down.

import { type BesideKind, besideKinds, besidePayments, createBesidePayments } from './beside-payments.ts';
import {
  type CatchingUp,
  catchingUpBlocks,
  catchUp,
  othersEach,
  payingEvery,
  tipOthers,
  tipPayments,
} from './catching-up.ts';
import { fillPaymentIntents } from './fill.ts';
import { startWatcher } from './following.ts';
import { countIdle, type Idle } from './idle.ts';
import { type Measurement, requireTools } from './load.ts';
import { paymentsFor, startPayingChain } from './paying.ts';
import {
  median,
  onThisMachine,
  type PreparedDatabase,
  percentile,
  prepareAnother,
  prepareDatabase,
  publish,
  ratiosOf,
  type Setting,
  spread,
  table,
  withSetting,
} from './setting.ts';
import { followLargeBlock, followTip, type LargeBlock, type Tip } from './tip.ts';

const openIntents = 100_000;
const manyWallets = 10_000;
const largeBlockPayments = 2_000;
const largeBlocks = 5;
/** Blocks at the tip, one a second, and the payments in each. */
const tipBlocks = 60;
const paymentsAtTip = 100;
/** The time of two verifications, of which there is one every 30 s. */
const idleSeconds = 60;
const secondsOfADay = 86_400;

interface Figures {
  large: LargeBlock[];
  tip: Tip;
  catchingUp: { oneWallet: CatchingUp; ownWallets: CatchingUp };
  idle: Idle;
  beside: Record<BesideKind, Measurement[]>;
}

export async function measureSettlement(options: { rounds: number; seconds: number }): Promise<void> {
  await requireTools(['wrk']);
  await withSetting(async (setting) => {
    const first = await prepareDatabase(setting.postgres);
    const prepared = [first];
    const prepare = async (name: string, intents: number, ownWallets = 0) => {
      const database = await prepareAnother(first, name);
      prepared.push(database);
      await fillPaymentIntents(database.orm.em, [database.merchantId], 'open', intents, ownWallets);
      return database;
    };
    const tip = await prepare('tip', openIntents, openIntents / 2);
    const atTip = await measureTip(setting, tip);
    const oneWallet = await catchUp(await prepare('one_wallet', manyWallets));
    const ownWallets = await catchUp(await prepare('own_wallets', manyWallets, manyWallets));
    console.error(
      `${Math.round(oneWallet.blocksPerSecond)} and ${Math.round(ownWallets.blocksPerSecond)} blocks/s`,
    );
    const idle = await countIdle(await prepare('idle', 0), idleSeconds);
    const databases = {
      'blocks that nobody watches': await prepare('unwatched', openIntents),
      'a watcher of blocks that pay': await prepare('watched', openIntents),
    };
    const beside = await createBesidePayments(setting, databases, options);
    await Promise.all(prepared.map(({ orm }) => orm.close()));
    const figures = { ...atTip, catchingUp: { oneWallet, ownWallets }, idle, beside };
    await publish('results-settlement.md', report(figures, options));
  });
}

async function measureTip(
  setting: Setting,
  database: PreparedDatabase,
): Promise<Pick<Figures, 'large' | 'tip'>> {
  const chain = await startPayingChain();
  const payments = await paymentsFor(database, 'shared wallets');
  const watcher = await startWatcher(database, { RPC_URL_BASE_SEPOLIA: chain.url }, 1_000);
  const tip = await followTip(database, watcher, chain, tipBlocks, () => payments.splice(0, paymentsAtTip));
  console.error(`at the tip: p50 ${percentile(tip.lagsMs, 0.5)} ms, p99 ${percentile(tip.lagsMs, 0.99)} ms`);
  const large: LargeBlock[] = [];
  for (let i = 0; i < largeBlocks; i++) {
    large.push(
      await followLargeBlock(setting, database, watcher, chain, payments.splice(0, largeBlockPayments)),
    );
    console.error('a large block:', large.at(-1));
  }
  await watcher.stop();
  await chain.stop();
  return { large, tip };
}

function report(
  { large, tip, catchingUp, idle, beside }: Figures,
  { rounds, seconds }: { rounds: number; seconds: number },
): string {
  const ms = (value: number) => Math.round(value).toLocaleString('en');
  const of = (name: keyof LargeBlock) => large.map((block) => block[name]);
  const p50p99 = (values: readonly number[]) => [ms(percentile(values, 0.5)), ms(percentile(values, 0.99))];
  const figure = (kind: BesideKind, name: keyof Measurement) => beside[kind].map((sample) => sample[name]);
  const ratio = (name: keyof Measurement) =>
    spread(
      ratiosOf(figure('a watcher of blocks that pay', name), figure('blocks that nobody watches', name)),
    );
  const wallets = [
    ['one, for all intents', catchingUp.oneWallet],
    ['one for each intent', catchingUp.ownWallets],
  ] as const;
  return `# Settlement

\`npm run bench -- --settlement\` ${onThisMachine()}; anvil, PostgreSQL with its default settings and a process that only watches on the same machine. The node answers from its memory: a provider takes longer.

${table(
  ['', 'measured', 'target'],
  [
    [
      `a block with ${largeBlockPayments.toLocaleString('en')} payments, until its commit`,
      `**${ms(median(of('lagMs')))} ms** (${ms(Math.min(...of('lagMs')))} to ${ms(Math.max(...of('lagMs')))})`,
      'under 2,000 ms',
    ],
    [
      `a block a second with ${paymentsAtTip} payments: lag`,
      `p50 ${ms(percentile(tip.lagsMs, 0.5))} ms, **p99 ${ms(percentile(tip.lagsMs, 0.99))} ms**`,
      'p99 under 500 ms',
    ],
    [
      `catching up over ${catchingUpBlocks.toLocaleString('en')} blocks`,
      `**${ms(catchingUp.oneWallet.blocksPerSecond)} blocks/s**`,
      '',
    ],
    [
      `the same, with ${manyWallets.toLocaleString('en')} wallets`,
      `**${ms(catchingUp.ownWallets.blocksPerSecond)} blocks/s**`,
      '',
    ],
    ['creates beside a watcher / without', ratio('perSecond'), 'at least 0.9'],
  ],
)}

A lag begins with the node's first answer with the block's header, and ends with the commit. There are ${openIntents.toLocaleString('en')} open intents. Half of them expect a wallet of their own and are paid without an id; the payments of the others name the intent.

## At the tip

${table(
  [`a block with ${largeBlockPayments.toLocaleString('en')} payments, ${large.length} times`, 'ms'],
  [
    ['lag', ms(median(of('lagMs')))],
    ['processor time of the watcher', ms(median(of('watcherCpuMs')))],
    ['processor time of PostgreSQL', ms(median(of('postgresCpuMs')))],
    ['later: from the block that confirms them to the success of all', ms(median(of('confirmingMs')))],
  ],
)}

${table(
  [`a block a second, ${tipBlocks} of them`, 'p50 ms', 'p99 ms'],
  [
    ['lag', ...p50p99(tip.lagsMs)],
    ['from mining to the commit; the node is asked once a second', ...p50p99(tip.delaysMs)],
  ],
)}

## Catching up, and many wallets

${catchingUpBlocks.toLocaleString('en')} blocks; one of ${payingEvery} has a payment and ${othersEach} transfers between others. Then ${tipPayments} payments and ${tipOthers} transfers between others each second. ${manyWallets.toLocaleString('en')} intents are open, and every payment names its intent. With more than 1,000 wallets the node is asked for all transfers of a range.

${table(
  ['wallets', 'blocks/s', 'requests', 'of these eth_getLogs', 'lag at the tip, p50 ms', 'p99 ms'],
  wallets.map(([name, { blocksPerSecond, requests, tip: after }]) => [
    name,
    ms(blocksPerSecond),
    Object.values(requests).reduce((sum, count) => sum + count, 0),
    requests.eth_getLogs ?? 0,
    ...p50p99(after.lagsMs),
  ]),
)}

## An idle chain

Requests about a chain without transfers for ${idle.seconds} s, as they would be in a day; bytes of their bodies, not compressed.

${Object.entries(idle.byMethod)
  .map(([name, calls]) => idleTable(name, calls, idle.seconds))
  .join('\n\n')}

A transfer between others, with its transaction, adds ${Math.round(idle.bytesOfOthers)} bytes to the answers about its block.

## Creates beside payments

Public door, 64 in flight, one process with all roles; ${rounds} rounds of ${seconds} s for each, in turn on one PostgreSQL. The chain has a block a second with ${besidePayments} transfers in both cases.

${table(
  ['creates beside', 'creates/s', 'p50 ms', 'p99 ms'],
  besideKinds.map((kind) => [
    kind,
    ms(median(figure(kind, 'perSecond'))),
    median(figure(kind, 'p50Ms')).toFixed(2),
    median(figure(kind, 'p99Ms')).toFixed(2),
  ]),
)}

${table(
  ['beside a watcher / beside none', 'ratio'],
  [
    ['creates/s (target: at least 0.9)', ratio('perSecond')],
    ['p99', ratio('p99Ms')],
  ],
)}
`;
}

function idleTable(chain: string, byMethod: Idle['byMethod']['base'], seconds: number): string {
  const aDay = (value: number) => Math.round((value * secondsOfADay) / seconds);
  const rows = Object.entries(byMethod).map(
    ([method, { calls, requestBytes, answerBytes }]) => [method, calls, requestBytes, answerBytes] as const,
  );
  const sum = (column: 1 | 2 | 3) => rows.reduce((total, row) => total + row[column], 0);
  const line = (name: string, calls: number, asked: number, answered: number) => [
    name,
    aDay(calls).toLocaleString('en'),
    (aDay(asked) / 1e6).toFixed(1),
    (aDay(answered) / 1e6).toFixed(1),
  ];
  return table(
    [`${chain}: a day`, 'calls', 'MB asked', 'MB answered'],
    [...rows.map((row) => line(...row)), line('together', sum(1), sum(2), sum(3))],
  );
}
