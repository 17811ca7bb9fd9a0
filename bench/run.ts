// `npm run bench`: our two doors beside what one would write by hand, all on one embedded PostgreSQL, in turn and
// repeated, so that a noisy machine does not choose the winner. Prints medians and ratios and writes results.md.
//
// Needs h2load (Debian: nghttp2-client), which loads HTTP/1.1 and HTTP/2 alike; pgbench where it is installed.

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { create, toBinary } from '@bufbuild/protobuf';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import { startEmbeddedPostgres } from '../src/database/embedded-postgres.ts';
import { createOrm, migrate } from '../src/database/orm.ts';
import { Chain } from '../src/gen/payments/v1/payment_intent_pb.ts';
import { CreatePaymentIntentRequestSchema } from '../src/gen/payments/v1/payment_intent_service_pb.ts';
import { parseIdentifier } from '../src/identifiers.ts';
import { parseKeyRing } from '../src/key-ring.ts';
import { createApiKey, createMerchant } from '../src/merchants/administration.ts';

const run = promisify(execFile);
const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
const secondsEach = Number(process.env.BENCH_SECONDS ?? 4);
const concurrencies = [64, 1] as const;

interface Contender {
  name: string;
  protocol: 'http' | 'grpc';
  /** Program and environment; it prints "ready". */
  program: string;
  env: (port: number) => Record<string, string>;
}

interface Measurement {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
}

const folder = await mkdtemp(join(os.tmpdir(), 'pi-bench-'));
await chmod(folder, 0o711);
const postgres = await startEmbeddedPostgres(join(folder, 'data'));
const { socketFolder, user, database } = postgres.location;

async function main(): Promise<void> {
  await run('h2load', ['--version']).catch(() => {
    throw new Error('h2load is not installed: apt-get install nghttp2-client');
  });
  await migrate(postgres.location);
  const pepper = `1:${randomBytes(32).toString('base64')}`;
  const orm = createOrm(postgres.location, 1);
  const wallet = `0x${'1'.repeat(40)}` as const;
  const merchantId = await createMerchant(orm.em, 'Bench', 'testnet', { base: wallet, polygon: wallet });
  const { apiKey } = await createApiKey(orm.em, parseKeyRing(pepper), merchantId, 'testnet', undefined);
  await orm.close();

  const handWritten = {
    PGHOST: socketFolder,
    PGUSER: user,
    PGDATABASE: database,
    API_KEY: apiKey,
    MERCHANT_ID: parseIdentifier('mer', merchantId) ?? '',
  };
  const ours = {
    DATABASE_URL: `postgresql://${user}@localhost/${database}?host=${encodeURIComponent(socketFolder)}`,
    API_KEY_PEPPERS: pepper,
    CLIENT_SECRET_KEYS: pepper,
    HTTP_PORT: '0',
    GRPC_PORT: '0',
    METRICS_PORT: '0',
  };
  const contenders: Contender[] = [
    {
      name: 'ours, public door',
      protocol: 'http',
      program: 'src/main.ts',
      env: (port) => ({ ...ours, HTTP_PORT: String(port) }),
    },
    {
      name: 'ours, gRPC',
      protocol: 'grpc',
      program: 'src/main.ts',
      env: (port) => ({ ...ours, GRPC_PORT: String(port) }),
    },
    {
      name: 'Fastify 5 + pg',
      protocol: 'http',
      program: 'bench/contenders/fastify.ts',
      env: (port) => ({ ...handWritten, PORT: String(port) }),
    },
    {
      name: 'grpc-js + pg',
      protocol: 'grpc',
      program: 'bench/contenders/grpc-js.ts',
      env: (port) => ({ ...handWritten, PORT: String(port) }),
    },
    {
      name: 'connect-node + flush',
      protocol: 'grpc',
      program: 'bench/contenders/connect-flush.ts',
      env: (port) => ({ ...handWritten, PORT: String(port) }),
    },
  ];

  await writeFile(
    join(folder, 'body.http'),
    '{"amount_units":12500000,"chain":"base","metadata":{"order_id":"order-1001"}}',
  );
  const message = toBinary(
    CreatePaymentIntentRequestSchema,
    create(CreatePaymentIntentRequestSchema, {
      amountUnits: 12_500_000n,
      chain: Chain.BASE,
      metadata: { order_id: 'order-1001' },
    }),
  );
  await writeFile(join(folder, 'body.grpc'), encodeEnvelope(0, message));

  const measured = new Map<string, Measurement[]>();
  const note = (name: string, concurrency: number, measurement: Measurement) => {
    const key = `${name} @${concurrency}`;
    measured.set(key, [...(measured.get(key) ?? []), measurement]);
    console.error(
      `${key}: ${Math.round(measurement.perSecond)}/s, p50 ${measurement.p50Ms} ms, p99 ${measurement.p99Ms} ms`,
    );
  };

  for (let round = 1; round <= rounds; round++) {
    for (const contender of contenders) {
      const port = await freePort();
      const child = await startContender(contender, port);
      await load(contender, port, apiKey, 64, 1);
      for (const concurrency of concurrencies) {
        note(contender.name, concurrency, await load(contender, port, apiKey, concurrency, secondsEach));
      }
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
    }
    for (const concurrency of concurrencies) {
      const result = await pgbench(handWritten.MERCHANT_ID, concurrency).catch(() => undefined);
      if (result) note('pgbench', concurrency, result);
    }
  }
  const table = report(measured);
  console.log(table);
  await writeFile('bench/results.md', table);
}

