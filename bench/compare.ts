// Compares our two doors with the contenders. The servers of a protocol run side by side and are loaded in turn,
// seconds apart, because a machine's speed changes within minutes. A ratio is the median of the rounds' ratios.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { SocketLocation } from '../src/config/database-location.ts';
import { drawChart } from './chart.ts';
import { type Load, loadByH2load, loadByPgbench, loadByWrk, type Measurement, requireTools } from './load.ts';
import {
  cpuMicrosOf,
  environmentByHand,
  inTurn,
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

interface Sample extends Measurement {
  /** Of the server process. */
  cpuMicrosEach: number;
  /** Of the server and PostgreSQL together. */
  withDatabaseCpuMicrosEach: number;
  peakMb: number;
}

/** Samples of all rounds, by contender and requests in flight, such as `Fastify 5 + pg @64`. */
type Samples = Map<string, Sample[]>;

const publicDoor = 'ours, public door';

const contenders = [
  { name: publicDoor, protocol: 'http', start: (db) => startOurs(db.environment, 'HTTP_PORT') },
  { name: 'Fastify 5 + pg', protocol: 'http', start: byHand('bench/contenders/fastify.ts') },
  { name: 'ours, gRPC', protocol: 'grpc', start: (db) => startOurs(db.environment, 'GRPC_PORT') },
  { name: 'grpc-js + pg', protocol: 'grpc', start: byHand('bench/contenders/grpc-js.ts') },
  { name: 'connect-node + flush', protocol: 'grpc', start: byHand('bench/contenders/connect-flush.ts') },
] as const satisfies {
  name: string;
  protocol: 'http' | 'grpc';
  start: (database: Databases) => Promise<Running>;
}[];

/** Load before each measurement that is not counted: a server that has been idle is slow at first. */
const wakeUpSeconds = 2;

/** Our database, and the one that the contenders write to. */
type Databases = PreparedDatabase & { byHand: SocketLocation };

type Server = { name: string; running: Running };

type Target = Pick<Load, 'port' | 'apiKey' | 'seconds'>;

export async function compareContenders({ rounds, seconds }: { rounds: number; seconds: number }) {
  await requireTools(['h2load', 'wrk']);
  await withSetting(async (setting) => {
    const database = await prepareDatabase(setting.postgres);
    const samples: Samples = new Map();
    const startsMs: number[] = [];
    await startToReadyMs(setting);
    for (let round = 0; round < rounds; round++) {
      startsMs.push(await startToReadyMs(setting));
    }
    const databases = { ...database, byHand: await prepareByHand(database) };
    for (const protocol of ['http', 'grpc'] as const) {
      await compareServers(setting, databases, protocol, rounds, seconds, samples);
    }
    await database.orm.close();
    await publish('results.md', report(samples, startsMs, rounds, seconds));
    await publish('results.svg', chart(samples));
  });
}

/**
 * Loads the servers of a protocol in turn, with 64 requests in flight and with one. For HTTP it also measures
 * pgbench in each round, and afterwards the cost of idempotency keys.
 */
async function compareServers(
  setting: Setting,
  database: Databases,
  protocol: 'http' | 'grpc',
  rounds: number,
  seconds: number,
  samples: Samples,
): Promise<void> {
  const { folder } = setting;
  const compared = contenders.filter((contender) => contender.protocol === protocol);
  const servers = await Promise.all(
    compared.map(async ({ name, start }) => ({ name, running: await start(database) })),
  );
  // Each measurement starts at the same distance from the database's next checkpoint.
  const checkpoint = () => database.orm.em.execute('checkpoint');
  const sample = async (key: string, { running }: Server, load: (target: Target) => Promise<Measurement>) => {
    const target = { port: running.port, apiKey: database.apiKey, seconds };
    await load({ ...target, seconds: wakeUpSeconds });
    await checkpoint();
    const { result, cpuMicros, ownMicros } = await cpuMicrosOf(setting, running, () => load(target));
    const creates = result.perSecond * seconds;
    note(samples, key, {
      ...result,
      cpuMicrosEach: ownMicros / creates,
      withDatabaseCpuMicrosEach: cpuMicros / creates,
      peakMb: (await running.residentMb()).peak,
    });
  };
  for (const { running } of servers) {
    const load = { port: running.port, apiKey: database.apiKey, inFlight: 64, seconds: warmUpSeconds };
    await loadByH2load(folder, protocol, load);
  }
  for (const inFlight of [64, 1]) {
    for (let round = 0; round < rounds; round++) {
      for (const server of inTurn(servers, round)) {
        await sample(`${server.name} @${inFlight}`, server, (target) =>
          loadByH2load(folder, protocol, { ...target, inFlight }),
        );
      }
      if (protocol === 'grpc') continue;
      await checkpoint();
      const insert = insertByHand(database.merchantId);
      const pace = await loadByPgbench(folder, database.byHand, insert, inFlight, seconds);
      const nothing = { cpuMicrosEach: 0, withDatabaseCpuMicrosEach: 0, peakMb: 0 };
      if (pace) note(samples, `pgbench @${inFlight}`, { ...pace, ...nothing });
    }
  }
  const ours = servers.find(({ name }) => name === publicDoor);
  if (ours !== undefined) {
    for (let round = 0; round < rounds; round++) {
      for (const keys of inTurn(['no idempotency keys', 'random idempotency keys'] as const, round)) {
        await sample(`${publicDoor}, ${keys} @64`, ours, (target) =>
          loadByWrk(folder, keys, { ...target, inFlight: 64 }),
        );
      }
    }
  }
  for (const { running } of servers) await running.stop();
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

function note(samples: Samples, key: string, sample: Sample): void {
  samples.set(key, [...(samples.get(key) ?? []), sample]);
  const { perSecond, p50Ms, p99Ms } = sample;
  console.error(`${key}: ${Math.round(perSecond)}/s, p50 ${p50Ms.toFixed(2)} ms, p99 ${p99Ms.toFixed(2)} ms`);
}

function report(samples: Samples, startsMs: number[], rounds: number, seconds: number): string {
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
  const [open, fastify, pgbench] = [`${publicDoor} @64`, 'Fastify 5 + pg @64', 'pgbench @64'];
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
      `${publicDoor} @1`,
      'Fastify 5 + pg @1',
      'at least 0.9',
    ),
    ratio(
      'with / without an idempotency key on every request, creates/s',
      'perSecond',
      `${publicDoor}, random idempotency keys @64`,
      `${publicDoor}, no idempotency keys @64`,
      'at least 0.9',
    ),
  ];
  const peakMb = Math.max(...[open, grpc].map((key) => of(key, 'peakMb')));
  return `# Durable creates, side by side

\`npm run bench\` ${onThisMachine()}; the embedded PostgreSQL and the load on the same machine. The contenders and pgbench write to a schema as one would write it by hand (\`contenders/schema.sql\`: a foreign key, two checks, an index for listing), ours to our own. The servers of a protocol run side by side. Each is warmed up for ${warmUpSeconds} s, then they are loaded in turn: ${rounds} rounds of ${seconds} s, each after ${wakeUpSeconds} s that are not counted. The figures are medians, a ratio is the median of the rounds' own ratios, with the lowest and the highest. The figures are this machine's; the ratios are what to read. Ours writes a log line for every request, the others write none. "CPU" is the server's own process; the next column adds all of PostgreSQL's.

![Creates per second](results.svg)

${table(['contender', 'in flight', 'creates/s', 'p50 ms', 'p99 ms', 'CPU µs each', 'with PostgreSQL', 'peak MB'], measured)}

${table(['ratio', 'measured', 'target'], ratios)}

${table(
  ['measure', 'measured', 'target'],
  [
    [
      'resident memory at its peak, the larger of the two doors',
      `${Math.round(peakMb)} MB`,
      'at most 180 MB',
    ],
    [
      '`npm start` on an existing database until ready',
      `${Math.round(median(startsMs))} ms`,
      'at most 1500 ms',
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
