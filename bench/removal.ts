// How fast are old events removed if many wait for it, and do new ones get their positions as fast meanwhile?

import { setTimeout as sleep } from 'node:timers/promises';
import {
  inTurn,
  median,
  onThisMachine,
  type PreparedDatabase,
  prepareDatabase,
  publish,
  ratiosOf,
  spread,
  startOurs,
  table,
  withSetting,
} from './setting.ts';

const states = ['alone', 'beside'] as const;
type State = (typeof states)[number];

const oldEvents = 100_000;
const newEvents = 100_000;
/** Longer than EVENT_RETENTION_DAYS. */
const age = "interval '400 days'";
/** About the size of an intent's event. */
const data = `'{"payment_intent":{"metadata":{"text":"${'x'.repeat(600)}"}}}'`;

export async function measureRemoval({ rounds }: { rounds: number }): Promise<void> {
  await withSetting(async ({ postgres }) => {
    const database = await prepareDatabase(postgres);
    const positioned: Record<State, number[]> = { alone: [], beside: [] };
    const removed: Record<State, number[]> = { alone: [], beside: [] };
    for (let round = 0; round < rounds; round++) {
      for (const state of inTurn(states, round)) {
        await fill(database);
        const roles = state === 'beside' ? 'deliveries,expiry' : 'deliveries';
        const server = await startOurs({ ...database.environment, ROLES: roles }, 'HTTP_PORT');
        const rate = await measure(database, ({ waiting }) => waiting === 0);
        positioned[state].push(rate.positionsPerSecond);
        if (state === 'beside') {
          removed.beside.push(rate.removalsPerSecond);
          removed.alone.push((await measure(database, ({ left }) => left === 0)).removalsPerSecond);
        }
        await server.stop();
      }
    }
    await database.orm.close();
    await publish('results-removal.md', report(positioned, removed, rounds));
  });
}

async function fill({ orm, merchantId }: PreparedDatabase): Promise<void> {
  const { em } = orm;
  await em.execute('truncate events, removed_events');
  await em.execute('update event_progress set last_position = ?, removed_position = 0', [oldEvents]);
  // An event's id begins with its time.
  const insert = `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data, position)
    select (lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint + i), 12, '0') || '7' || substr(md5(i::text), 1, 3)
            || '8' || substr(md5(i::text), 4, 15))::uuid,
           ?, 'testnet', 'payment_intent.expired', at, gen_random_uuid(), 1, ${data}, position`;
  await em.execute(
    `${insert} from (select i, now() - ${age} as at, i as position from generate_series(1, ?) i) old`,
    [merchantId, oldEvents],
  );
  await em.execute(
    `${insert} from (select i, now() as at, null::bigint as position from generate_series(1, ?) i) new`,
    [merchantId, newEvents],
  );
  await em.execute('vacuum analyze events');
  await em.execute('checkpoint');
}

interface Left {
  /** Events without a position. */
  waiting: number;
  /** Old events. */
  left: number;
}

/** Waits until it is done. Returns the rates. */
async function measure({ orm }: PreparedDatabase, isDone: (now: Left) => boolean) {
  const left = async (): Promise<Left & { atMs: number }> => {
    const [row] = await orm.em.execute<{ waiting: string; left: string }[]>(
      `select count(*) filter (where position is null) as waiting,
              count(*) filter (where created_at < now() - interval '300 days') as left from events`,
    );
    return { waiting: Number(row?.waiting), left: Number(row?.left), atMs: performance.now() };
  };
  const first = await left();
  let last = first;
  while (!isDone(last)) {
    await sleep(250);
    last = await left();
  }
  const seconds = (last.atMs - first.atMs) / 1_000;
  return {
    positionsPerSecond: (first.waiting - last.waiting) / seconds,
    removalsPerSecond: (first.left - last.left) / seconds,
  };
}

function report(
  positioned: Record<State, number[]>,
  removed: Record<State, number[]>,
  rounds: number,
): string {
  return `# Removal of old events

\`npm run bench -- --removal\` ${onThisMachine()}; ${newEvents.toLocaleString('en')} new events wait for their positions, and ${oldEvents.toLocaleString('en')} old ones for their removal. One process with the roles \`deliveries\` and \`expiry\`, or without the second; ${rounds} rounds in turn.

${table(
  ['', 'a second'],
  [
    ['positions, without removal', Math.round(median(positioned.alone))],
    ['positions, beside removal', Math.round(median(positioned.beside))],
    ['beside / without (target: 0.95)', spread(ratiosOf(positioned.beside, positioned.alone))],
    ['removals, beside positions', Math.round(median(removed.beside))],
    ['removals, without (target: 5,000)', Math.round(median(removed.alone))],
  ],
)}
`;
}
