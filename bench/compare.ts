// Compares our two doors with the contenders. They run in turn and repeatedly, so that noise on the machine does not
// decide the result. Each round measures all of them; a ratio is the median of the rounds' ratios.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { SocketLocation } from '../src/config/database-location.ts';
import { drawChart } from './chart.ts';
import { type Costs, costTable, measureCosts } from './cost.ts';
import { loadByH2load, loadByPgbench, loadByWrk, type Measurement, requireTools } from './load.ts';
import {
  cpuMicrosOf,
  environmentByHand,
  median,
  onThisMachine,
  type PreparedDatabase,
  prepareByHand,
  prepareDatabase,
  printsReady,
  publish,
  type Running,
  ratiosOf,
  type Setting,
  spread,
  startContender,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

const inFlight = [64, 1] as const;

interface Sample extends Measurement {
  /** Of the server process. */
  cpuMicrosEach: number;
  /** Of the server and PostgreSQL together. */
  withDatabaseCpuMicrosEach: number;
  peakMb: number;
}

/** Samples of all rounds, by contender and requests in flight, such as `Fastify 5 + pg @64`. */
type Samples = Map<string, Sample[]>;

const contenders = [
  { name: 'ours, public door', protocol: 'http', start: (db) => startOurs(db.environment, 'HTTP_PORT') },
  { name: 'Fastify 5 + pg', protocol: 'http', start: byHand('bench/contenders/fastify.ts') },
  { name: 'ours, gRPC', protocol: 'grpc', start: (db) => startOurs(db.environment, 'GRPC_PORT') },
  { name: 'grpc-js + pg', protocol: 'grpc', start: byHand('bench/contenders/grpc-js.ts') },
  { name: 'connect-node + flush', protocol: 'grpc', start: byHand('bench/contenders/connect-flush.ts') },
] as const satisfies {
  name: string;
  protocol: 'http' | 'grpc';
  start: (database: Databases) => Promise<Running>;
}[];

/** Our database, and the one that the contenders write to. */
type Databases = PreparedDatabase & { byHand: SocketLocation };

type Contender = (typeof contenders)[number];

const withKeys = 'ours, public door, random idempotency keys';
const withoutKeys = 'ours, public door, no idempotency keys';

export async function compareContenders({ rounds, seconds }: { rounds: number; seconds: number }) {
  await requireTools(['h2load', 'wrk']);
  await withSetting(async (setting) => {
    const database = await prepareDatabase(setting.postgres);
    const byHandLocation = await prepareByHand(database);
    const costs: Costs = new Map();
    const samples: Samples = new Map();
    const startsMs: number[] = [];
    await startToReadyMs(setting);
    for (let round = 0; round < rounds; round++) {
      startsMs.push((await startToReadyMs(setting)) - (await startOfNodeMs()));
      // Alternating order, so that no contender always runs first or last.
      const isReversed = round % 2 === 1;
      for (const contender of isReversed ? contenders.toReversed() : contenders) {
        await measure(contender, setting, database, byHandLocation, seconds, samples, isReversed);
      }
      for (const clients of inFlight) {
        await database.orm.em.execute('checkpoint');
        const insert = insertByHand(database.merchantId);
        const pace = await loadByPgbench(setting.folder, byHandLocation, insert, clients, seconds);
        if (pace)
          note(samples, `pgbench @${clients}`, {
            ...pace,
            cpuMicrosEach: 0,
            withDatabaseCpuMicrosEach: 0,
            peakMb: 0,
          });
      }
      await measureCosts(setting, database, seconds, costs);
    }
    await database.orm.close();
    await publish('results.md', report(samples, costs, startsMs, rounds, seconds));
    await publish('results.svg', chart(samples));
  });
}

async function measure(
  contender: Contender,
  setting: Setting,
  database: PreparedDatabase,
  byHandLocation: SocketLocation,
  seconds: number,
  samples: Samples,
  isReversed: boolean,
): Promise<void> {
  const { folder } = setting;
  const { name, protocol } = contender;
  const server = await contender.start({ ...database, byHand: byHandLocation });
  const target = { port: server.port, apiKey: database.apiKey, seconds };
  const sample = async (key: string, load: () => Promise<Measurement>) => {
    // Each measurement starts at the same distance from the database's next checkpoint.
    await database.orm.em.execute('checkpoint');
    const { result: measurement, cpuMicros, ownMicros } = await cpuMicrosOf(setting, server, load);
    const creates = measurement.perSecond * seconds;
    note(samples, key, {
      ...measurement,
      cpuMicrosEach: ownMicros / creates,
      withDatabaseCpuMicrosEach: cpuMicros / creates,
      peakMb: (await server.residentMb()).peak,
    });
  };
  await loadByH2load(folder, protocol, { ...target, inFlight: 64, seconds: warmUpSeconds });
  for (const requests of inFlight) {
    await sample(`${name} @${requests}`, () =>
      loadByH2load(folder, protocol, { ...target, inFlight: requests }),
    );
  }
  if (name === 'ours, public door') {
    const wrk = { ...target, inFlight: 64 };
    const unkeyed = () => sample(`${withoutKeys} @64`, () => loadByWrk(folder, 'no idempotency keys', wrk));
    const keyed = () => sample(`${withKeys} @64`, () => loadByWrk(folder, 'random idempotency keys', wrk));
    for (const next of isReversed ? [keyed, unkeyed] : [unkeyed, keyed]) await next();
  }
  await server.stop();
}

function byHand(program: string) {
  return (databases: Databases) => startContender(program, environmentByHand(databases, databases.byHand));
}

/** The statement for `pgbench`: one row, with its values in the statement. */
function insertByHand(merchantId: string): string {
  return `insert into payment_intents values (gen_random_uuid(), '${merchantId}', 'testnet', 'requires_payment', 'base', 84532, 10, 12500000, 6, 'USDC', '0x036CbD53842c5426634e7929541eC2318f3dCF7e', '0x${'1'.repeat(40)}', 'sdk', '{"order_id":"order-1001"}', 30, now(), now() + interval '30 minutes', 1)`;
}

/** The time until `npm start` prints that it is ready, on the embedded database in a folder of its own. */
async function startToReadyMs({ folder }: Setting): Promise<number> {
  const startedAtMs = performance.now();
  const child = spawn('npm', ['start'], {
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      DATA_DIR: join(folder, 'start'),
      ...{ HTTP_PORT: '0', GRPC_PORT: '0', METRICS_PORT: '0', CONSOLE_PORT: '0' },
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await printsReady(child, 'npm start');
  const tookMs = performance.now() - startedAtMs;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await exited;
  return tookMs;
}

/** The start time of Node itself, without a program. */
async function startOfNodeMs(): Promise<number> {
  const startedAtMs = performance.now();
  await once(spawn(process.execPath, ['--eval', ''], { stdio: 'ignore' }), 'exit');
  return performance.now() - startedAtMs;
}

function note(samples: Samples, key: string, sample: Sample): void {
  samples.set(key, [...(samples.get(key) ?? []), sample]);
  const { perSecond, p50Ms, p99Ms } = sample;
  console.error(`${key}: ${Math.round(perSecond)}/s, p50 ${p50Ms.toFixed(2)} ms, p99 ${p99Ms.toFixed(2)} ms`);
}

function report(samples: Samples, costs: Costs, startsMs: number[], rounds: number, seconds: number): string {
  const of = (key: string, figure: keyof Sample) =>
    median((samples.get(key) ?? []).map((sample) => sample[figure]));
  const ratio = (what: string, figure: keyof Sample, ours: string, theirs: string, target: string) => {
    const peers = samples.get(theirs) ?? [];
    if (peers.length === 0) return [what, 'not measured', target];
    const figures = (all: readonly Sample[]) => all.map((sample) => sample[figure]);
    return [what, spread(ratiosOf(figures(samples.get(ours) ?? []), figures(peers))), target];
  };
  const measured = [...samples.keys()].map((key) => [
    key.replace(' @', ' | '),
    Math.round(of(key, 'perSecond')),
    of(key, 'p50Ms').toFixed(2),
    of(key, 'p99Ms').toFixed(2),
    key.startsWith('pgbench') ? '' : Math.round(of(key, 'cpuMicrosEach')),
    key.startsWith('pgbench') ? '' : Math.round(of(key, 'withDatabaseCpuMicrosEach')),
    key.startsWith('pgbench') ? '' : Math.round(of(key, 'peakMb')),
  ]);
  const [open, fastify, pgbench] = ['ours, public door @64', 'Fastify 5 + pg @64', 'pgbench @64'];
  const [grpc, grpcJs, flush] = ['ours, gRPC @64', 'grpc-js + pg @64', 'connect-node + flush @64'];
  const ratios = [
    ratio('public door / Fastify + pg, creates/s, 64 in flight', 'perSecond', open, fastify, 'at least 2.0'),
    ratio('public door / pgbench, creates/s, 64 in flight', 'perSecond', open, pgbench, 'at least 1.0'),
    ratio('gRPC / grpc-js + pg, creates/s, 64 in flight', 'perSecond', grpc, grpcJs, 'at least 1.8'),
    ratio('gRPC / connect-node + flush, creates/s, 64 in flight', 'perSecond', grpc, flush, ''),
    ratio('public door / Fastify + pg, p99, 64 in flight', 'p99Ms', open, fastify, 'at most 1.0'),
    ratio(
      'public door / Fastify + pg, processor time with PostgreSQL, 64 in flight',
      'withDatabaseCpuMicrosEach',
      open,
      fastify,
      'at most 0.45',
    ),
    ratio('gRPC / grpc-js + pg, p99, 64 in flight', 'p99Ms', grpc, grpcJs, 'at most 1.0'),
    ratio(
      'public door / Fastify + pg, creates/s, 1 in flight',
      'perSecond',
      'ours, public door @1',
      'Fastify 5 + pg @1',
      'at least 0.85',
    ),
    ratio(
      'with / without an idempotency key on every request, creates/s',
      'perSecond',
      `${withKeys} @64`,
      `${withoutKeys} @64`,
      'at least 0.9',
    ),
  ];
  const peakMb = Math.max(...[open, grpc].map((key) => of(key, 'peakMb')));
  return `# Durable creates, side by side

\`npm run bench\` ${onThisMachine()}; the embedded PostgreSQL and the load on the same machine. The contenders and pgbench write to a schema as one would write it by hand (\`contenders/schema.sql\`: a foreign key, two checks, an index for listing), ours to our own. ${rounds} rounds of ${seconds} s for each, in turn, after ${warmUpSeconds} s that are not counted: the figures are medians, a ratio is the median of the rounds' own ratios, with the lowest and the highest. The figures are this machine's; the ratios are what to read. Ours writes a log line for every request, the others write none. "CPU" is the server's own process; the next column adds all of PostgreSQL's.

![Creates per second](results.svg)

${table(['contender', 'in flight', 'creates/s', 'p50 ms', 'p99 ms', 'CPU µs each', 'with PostgreSQL', 'peak MB'], measured)}

${table(['ratio', 'measured', 'target'], ratios)}

What an answer of the public door costs in processor time, beside a bare \`node:http\` server that parses and echoes JSON:

${costTable(costs)}

${table(
  ['measure', 'measured', 'target'],
  [
    [
      'resident memory at its peak, the larger of the two doors',
      `${Math.round(peakMb)} MB`,
      'at most 200 MB',
    ],
    [
      "`npm start` on an existing database until ready, without Node's own start",
      `${Math.round(median(startsMs))} ms`,
      'under 1000 ms',
    ],
  ],
)}
`;
}

function chart(samples: Samples): string {
  const names = [...contenders.map(({ name }) => name), 'pgbench'];
  return drawChart(
    'Durable creates per second, 64 in flight',
    names.flatMap((name) => {
      const all = samples.get(`${name} @64`);
      return all
        ? [{ name, value: median(all.map((s) => s.perSecond)), isOurs: name.startsWith('ours') }]
        : [];
    }),
  );
}
