// Compares reads of a large table with a hand-written alternative: one intent by its id, the newest page of a
// list, and any page of the list. Both have the same index and return the same JSON.

import { formatIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { fillByHand, fillPaymentIntents, sampleIds } from './fill.ts';
import { loadRandomPaths, type Measurement, requireTools } from './load.ts';
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

const kinds = ['one intent by its id', 'list of 20, first page', 'list of 20, any page'] as const;
type Kind = (typeof kinds)[number];

const targets: Record<Kind, string> = {
  'one intent by its id': 'at least 1.5',
  'list of 20, first page': 'at least 1.2',
  'list of 20, any page': 'at least 1.2',
};

interface Sample extends Measurement {
  cpuMicrosEach: number;
}

/** A server, and its paths for each kind of read. Each request takes one of them at random. */
interface Reader {
  name: 'ours' | 'Fastify 5 + pg';
  start(): Promise<Running>;
  paths(server: Running): Promise<Record<Kind, string[]>>;
}

const route = '/v1/payment_intents';

export async function compareReads({
  rounds,
  seconds,
  rows,
}: {
  rounds: number;
  seconds: number;
  rows: number;
}): Promise<void> {
  await requireTools(['wrk']);
  await withSetting(async ({ folder, postgres }) => {
    const ours = await prepareDatabase(postgres);
    const location = await prepareByHand(ours);
    const byHand = createOrm(location, 1);
    await fillPaymentIntents(ours.orm.em, [ours.merchantId], 'paid', rows);
    await fillByHand(byHand.em, ours.merchantId, 'paid', rows);
    const ourIds = await sampleIds(ours.orm.em, rows);
    const theirIds = await sampleIds(byHand.em, rows);
    const readers: Reader[] = [
      {
        name: 'ours',
        start: () => startOurs(ours.environment, 'HTTP_PORT'),
        async paths(server) {
          const first = `${route}?page_size=20`;
          const { next_page_token } = await getJson(server, first, ours.apiKey);
          return pathsOf(ourIds, first, (id) => `${first}&page_token=${tokenBelow(next_page_token, id)}`);
        },
      },
      {
        name: 'Fastify 5 + pg',
        start: () => startContender('bench/contenders/fastify.ts', environmentByHand(ours, location)),
        async paths() {
          const first = `${route}?limit=20`;
          return pathsOf(theirIds, first, (id) => `${first}&starting_after=${formatIdentifier('pi', id)}`);
        },
      },
    ];

    const samples = new Map<string, Sample[]>();
    const shapes = new Map<Kind, string>();
    for (let round = 0; round < rounds; round++) {
      for (const { name, start, paths: pathsOn } of inTurn(readers, round)) {
        const server = await start();
        const paths = await pathsOn(server);
        const target = { port: server.port, apiKey: ours.apiKey, inFlight: 64, seconds };
        for (const kind of kinds) {
          assertSame(shapes, kind, await getJson(server, paths[kind].at(-1) ?? '', ours.apiKey));
          await loadRandomPaths(folder, paths[kind], { ...target, seconds: warmUpSeconds });
          const cpuBefore = await server.cpuSeconds();
          const measurement = await loadRandomPaths(folder, paths[kind], target);
          const { perSecond, p99Ms } = measurement;
          const cpuMicrosEach = (((await server.cpuSeconds()) - cpuBefore) * 1e6) / (perSecond * seconds);
          const key = `${name}, ${kind}`;
          samples.set(key, [...(samples.get(key) ?? []), { ...measurement, cpuMicrosEach }]);
          console.error(`${key}: ${Math.round(perSecond)}/s, p99 ${p99Ms.toFixed(2)} ms`);
        }
        await server.stop();
      }
    }
    await Promise.all([ours.orm.close(), byHand.close()]);
    await publish('results-reads.md', report(samples, rows, rounds, seconds));
  });
}

function pathsOf(
  ids: readonly string[],
  first: string,
  below: (id: string) => string,
): Record<Kind, string[]> {
  return {
    'one intent by its id': ids.map((id) => `${route}/${formatIdentifier('pi', id)}`),
    'list of 20, first page': [first],
    'list of 20, any page': ids.map(below),
  };
}

/** The token of the page below another row: a token ends with the UUID of the row above its page. */
function tokenBelow(token: unknown, uuid: string): string {
  const bytes = Buffer.from(String(token), 'base64url');
  const row = Buffer.from(uuid.replaceAll('-', ''), 'hex');
  return Buffer.concat([bytes.subarray(0, -row.length), row]).toString('base64url');
}

async function getJson({ port }: Running, path: string, apiKey: string): Promise<Record<string, unknown>> {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
    headers: { authorization: `Bearer ${apiKey}` },
  });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`${path} was answered ${answer.status}: ${text}`);
  return JSON.parse(text);
}

/** Throws if the two servers return different fields, or different numbers of rows. */
function assertSame(shapes: Map<Kind, string>, kind: Kind, answer: Record<string, unknown>): void {
  const { payment_intents: rows } = answer;
  const shape = Array.isArray(rows)
    ? `${rows.length} of ${Object.keys(rows[0] ?? {})}`
    : String(Object.keys(answer));
  const other = shapes.get(kind) ?? shape;
  shapes.set(kind, other);
  if (shape !== other) throw new Error(`${kind}: one returns ${shape}, the other ${other}`);
}

function report(samples: Map<string, Sample[]>, rows: number, rounds: number, seconds: number): string {
  const figures = (name: Reader['name'], kind: Kind, of: keyof Sample) =>
    (samples.get(`${name}, ${kind}`) ?? []).map((sample) => sample[of]);
  const ratio = (kind: Kind, of: keyof Sample) =>
    spread(ratiosOf(figures('ours', kind, of), figures('Fastify 5 + pg', kind, of)));
  const lines = kinds.flatMap((kind) =>
    (['ours', 'Fastify 5 + pg'] as const).map((name) => [
      kind,
      name,
      Math.round(median(figures(name, kind, 'perSecond'))),
      median(figures(name, kind, 'p50Ms')).toFixed(2),
      median(figures(name, kind, 'p99Ms')).toFixed(2),
      Math.round(median(figures(name, kind, 'cpuMicrosEach'))),
    ]),
  );
  return `# Reads of a large table

\`npm run bench -- --reads\` ${onThisMachine()}; public door, 64 in flight, ${rounds} rounds of ${seconds} s for each, in turn on one PostgreSQL with its default settings. Each of the two tables has ${rows.toLocaleString('en')} rows of one merchant and the same index for lists; both servers check the key and return the same JSON. Ids and pages are chosen at random among the rows. Ours writes a log line for every request, the other none. "CPU" is the server's own process, without the database.

${table(['read', 'server', 'reads/s', 'p50 ms', 'p99 ms', 'CPU µs each'], lines)}

${table(
  ['ours / Fastify + pg, medians of the rounds', 'reads/s', 'target', 'p99', 'target'],
  kinds.map((kind) => [kind, ratio(kind, 'perSecond'), targets[kind], ratio(kind, 'p99Ms'), 'at most 1.0']),
)}
`;
}
