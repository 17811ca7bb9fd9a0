// Generates load with Debian's tools: h2load (package nghttp2-client) for HTTP/1.1 and HTTP/2, wrk if the
// requests have to differ, pgbench for the database alone.

import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { create, toBinary } from '@bufbuild/protobuf';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import type { SocketLocation } from '../src/config/database-location.ts';
import { Chain } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { CreatePaymentIntentRequestSchema } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';

const run = promisify(execFile);

export interface Measurement {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
}

export interface Load {
  port: number;
  apiKey: string;
  inFlight: number;
  seconds: number;
  /** JSON that replaces the usual create. */
  body?: string;
  /** The first digit of every answer's status; 2 by default. */
  status?: '2' | '4' | '5';
}

const json = '{"amount_units":12500000,"chain":"base","metadata":{"order_id":"order-1001"}}';

/** Throws if a tool that the benchmark needs is missing. */
export async function requireTools(tools: readonly ('h2load' | 'wrk')[]): Promise<void> {
  for (const tool of tools) {
    await run(tool, ['--version']).catch((error: { code?: unknown }) => {
      // wrk prints its version but exits with a failure.
      if (error.code !== 'ENOENT') return;
      throw new Error(`${tool} is not installed: apt-get install nghttp2-client wrk`);
    });
  }
}

/** Creates over JSON (HTTP/1.1, a connection per request in flight) or gRPC (HTTP/2, up to 8 connections). */
export async function loadByH2load(
  folder: string,
  protocol: 'http' | 'grpc',
  { port, apiKey, inFlight, seconds, body: text = json, status = '2' }: Load,
): Promise<Measurement> {
  const log = join(folder, 'requests.log');
  const body = join(folder, `body.${protocol}`);
  await rm(log, { force: true });
  await writeFile(body, protocol === 'http' ? text : encodeEnvelope(0, messageOf()));
  const connections = Math.min(8, inFlight);
  const { stdout } = await run('h2load', [
    ...(protocol === 'http'
      ? ['--h1', '-c', String(inFlight), '-m1', '-H', 'content-type: application/json']
      : ['-c', String(connections), '-m', String(inFlight / connections), '-H', 'te: trailers']),
    ...(protocol === 'grpc' ? ['-H', 'content-type: application/grpc'] : []),
    ...['-t1', '-D', String(seconds), '--log-file', log, '-d', body],
    ...['-H', `authorization: Bearer ${apiKey}`],
    protocol === 'http'
      ? `http://127.0.0.1:${port}/v1/payment_intents`
      : `http://127.0.0.1:${port}/payments.v1.PaymentIntentService/CreatePaymentIntent`,
  ]);
  const answers = [...stdout.matchAll(/(\d+) ([2345])xx/g)].map(([, n, first]) => ({ n: Number(n), first }));
  const expected = answers.find(({ first }) => first === status)?.n ?? 0;
  const others = answers.filter(({ first }) => first !== status).reduce((sum, { n }) => sum + n, 0);
  if (expected === 0 || others > expected / 100)
    throw new Error(`not every answer was ${status}xx: ${stdout}`);
  if (status === '2' && others > 0) throw new Error(`not every request succeeded: ${stdout}`);
  return { perSecond: expected / seconds, ...(await percentilesIn(log)) };
}

/** Creates over JSON, either each with its own idempotency key or all without one. */
export function loadByWrk(
  folder: string,
  keys: 'random idempotency keys' | 'no idempotency keys',
  load: Load,
): Promise<Measurement> {
  // Both variants generate a key and build every request anew, so that the client does the same work.
  const send = keys === 'no idempotency keys' ? '' : 'wrk.headers["Idempotency-Key"] = key';
  return loadByScript(
    folder,
    `wrk.method = "POST"
wrk.body = '${json}'
wrk.headers["Content-Type"] = "application/json"
function request()
  local key = string.format("%08x-%08x-%08x", math.random(0, 2^31), math.random(0, 2^31), math.random(0, 2^31))
  ${send}
  return wrk.format()
end
`,
    load,
  );
}

/** Gets paths, each chosen at random. */
export async function loadRandomPaths(
  folder: string,
  paths: readonly string[],
  load: Load,
): Promise<Measurement> {
  return loadByScript(
    folder,
    `${await luaPaths(folder, paths)}
function request() return wrk.format("GET", paths[math.random(#paths)]) end
`,
    load,
  );
}

/** Posts \`{}\` to each path once. Throws if there were too few of them for the time. */
export async function loadEachPath(
  folder: string,
  paths: readonly string[],
  load: Load,
): Promise<Measurement> {
  return loadByScript(
    folder,
    `${await luaPaths(folder, paths)}
wrk.headers["Content-Type"] = "application/json"
local used = 0
function request()
  used = used + 1
  return wrk.format("POST", paths[used] or "/there-were-too-few-paths", nil, "{}")
end
`,
    load,
  );
}