async function startContender({ program, env }: Contender, port: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, [program], {
    env: { PATH: process.env.PATH, ...env(port) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await new Promise<void>((ready, failed) => {
    child.once('exit', (code) => failed(new Error(`${program} ended with ${code}`)));
    child.stdout?.on('data', (chunk) => {
      if (String(chunk).includes('ready')) ready();
    });
  });
  return child;
}

async function load(
  { protocol }: Contender,
  port: number,
  apiKey: string,
  concurrency: number,
  seconds: number,
): Promise<Measurement> {
  const log = join(folder, 'requests.log');
  await rm(log, { force: true });
  const path =
    protocol === 'http' ? '/v1/payment_intents' : '/payments.v1.PaymentIntentService/CreatePaymentIntent';
  const { stdout } = await run('h2load', [
    ...(protocol === 'http'
      ? ['--h1', '-c', String(concurrency), '-m1']
      : ['-c', String(Math.min(8, concurrency)), '-m', String(Math.max(1, concurrency / 8))]),
    ...['-t1', '-D', String(seconds), '--log-file', log, '-d', join(folder, `body.${protocol}`)],
    ...['-H', `authorization: Bearer ${apiKey}`],
    ...[
      '-H',
      `content-type: application/${protocol === 'http' ? 'json' : 'grpc'}`,
      ...(protocol === 'grpc' ? ['-H', 'te: trailers'] : []),
    ],
    `http://127.0.0.1:${port}${path}`,
  ]);
  const succeeded = Number(/(\d+) 2xx/.exec(stdout)?.[1]);
  const refused = [...stdout.matchAll(/(\d+) [345]xx/g)].reduce((sum, [, n]) => sum + Number(n), 0);
  if (refused > 0 || succeeded === 0) throw new Error(`not every request succeeded: ${stdout}`);
  return { perSecond: succeeded / seconds, ...(await percentilesIn(log)) };
}

/** Both tools write a line a request, whose third word is how long it took in microseconds. */
async function percentilesIn(log: string): Promise<{ p50Ms: number; p99Ms: number }> {
  const durations = (await readFile(log, 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => Number(line.split(/\s/)[2]))
    .sort((a, b) => a - b);
  const percentile = (p: number) => (durations[Math.floor(durations.length * p)] ?? Number.NaN) / 1000;
  return { p50Ms: percentile(0.5), p99Ms: percentile(0.99) };
}

/** The database's own pace: one prepared insert of one row, by as many clients. */
async function pgbench(merchantId: string, clients: number): Promise<Measurement> {
  const script = join(folder, 'insert.sql');
  await writeFile(
    script,
    `insert into payment_intents values (gen_random_uuid(), '${merchantId}', 'testnet', 'requires_payment', 'base', 84532, 10, 12500000, 6, 'USDC', '0x036CbD53842c5426634e7929541eC2318f3dCF7e', '0x${'1'.repeat(40)}', 'sdk', '{"order_id":"order-1001"}', 30, '2026-01-01T00:00:00Z', '2026-01-01T00:30:00Z', 1, null, null);\n`,
  );
  const log = join(folder, `pgbench-${clients}`);
  const { stdout } = await run('pgbench', [
    ...['-n', '-M', 'prepared', '-c', String(clients), '-j1', '-T', String(secondsEach), '-f', script],
    ...['-l', '--log-prefix', log, '-h', socketFolder, '-U', user, database],
  ]);
  const [file = ''] = (await readdir(folder)).filter((name) => name.startsWith(`pgbench-${clients}.`));
  const percentiles = await percentilesIn(join(folder, file));
  await rm(join(folder, file));
  return { perSecond: Number(/tps = ([\d.]+)/.exec(stdout)?.[1]), ...percentiles };
}

function report(measured: Map<string, Measurement[]>): string {
  const median = (values: number[]) =>
    values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
  const of = (key: string): Measurement | undefined => {
    const all = measured.get(key);
    return (
      all && {
        perSecond: median(all.map((m) => m.perSecond)),
        p50Ms: median(all.map((m) => m.p50Ms)),
        p99Ms: median(all.map((m) => m.p99Ms)),
      }
    );
  };
  const lines = [...measured.keys()].map((key) => {
    const { perSecond, p50Ms, p99Ms } = of(key) as Measurement;
    return `| ${key.replace(' @', ' | ')} | ${Math.round(perSecond)} | ${p50Ms.toFixed(2)} | ${p99Ms.toFixed(2)} |`;
  });
  const ratio = (what: string, a: number | undefined, b: number | undefined, target: string) =>
    a === undefined || b === undefined ? [] : [`| ${what} | ${(a / b).toFixed(2)} | ${target} |`];
  const ratios = [
    ...ratio(
      'public door / Fastify + pg, creates/s at 64',
      of('ours, public door @64')?.perSecond,
      of('Fastify 5 + pg @64')?.perSecond,
      'at least 2.0',
    ),
    ...ratio(
      'public door / pgbench, creates/s at 64',
      of('ours, public door @64')?.perSecond,
      of('pgbench @64')?.perSecond,
      'at least 1.0',
    ),
    ...ratio(
      'gRPC / grpc-js + pg, creates/s at 64',
      of('ours, gRPC @64')?.perSecond,
      of('grpc-js + pg @64')?.perSecond,
      'at least 1.5',
    ),
    ...ratio(
      'gRPC / connect-node + flush, creates/s at 64',
      of('ours, gRPC @64')?.perSecond,
      of('connect-node + flush @64')?.perSecond,
      '',
    ),
    ...ratio(
      'public door / Fastify + pg, p99 at 64',
      of('ours, public door @64')?.p99Ms,
      of('Fastify 5 + pg @64')?.p99Ms,
      'at most 1.0',
    ),
    ...ratio(
      'gRPC / grpc-js + pg, p99 at 64',
      of('ours, gRPC @64')?.p99Ms,
      of('grpc-js + pg @64')?.p99Ms,
      'at most 1.0',
    ),
    ...ratio(
      'public door / Fastify + pg, p50 at 1',
      of('ours, public door @1')?.p50Ms,
      of('Fastify 5 + pg @1')?.p50Ms,
      'at most 1.3',
    ),
  ];
  return `# Durable creates, side by side

\`npm run bench\` on ${new Date().toISOString().slice(0, 10)}: ${os.cpus().length} cores (${os.cpus()[0]?.model.trim()}), Node.js ${process.version}, the embedded PostgreSQL and the load on the same machine; medians of ${rounds} rounds of ${secondsEach} s each, in turn. The figures are this machine's; the ratios are what to read. Ours writes its log line for every request, the others write none.

| contender | in flight | creates/s | p50 ms | p99 ms |
| --- | --- | --- | --- | --- |
${lines.join('\n')}

| ratio | measured | target |
| --- | --- | --- |
${ratios.join('\n')}
`;
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

try {
  await main();
} finally {
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}
