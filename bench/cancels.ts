// Compares cancels with creates, and with a hand-written cancel in one transaction. A cancel changes a row
// and records an event, and the event gets its position in a later transaction.

import { setTimeout as sleep } from 'node:timers/promises';
import type { MikroORM } from '@mikro-orm/postgresql';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { fillByHand, fillPaymentIntents } from './fill.ts';
import { loadByWrk, loadEachPath, type Measurement, requireTools } from './load.ts';
import {
  environmentByHand,
  inTurn,
  median,
  onThisMachine,
  prepareByHand,
  prepareDatabase,
  publish,
  type Running,
  ratiosOf,
  spread,
  startContender,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

/** More than either of them can cancel in a second. */
const mostPerSecond = 15_000;

const names = ['ours', 'Fastify 5 + pg'] as const;
type Name = (typeof names)[number];
type Samples = Record<Name, { creates: Measurement[]; cancels: Measurement[] }>;

interface Backlog {
  /** Events without a position when the last cancel was answered. */
  events: number;
  /** Time until every event had its position. */
  ms: number;
}

export async function compareCancels({
  rounds,
  seconds,
}: {
  rounds: number;
  seconds: number;
}): Promise<void> {
  await requireTools(['wrk']);
  await withSetting(async ({ folder, postgres }) => {
    const ours = await prepareDatabase(postgres);
    const location = await prepareByHand(ours);
    const byHand = createOrm(location, 1);
    const { merchantId, apiKey } = ours;
    const contenders: Record<Name, { orm: MikroORM; fill: typeof fillOurs; start(): Promise<Running> }> = {
      ours: { orm: ours.orm, fill: fillOurs, start: () => startOurs(ours.environment, 'HTTP_PORT') },
      'Fastify 5 + pg': {
        orm: byHand,
        fill: ({ em }, rows) => fillByHand(em, merchantId, 'open', rows),
        start: () => startContender('bench/contenders/fastify.ts', environmentByHand(ours, location)),
      },
    };
    function fillOurs({ em }: MikroORM, rows: number): Promise<void> {
      return fillPaymentIntents(em, [merchantId], 'open', rows);
    }

    const samples: Samples = {
      ours: { creates: [], cancels: [] },
      'Fastify 5 + pg': { creates: [], cancels: [] },
    };
    const backlogs: Backlog[] = [];
    for (let round = 0; round < rounds; round++) {
      for (const name of inTurn(names, round)) {
        const { orm, fill, start } = contenders[name];
        await orm.em.execute('truncate payment_intents, events');
        await fill(orm, (seconds + warmUpSeconds) * mostPerSecond);
        const paths = await cancelPaths(orm);
        const warmUpPaths = paths.splice(0, warmUpSeconds * mostPerSecond);
        const server = await start();
        const target = { port: server.port, apiKey, inFlight: 64, seconds };
        const warmUp = { ...target, seconds: warmUpSeconds };
        await loadByWrk(folder, 'no idempotency keys', warmUp);
        await loadEachPath(folder, warmUpPaths, warmUp);
        await orm.em.execute('checkpoint');
        const creates = await loadByWrk(folder, 'no idempotency keys', target);
        await orm.em.execute('checkpoint');
        const cancels = await loadEachPath(folder, paths, target);
        if (name === 'ours') backlogs.push(await drain(orm));
        samples[name].creates.push(creates);
        samples[name].cancels.push(cancels);
        console.error(
          `${name}: ${Math.round(creates.perSecond)} creates/s, ${Math.round(cancels.perSecond)} cancels/s, p99 ${cancels.p99Ms.toFixed(2)} ms`,
        );
        await server.stop();
      }
    }
    await Promise.all([ours.orm.close(), byHand.close()]);
    await publish('results-cancels.md', report(samples, backlogs, rounds, seconds));
  });
}

async function cancelPaths({ em }: MikroORM): Promise<string[]> {
  const rows = await em.execute<{ id: string }[]>('select id from payment_intents order by random()');
  return rows.map(({ id }) => `/v1/payment_intents/${formatIdentifier('pi', id)}/cancel`);
}

/** Waits until every event has its position. */
async function drain({ em }: MikroORM): Promise<Backlog> {
  const startedAtMs = performance.now();
  const count = async () => {
    const [row] = await em.execute<{ count: string }[]>('select count(*) from events where position is null');
    return Number(row?.count);
  };
  const events = await count();
  for (let left = events; left > 0; left = await count()) await sleep(5);
  return { events, ms: events === 0 ? 0 : performance.now() - startedAtMs };
}

function report(samples: Samples, backlogs: readonly Backlog[], rounds: number, seconds: number): string {
  const paces = (name: Name, kind: 'creates' | 'cancels') =>
    samples[name][kind].map(({ perSecond }) => perSecond);
  const lines = names.flatMap((name) =>
    (['creates', 'cancels'] as const).map((kind) => [
      name,
      kind,
      Math.round(median(paces(name, kind))),
      median(samples[name][kind].map(({ p50Ms }) => p50Ms)).toFixed(2),
      median(samples[name][kind].map(({ p99Ms }) => p99Ms)).toFixed(2),
    ]),
  );
  const p99s = (name: Name) => samples[name].cancels.map(({ p99Ms }) => p99Ms);
  return `# Cancels

\`npm run bench -- --cancels\` ${onThisMachine()}; public door, 64 in flight, ${rounds} rounds of ${seconds} s for each, in turn on one PostgreSQL with its default settings. Each intent is canceled once. A cancel changes the intent and records an event, both durable before the answer; the hand-written one does so with an update and an insert in one transaction.

${table(['server', 'request', 'requests/s', 'p50 ms', 'p99 ms'], lines)}

${table(
  ['ratio', 'measured', 'target'],
  [
    [
      'cancels/s, ours / Fastify + pg',
      spread(ratiosOf(paces('ours', 'cancels'), paces('Fastify 5 + pg', 'cancels'))),
      'at least 1.2',
    ],
    [
      'p99 of a cancel, ours / Fastify + pg',
      spread(ratiosOf(p99s('ours'), p99s('Fastify 5 + pg'))),
      'at most 1.0',
    ],
    ['cancels/s / creates/s, ours', spread(ratiosOf(paces('ours', 'cancels'), paces('ours', 'creates'))), ''],
    [
      'cancels/s / creates/s, Fastify + pg',
      spread(ratiosOf(paces('Fastify 5 + pg', 'cancels'), paces('Fastify 5 + pg', 'creates'))),
      '',
    ],
  ],
)}

When the last cancel was answered, ${Math.round(median(backlogs.map(({ events }) => events))).toLocaleString('en')} events had no position yet (median of the rounds, at most ${Math.max(...backlogs.map(({ events }) => events)).toLocaleString('en')}). All had theirs **${Math.round(median(backlogs.map(({ ms }) => ms)))} ms** later (at most ${Math.round(Math.max(...backlogs.map(({ ms }) => ms)))} ms; target: under 500 ms).
`;
}