/** An open checkout, as its page requests it. */
export interface OpenCheckout {
  clientSecret: string;
  etag: string;
}

/** Asks for checkouts as their pages do: each on a connection of its own, `everyMs` apart on average. */
export async function loadOpenCheckouts(
  folder: string,
  checkouts: readonly OpenCheckout[],
  { everyMs, ...load }: Omit<Load, 'apiKey' | 'inFlight'> & { everyMs: number },
): Promise<Measurement> {
  const lines = checkouts.map(({ clientSecret, etag }) => `${clientSecret} ${etag}`);
  return loadByScript(
    folder,
    `${await luaPaths(folder, lines)}
local requests, used = {}, 0
function request()
  used = used % #paths + 1
  if requests[used] == nil then
    local secret, etag = paths[used]:match("(%S+) (%S+)")
    local headers = { Authorization = "Bearer " .. secret, ["If-None-Match"] = etag }
    requests[used] = wrk.format("GET", "/v1/checkout", headers)
  end
  return requests[used]
end
function delay() return math.random(0, ${2 * everyMs}) end
`,
    { ...load, apiKey: '', inFlight: checkouts.length },
  );
}

/** Lua that reads the paths from a file: they are too many for a script. */
async function luaPaths(folder: string, paths: readonly string[]): Promise<string> {
  const file = join(folder, `paths-${randomUUID()}.txt`);
  await writeFile(file, paths.join('\n'));
  return `local paths = {}
for line in io.lines("${file}") do paths[#paths + 1] = line end`;
}

/** Runs wrk with a script whose \`request\` builds each request. */
async function loadByScript(
  folder: string,
  lua: string,
  { port, apiKey, inFlight, seconds }: Load,
): Promise<Measurement> {
  const script = join(folder, `load-${randomUUID()}.lua`);
  const seed = Math.floor(Math.random() * 2 ** 31);
  await writeFile(
    script,
    `wrk.headers["Authorization"] = "Bearer ${apiKey}"
function init() math.randomseed(${seed}) end
${lua}`,
  );
  const { stdout } = await run('wrk', [
    // A slow answer must count. By default, wrk counts it as an error after two seconds.
    ...['-t1', '-c', String(inFlight), '-d', `${seconds}s`, '--timeout', '10s', '--latency', '-s', script],
    `http://127.0.0.1:${port}/v1/payment_intents`,
  ]);
  if (/Non-2xx|Socket errors/.test(stdout)) throw new Error(`not every request succeeded: ${stdout}`);
  const percentile = (p: number) => {
    const [, value, unit] = new RegExp(`\\b${p}%\\s+([\\d.]+)(us|ms|s)`).exec(stdout) ?? [];
    return Number(value) * { us: 0.001, ms: 1, s: 1000 }[unit as 'us' | 'ms' | 's'];
  };
  return {
    perSecond: Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1]),
    p50Ms: percentile(50),
    p99Ms: percentile(99),
  };
}

/** Runs the statements, prepared, with `clients` clients; undefined if pgbench is not installed. */
export async function loadByPgbench(
  folder: string,
  { socketFolder, user, database }: SocketLocation,
  statements: string,
  clients: number,
  seconds: number,
): Promise<Measurement | undefined> {
  const script = join(folder, 'pgbench.sql');
  await writeFile(script, `${statements};\n`);
  const log = join(folder, 'pgbench');
  const ran = await run('pgbench', [
    ...['-n', '-M', 'prepared', '-c', String(clients), '-j1', '-T', String(seconds), '-f', script],
    ...['-l', '--log-prefix', log, '-h', socketFolder, '-U', user, database],
  ]).catch((error: { code?: unknown }) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (ran === undefined) return undefined;
  const [file = ''] = (await readdir(folder)).filter((name) => /^pgbench\.\d+$/.test(name));
  const percentiles = await percentilesIn(join(folder, file));
  await rm(join(folder, file));
  return { perSecond: Number(/tps = ([\d.]+)/.exec(ran.stdout)?.[1]), ...percentiles };
}

/** h2load and pgbench write one line per request, whose third word is its duration in microseconds. */
async function percentilesIn(log: string): Promise<{ p50Ms: number; p99Ms: number }> {
  const durations = (await readFile(log, 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => Number(line.split(/\s/)[2]))
    .sort((a, b) => a - b);
  const percentile = (p: number) => (durations[Math.floor(durations.length * p)] ?? Number.NaN) / 1000;
  return { p50Ms: percentile(0.5), p99Ms: percentile(0.99) };
}

function messageOf(): Uint8Array {
  const message = create(CreatePaymentIntentRequestSchema, {
    amountUnits: 12_500_000n,
    chain: Chain.BASE,
    metadata: { order_id: 'order-1001' },
  });
  return toBinary(CreatePaymentIntentRequestSchema, message);
}
