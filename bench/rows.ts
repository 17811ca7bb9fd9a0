// Does a create stay as fast when the table is large? Measures a full table and an empty one in turn on one
// PostgreSQL: otherwise a slower machine would look like a slower table.

import { fillPaymentIntents } from './fill.ts';
import { loadByWrk, type Measurement, requireTools } from './load.ts';
import {
  median,
  onThisMachine,
  prepareAnother,
  prepareDatabase,
  publish,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

const kinds = ['no idempotency keys', 'random idempotency keys'] as const;
type Kind = (typeof kinds)[number];
type Samples = Record<'empty' | 'full', Record<Kind, Measurement[]>>;

export async function growTable({
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
    const empty = await prepareDatabase(postgres);
    const full = await prepareAnother(empty, 'full_table');
    await fillPaymentIntents(full.orm.em, [full.merchantId], 'paid', rows);
    const sizes = await full.orm.em.execute<{ table_size: string; index_size: string }[]>(
      "select pg_size_pretty(pg_table_size('payment_intents')) as table_size, pg_size_pretty(pg_indexes_size('payment_intents')) as index_size",
    );

    const none = (): Record<Kind, Measurement[]> => ({
      'no idempotency keys': [],
      'random idempotency keys': [],
    });
    const samples: Samples = { empty: none(), full: none() };
    const databases = { empty, full };
    for (let round = 0; round < rounds; round++) {
      for (const name of round % 2 === 0 ? (['empty', 'full'] as const) : (['full', 'empty'] as const)) {
        const database = databases[name];
        if (name === 'empty') await empty.orm.em.execute('truncate payment_intents');
        const server = await startOurs(database.environment, 'HTTP_PORT');
        const target = { port: server.port, apiKey: database.apiKey, inFlight: 64, seconds };
        await loadByWrk(folder, 'no idempotency keys', { ...target, seconds: warmUpSeconds });
        for (const kind of kinds) {
          await database.orm.em.execute('checkpoint');
          const measurement = await loadByWrk(folder, kind, target);
          samples[name][kind].push(measurement);
          const { perSecond, p99Ms } = measurement;
          console.error(`${name}, ${kind}: ${Math.round(perSecond)}/s, p99 ${p99Ms.toFixed(2)} ms`);
        }
        await server.stop();
      }
    }
    await Promise.all([empty.orm.close(), full.orm.close()]);
    await publish('results-rows.md', report(samples, rows, sizes[0], rounds, seconds));
  });
}

function report(
  samples: Samples,
  rows: number,
  sizes: { table_size: string; index_size: string } | undefined,
  rounds: number,
  seconds: number,
): string {
  const figure = (name: 'empty' | 'full', kind: Kind, of: keyof Measurement) =>
    median(samples[name][kind].map((measurement) => measurement[of]));
  const ratio = (kind: Kind, of: keyof Measurement) =>
    median(samples.full[kind].map((sample, i) => sample[of] / (samples.empty[kind][i]?.[of] ?? 0))).toFixed(
      2,
    );
  const lines = kinds.flatMap((kind) =>
    (['empty', 'full'] as const).map((name) => [
      name === 'empty' ? 'empty' : rows.toLocaleString('en'),
      kind,
      Math.round(figure(name, kind, 'perSecond')),
      figure(name, kind, 'p50Ms').toFixed(2),
      figure(name, kind, 'p99Ms').toFixed(2),
    ]),
  );
  return `# Creates as the table grows

\`npm run bench -- --rows\` ${onThisMachine()}; public door, 64 in flight, ${rounds} rounds of ${seconds} s for each, in turn on one PostgreSQL with its default settings. The full table takes ${sizes?.table_size} and its indexes ${sizes?.index_size}; every second row has an idempotency key.

${table(['rows before', 'requests with', 'creates/s', 'p50 ms', 'p99 ms'], lines)}

${table(
  ['full / empty, medians of the rounds', 'creates/s (target: at least 0.9)', 'p99'],
  kinds.map((kind) => [kind, ratio(kind, 'perSecond'), ratio(kind, 'p99Ms')]),
)}
`;
}
