// What do the indexes for an intent's life cost a create? They are dropped and created again in turn, under a
// running service. `--indexes` shows what each of them is for.

import { fillPaymentIntents, uuidArray } from './fill.ts';
import { loadByWrk, requireTools } from './load.ts';
import {
  cpuMicrosOf,
  inTurn,
  median,
  onThisMachine,
  prepareDatabase,
  publish,
  ratiosOf,
  spread,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

const indexes = [
  'payment_intents_open_index',
  'payment_intents_wallet_index',
  'payment_intents_partial_index',
] as const;

const states = ['with', 'without'] as const;
type State = (typeof states)[number];

interface Sample {
  perSecond: number;
  /** Of the process and of PostgreSQL. */
  cpuMicrosEach: number;
}

export async function compareCreateIndexes({
  rounds,
  seconds,
  rows,
}: {
  rounds: number;
  seconds: number;
  rows: number;
}): Promise<void> {
  await requireTools(['wrk']);
  await withSetting(async (setting) => {
    const { folder, postgres } = setting;
    const { orm, merchantId, apiKey, environment } = await prepareDatabase(postgres);
    await fillPaymentIntents(orm.em, [merchantId], 'paid', rows);
    const definitions = await orm.em.execute<{ name: string; definition: string }[]>(
      'select indexname as name, indexdef as definition from pg_indexes where indexname = any (?::text[])',
      [uuidArray(indexes)],
    );
    if (definitions.length < indexes.length) throw new Error('an index has another name now');
    // No other role runs, because it would read the whole table without these indexes.
    const server = await startOurs({ ...environment, ROLES: 'api' }, 'HTTP_PORT');
    const target = { port: server.port, apiKey, inFlight: 64 };
    const samples: Record<State, Sample[]> = { with: [], without: [] };
    for (let round = 0; round < rounds; round++) {
      for (const state of inTurn(states, round)) {
        if (state === 'without') {
          for (const index of indexes) await orm.em.execute(`drop index ${index}`);
        }
        await orm.em.execute('checkpoint');
        // After a checkpoint, every page is written in full once: the warm-up takes that cost.
        await loadByWrk(folder, 'no idempotency keys', { ...target, seconds: warmUpSeconds });
        const { result, cpuMicros } = await cpuMicrosOf(setting, server, () =>
          loadByWrk(folder, 'no idempotency keys', { ...target, seconds }),
        );
        const { perSecond } = result;
        const cpuMicrosEach = cpuMicros / (perSecond * seconds);
        samples[state].push({ perSecond, cpuMicrosEach });
        console.error(`${state}: ${Math.round(perSecond)}/s, ${Math.round(cpuMicrosEach)} us of CPU`);
        if (state === 'without') {
          for (const { definition } of definitions) await orm.em.execute(definition);
        }
      }
    }
    await server.stop();
    await orm.close();
    const figures = (state: State, of: keyof Sample) => samples[state].map((sample) => sample[of]);
    const ratio = (of: keyof Sample) => spread(ratiosOf(figures('with', of), figures('without', of)));
    await publish(
      'results-create-indexes.md',
      `# What the indexes of an intent's life cost a create

\`npm run bench -- --create-indexes\` ${onThisMachine()}; public door, 64 in flight, a process with the role \`api\` alone, ${rounds} rounds of ${seconds} s for each in turn on one PostgreSQL with its default settings. The table begins with ${rows.toLocaleString('en')} intents. "CPU" is that of the process and of PostgreSQL together; it depends less on the disk, which this machine shares, than the rate does.

${table(
  ['creates', 'creates/s', 'CPU µs each'],
  states.map((state) => [
    `${state} these indexes`,
    Math.round(median(figures(state, 'perSecond'))),
    Math.round(median(figures(state, 'cpuMicrosEach'))),
  ]),
)}

${table(
  ['with / without', 'ratio', 'target'],
  [
    ['creates/s', ratio('perSecond'), 'at least 0.9'],
    ['CPU each', ratio('cpuMicrosEach'), ''],
  ],
)}

The indexes are ${indexes.map((name) => `\`${name}\``).join(', ')}: [results-indexes.md](results-indexes.md) says what each is for.
`,
    );
  });
}
