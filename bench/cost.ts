// Server processor time per answer, compared with a bare node:http server that echoes JSON. A refusal has to
// cost little, because it protects the service from the load that it refuses.

import { loadByH2load, requireTools } from './load.ts';
import {
  median,
  type PreparedDatabase,
  prepareDatabase,
  type Running,
  ratiosOf,
  type Setting,
  startContender,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

interface Kind {
  answer: string;
  /** The first digit of every answer's status. */
  status: '2' | '4' | '5';
  body?: string;
  /** Environment of our service; without it, the bare server runs. */
  environment?: Record<string, string>;
  changeKey?: (apiKey: string) => string;
  /** Blocks the writing of creates during the measurement. */
  isBlocked?: boolean;
}

const costKinds = [
  { answer: 'bare node:http, JSON parsed and echoed', status: '2' },
  { answer: '201, a create', status: '2', environment: {} },
  { answer: '429, rate limited', status: '4', environment: { RATE_LIMIT: '1' } },
  {
    answer: '401, unknown key',
    status: '4',
    environment: {},
    changeKey: withOtherCheck,
  },
  {
    answer: '400, invalid body',
    status: '4',
    environment: {},
    body: '{"amount_units":0}',
  },
  {
    answer: '503, queue full',
    status: '5',
    environment: { QUEUE_SIZE: '1' },
    isBlocked: true,
  },
] as const satisfies Kind[];

/** `--cost`: measures every kind of answer in turn, at 64 in flight. */
export async function compareCosts({ rounds, seconds }: { rounds: number; seconds: number }): Promise<void> {
  await requireTools(['h2load']);
  await withSetting(async (setting) => {
    const database = await prepareDatabase(setting.postgres);
    const costs: Costs = new Map();
    for (let round = 0; round < rounds; round++) await measureCosts(setting, database, seconds, costs);
    await database.orm.close();
    console.log(costTable(costs));
  });
}

/** Microseconds by kind of answer, one figure per round. */
type Costs = Map<string, number[]>;

/** Measures every kind of answer once, and adds the figures. */
async function measureCosts(
  { folder }: Setting,
  database: PreparedDatabase,
  seconds: number,
  costs: Costs,
): Promise<void> {
  for (const kind of costKinds as readonly Kind[]) {
    const { answer, status, environment, body, changeKey, isBlocked } = kind;
    const server = environment
      ? await startOurs({ ...database.environment, ...environment }, 'HTTP_PORT')
      : await startContender('bench/contenders/bare.ts', {});
    const apiKey = changeKey ? changeKey(database.apiKey) : database.apiKey;
    const load = { port: server.port, apiKey, inFlight: 64, ...(body && { body }), status };
    const measure = async () => {
      await loadByH2load(folder, 'http', { ...load, seconds: warmUpSeconds });
      costs.set(answer, [
        ...(costs.get(answer) ?? []),
        await cpuMicrosEach(server, folder, { ...load, seconds }),
      ]);
    };
    if (isBlocked) {
      await database.orm.em.fork().transactional(async (em) => {
        await em.execute('lock table payment_intents in exclusive mode');
        await measure();
      });
    } else {
      await measure();
    }
    await server.stop();
    console.error(`${answer}: ${Math.round(costs.get(answer)?.at(-1) ?? 0)} µs`);
  }
}

async function cpuMicrosEach(
  server: Running,
  folder: string,
  load: Parameters<typeof loadByH2load>[2],
): Promise<number> {
  const before = await server.cpuSeconds();
  const { perSecond } = await loadByH2load(folder, 'http', load);
  return (((await server.cpuSeconds()) - before) * 1e6) / (perSecond * load.seconds);
}

/** The medians, each with its ratio to the bare server's figure of the same round. */
function costTable(costs: Costs): string {
  const bare = costs.get(costKinds[0].answer) ?? [];
  const rows = (costKinds as readonly Kind[]).map(({ answer }) => {
    const micros = costs.get(answer) ?? [];
    return [answer, Math.round(median(micros)), `**${median(ratiosOf(micros, bare)).toFixed(2)}**`];
  });
  return table(['answer, 64 in flight', 'CPU µs', 'of the bare server'], rows);
}

/** The same key with a wrong check character, like an invented key. */
function withOtherCheck(apiKey: string): string {
  return apiKey.slice(0, -1) + (apiKey.endsWith('a') ? 'b' : 'a');
}
