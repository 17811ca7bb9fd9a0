// Do creates stay as fast while the same process does other work? Measures them beside deliveries that fail,
// and beside a backlog of intents that have to expire. In turn with each, a process without that role serves
// the same database, so that only the work differs.

import { setTimeout as sleep } from 'node:timers/promises';
import {
  createEndpoints,
  createMerchants,
  loopbackAllowed,
  makeDeliveries,
  startReceiver,
} from './deliveries.ts';
import { fillPaymentIntents } from './fill.ts';
import { loadByWrk, type Measurement, requireTools } from './load.ts';
import {
  cpuMicrosOf,
  freePort,
  inTurn,
  median,
  onThisMachine,
  type PreparedDatabase,
  prepareAnother,
  prepareDatabase,
  publish,
  ratiosOf,
  spread,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

const kinds = ['deliveries that fail', 'intents that expire'] as const;
type Kind = (typeof kinds)[number];

/** The same database is served without the work and with it. */
const states = ['alone', 'beside'] as const;
type State = (typeof states)[number];

const rolesOf = {
  'deliveries that fail': { alone: 'api,expiry', beside: 'api,expiry,deliveries' },
  'intents that expire': { alone: 'api,deliveries', beside: 'api,deliveries,expiry' },
} as const satisfies Record<Kind, Record<State, string>>;

interface Sample extends Measurement {
  /** Of the process and of PostgreSQL, including the other work. */
  cpuMicrosEach: number;
}

const merchants = 20;
/** For each merchant. Half of them hang, and half refuse the connection. */
const endpointsEach = 4;

export async function compareBeside({
  rounds,
  seconds,
  rows,
  waiting,
}: {
  rounds: number;
  seconds: number;
  /** Intents that have to expire. */
  rows: number;
  /** Deliveries that wait. */
  waiting: number;
}): Promise<void> {
  await requireTools(['wrk']);
  await withSetting(async (setting) => {
    const { folder, postgres } = setting;
    const receiver = await startReceiver();
    const failing = await prepareDatabase(postgres);
    const expiring = await prepareAnother(failing, 'expiry');
    const databases: Record<Kind, PreparedDatabase> = {
      'deliveries that fail': failing,
      'intents that expire': expiring,
    };
    await fillPaymentIntents(failing.orm.em, [failing.merchantId], 'paid', rows);
    const refusing = `http://127.0.0.1:${await freePort()}`;
    const owners = await createMerchants(failing, merchants);
    for (const [m, merchantId] of owners.entries()) {
      const urls = Array.from({ length: endpointsEach }, (_, e) =>
        e % 2 === 0 ? receiver.url('hangs', `${m}-${e}`) : `${refusing}/${m}-${e}`,
      );
      await createEndpoints(failing, merchantId, urls);
    }
    await makeDeliveries(failing, owners, Math.ceil(waiting / (merchants * endpointsEach)));
    await fillPaymentIntents(expiring.orm.em, [expiring.merchantId], 'overdue', rows);

    const samples: Record<Kind, Record<State, Sample[]>> = {
      'deliveries that fail': { alone: [], beside: [] },
      'intents that expire': { alone: [], beside: [] },
    };
    const attempts: number[] = [];
    const drains = { alone: [] as number[], beside: [] as number[] };
    for (let round = 0; round < rounds; round++) {
      for (const kind of kinds) {
        const database = databases[kind];
        for (const state of inTurn(states, round)) {
          if (kind === 'deliveries that fail') await beginAgain(database);
          const server = await startOurs(
            { ...database.environment, ...loopbackAllowed, ROLES: rolesOf[kind][state] },
            'HTTP_PORT',
          );
          const target = { port: server.port, apiKey: database.apiKey, inFlight: 64, seconds };
          await loadByWrk(folder, 'no idempotency keys', { ...target, seconds: warmUpSeconds });
          await database.orm.em.execute('checkpoint');
          const { result: measured, cpuMicros } = await cpuMicrosOf(setting, server, () =>
            during(database, () => loadByWrk(folder, 'no idempotency keys', target)),
          );
          const { result, ...work } = measured;
          const cpuMicrosEach = cpuMicros / (result.perSecond * seconds);
          samples[kind][state].push({ ...result, cpuMicrosEach });
          const paces = `${Math.round(result.perSecond)} creates/s, p99 ${result.p99Ms} ms`;
          console.error(`${kind}, ${state}: ${paces}, ${Math.round(cpuMicrosEach)} us of CPU`);
          if (state === 'beside' && kind === 'deliveries that fail') attempts.push(work.attemptsPerSecond);
          if (state === 'beside' && kind === 'intents that expire') {
            drains.beside.push(work.eventsPerSecond);
            const { eventsPerSecond } = await during(database, () => sleep(seconds * 1000));
            drains.alone.push(eventsPerSecond);
            console.error(
              `expired: ${Math.round(work.eventsPerSecond)}/s beside creates, ${Math.round(eventsPerSecond)}/s alone`,
            );
            await assertBacklog(database);
          }
          await server.stop();
        }
      }
    }
    await receiver.stop();
    await Promise.all(Object.values(databases).map(({ orm }) => orm.close()));
    await publish('results-beside.md', report(samples, attempts, drains, { rows, waiting, rounds, seconds }));
  });
}

/** All deliveries wait for their first attempt. */
async function beginAgain({ orm }: PreparedDatabase): Promise<void> {
  await orm.em.execute('truncate webhook_attempts');
  await orm.em.execute(
    "update webhook_deliveries set status = 'pending', next_attempt_at = now(), scheduled = 0, attempts = 0",
  );
  await orm.em.execute('update webhook_endpoints set failures = 0, failing_since = null');
  await orm.em.execute('vacuum analyze webhook_deliveries');
}

/** How much of its other work the process does in the meantime. */
async function during<T>(
  { orm }: PreparedDatabase,
  run: () => Promise<T>,
): Promise<{ result: T; eventsPerSecond: number; attemptsPerSecond: number }> {
  const done = async () => {
    const [row] = await orm.em.execute<{ events: string; attempts: string }[]>(
      'select last_position as events, (select count(*) from webhook_attempts) as attempts from event_progress',
    );
    return { events: Number(row?.events), attempts: Number(row?.attempts), atMs: performance.now() };
  };
  const before = await done();
  const result = await run();
  const after = await done();
  const elapsed = (after.atMs - before.atMs) / 1000;
  return {
    result,
    eventsPerSecond: (after.events - before.events) / elapsed,
    attemptsPerSecond: (after.attempts - before.attempts) / elapsed,
  };
}

/** Throws if every intent has expired: part of the measurement then had no work beside it. */
async function assertBacklog({ orm }: PreparedDatabase): Promise<void> {
  const [row] = await orm.em.execute<{ left: boolean }[]>(
    "select exists (select from payment_intents where status = 'requires_payment' and expires_at < now()) as left",
  );
  if (row?.left !== true) throw new Error('every intent has expired: use more with --million');
}

function report(
  samples: Record<Kind, Record<State, readonly Sample[]>>,
  attempts: readonly number[],
  drains: { alone: readonly number[]; beside: readonly number[] },
  { rows, waiting, rounds, seconds }: { rows: number; waiting: number; rounds: number; seconds: number },
): string {
  const figures = (kind: Kind, state: State, of: keyof Sample) =>
    samples[kind][state].map((sample) => sample[of]);
  const ratio = (kind: Kind, of: keyof Sample) =>
    spread(ratiosOf(figures(kind, 'beside', of), figures(kind, 'alone', of)));
  return `# Creates beside other work

\`npm run bench -- --beside\` ${onThisMachine()}; public door, 64 in flight, on one PostgreSQL with its default settings. Each table begins with ${rows.toLocaleString('en')} intents. "With" is a process with all roles, "without" one that lacks the role of the work, on the same database: ${rounds} rounds of ${seconds} s for each, in turn. "CPU" is that of the process and of PostgreSQL together, divided by the creates; it depends less on the disk, which this machine shares, than the rate does.

${table(
  ['creates', 'creates/s', 'p50 ms', 'p99 ms', 'CPU µs each'],
  kinds.flatMap((kind) =>
    states.map((state) => [
      `${state === 'alone' ? 'without' : 'with'} ${kind}`,
      Math.round(median(figures(kind, state, 'perSecond'))),
      median(figures(kind, state, 'p50Ms')).toFixed(2),
      median(figures(kind, state, 'p99Ms')).toFixed(2),
      Math.round(median(figures(kind, state, 'cpuMicrosEach'))),
    ]),
  ),
)}

${table(
  ['creates with … / without', 'creates/s (target: at least 0.9)', 'p99', 'CPU'],
  kinds.map((kind) => [kind, ratio(kind, 'perSecond'), ratio(kind, 'p99Ms'), ratio(kind, 'cpuMicrosEach')]),
)}

**Deliveries that fail**: ${waiting.toLocaleString('en')} deliveries wait for ${merchants * endpointsEach} endpoints of ${merchants} merchants. Half of the endpoints never answer, half refuse the connection. The process makes ${Math.round(median(attempts))} attempts a second meanwhile.

**Intents that expire**: ${rows.toLocaleString('en')} intents should have expired before the process starts.

${table(
  ['intents that expire', 'intents/s'],
  [
    ['without creates', Math.round(median(drains.alone))],
    ['beside creates', Math.round(median(drains.beside))],
    ['beside / without', spread(ratiosOf(drains.beside, drains.alone))],
  ],
)}
`;
}
