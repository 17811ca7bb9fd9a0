import { afterEach, expect, test } from 'vitest';
import { type Door, doors } from '../support/call.ts';
import { report, startLoad } from './support/load.ts';
import { hasPgBouncer, startPgBouncer } from './support/pgbouncer.ts';
import { endAll, startProcess, useCluster } from './support/process.ts';

const cluster = useCluster();

afterEach(endAll);

/** Runs PgBouncer in front of the cluster until `use` ends. */
async function behindPgBouncer(use: (url: string, pid: number) => Promise<void>): Promise<void> {
  const { socketFolder, user, database } = cluster.location;
  const pooler = await startPgBouncer(cluster.folder, `host=${socketFolder} dbname=${database} user=${user}`);
  await use(`postgresql://${user}@127.0.0.1:${pooler.port}/postgres`, pooler.pid).finally(pooler.stop);
}

test.skipIf(!hasPgBouncer)('creates work behind PgBouncer in transaction mode', () =>
  behindPgBouncer(async (url) => {
    const service = await startProcess(cluster, { DATABASE_URL: url });
    const load = await startLoad(cluster, {
      services: [service],
      apiKey: cluster.apiKey,
      callers: 32,
      callersPerKey: 2,
    });
    await load.progress(2_000);
    const figures = await load.finish();
    expect(load.failures).toEqual(new Map());
    expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
    report(figures);
    await service.end('SIGTERM');
  }),
);

test.skipIf(!hasPgBouncer)(
  'no create fails in four starts, although sessions keep prepared statements of the previous process',
  () =>
    behindPgBouncer(async (url) => {
      for (let i = 0; i < 4; i++) {
        const service = await startProcess(cluster, { DATABASE_URL: url });
        const answers = await Promise.all(
          Array.from({ length: 64 }, (_, n) =>
            service.call('createPaymentIntent', { amount_units: 1 }, { door: doors[n % 2] as Door }),
          ),
        );
        expect(Object.keys(Object.groupBy(answers, ({ code }) => code))).toEqual(['ok']);
        expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
        await service.end('SIGTERM');
      }
    }),
);
