// What a stranger's blocks cost: whether it grows only with their size, and how long nothing else runs.

import type { Address } from 'viem';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { type HostileKind, hostileKinds, prepareHostileBlocks } from '../test/support/hostile-blocks.ts';
import { fillPaymentIntents } from './fill.ts';
import { startWatcher, untilRead, type Watcher } from './following.ts';
import { startPayingChain } from './paying.ts';
import {
  median,
  onThisMachine,
  type PreparedDatabase,
  prepareDatabase,
  publish,
  table,
  withSetting,
} from './setting.ts';

const sizes = [500, 1_000, 2_000, 5_000] as const;
const largest = sizes[3];
/** Intents of one price that expect the wallet. */
const openIntents = 6_600;
/** Never dust. */
const amountUnits = 20_000n;

interface Cost {
  /** From the first answer with the header to the commit. */
  lagMs: number;
  /** The longest time between two turns of the event loop. */
  gapMs: number;
  /** The most processor time of the main thread between two turns. */
  workMs: number;
}

type Costs = Record<HostileKind, Cost[][]>;

export async function measureHostileBlocks({ rounds }: { rounds: number }): Promise<void> {
  await withSetting(async ({ postgres }) => {
    const database = await prepareDatabase(postgres);
    await fillPaymentIntents(database.orm.em, [database.merchantId], 'open', openIntents);
    const chain = await startPayingChain();
    const hostile = await prepareHostileBlocks(chain);
    const watcher = await startWatcher(database, { RPC_URL_BASE_SEPOLIA: chain.url }, 200);
    const intent = await intentOf(database);
    const costOf = async (kind: HostileKind, count: number): Promise<Cost> => {
      await untilRead(database, chain);
      await hostile.fill(kind, { count, amountUnits, ...intent });
      return costOfBlock(database, watcher, chain, count);
    };
    const costs = Object.fromEntries(
      hostileKinds.map((kind) => [kind, sizes.map(() => [])]),
    ) as unknown as Costs;
    // The first round lets the JIT compiler optimise the watcher.
    for (let round = 0; round <= rounds; round++) {
      for (const kind of hostileKinds) {
        for (const [i, count] of sizes.entries()) {
          const cost = await costOf(kind, count);
          if (round > 0) costs[kind][i]?.push(cost);
          console.error(kind, count, cost);
        }
      }
    }
    await watcher.stop();
    await chain.stop();
    await database.orm.close();
    await publish('results-hostile-blocks.md', report(costs, rounds));
  });
}

async function intentOf({ orm }: PreparedDatabase): Promise<{ to: Address; intentId: string }> {
  const [row] = await orm.em.execute<{ id: string; wallet: string }[]>(
    `select id, '0x' || encode(expected_wallet, 'hex') as wallet from payment_intents order by id desc limit 1`,
  );
  return { to: row?.wallet as Address, intentId: formatIdentifier('pi', row?.id ?? '') };
}

async function costOfBlock(
  database: PreparedDatabase,
  watcher: Watcher,
  chain: Awaited<ReturnType<typeof startPayingChain>>,
  count: number,
): Promise<Cost> {
  await watcher.watched();
  await chain.mine();
  const receipts = await chain.client.getLogs({ blockHash: (await chain.client.getBlock()).hash });
  if (receipts.length < count) throw new Error(`${receipts.length} of ${count} transfers were made`);
  await untilRead(database, chain);
  const { blocks, longestGapMs, longestWorkMs } = await watcher.watched();
  return { lagMs: blocks.at(-1)?.lagMs ?? Number.NaN, gapMs: longestGapMs, workMs: longestWorkMs };
}

function report(costs: Costs, rounds: number): string {
  const ms = (value: number) => Math.round(value).toLocaleString('en');
  const of = (kind: HostileKind, i: number, name: keyof Cost) =>
    costs[kind][i]?.map((cost) => cost[name]) ?? [];
  const slope = (kind: HostileKind) =>
    median(of(kind, 3, 'lagMs')) / largest / (median(of(kind, 1, 'lagMs')) / sizes[1]);
  return `# Hostile blocks

\`npm run bench -- --hostile-blocks --rounds ${rounds}\` ${onThisMachine()}; anvil, PostgreSQL with its default settings and a process that only watches on the same machine. ${openIntents.toLocaleString('en')} intents of one price expect the wallet. One transaction makes all transfers of a block, by a contract of a stranger's; those that repeat have as many calls with an intent's id in their calldata.

Milliseconds from the node's first answer with the header to the commit, median. The last columns: what a transfer costs in a block of ${largest.toLocaleString('en')}, compared with one in a block of ${sizes[1].toLocaleString('en')} (1 is linear), and the longest time in each of these blocks in which the event loop did not turn (median and highest of the blocks), which includes waiting for a core, and the most processor time that the main thread used between two turns.

${table(
  [
    'transfers',
    ...sizes.map((size) => size.toLocaleString('en')),
    'slope',
    'gap, ms',
    'highest',
    'processor, ms',
    'highest',
  ],
  hostileKinds.map((kind) => {
    const gaps = sizes.flatMap((_, i) => of(kind, i, 'gapMs'));
    const work = sizes.flatMap((_, i) => of(kind, i, 'workMs'));
    return [
      kind,
      ...sizes.map((_, i) => ms(median(of(kind, i, 'lagMs')))),
      `**${slope(kind).toFixed(2)}**`,
      ms(median(gaps)),
      ms(Math.max(...gaps)),
      ms(median(work)),
      ms(Math.max(...work)),
    ];
  }),
)}
`;
}
