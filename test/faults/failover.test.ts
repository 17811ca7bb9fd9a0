// The database fails over. The service moves to the server that accepts writes, and creates that arrive
// meanwhile wait for it.

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { report, startLoad } from './support/load.ts';
import { type Pair, usePair } from './support/pair.ts';
import { hasPgBouncer, startPgBouncer } from './support/pgbouncer.ts';
import { endAll, type ServiceProcess, startProcess } from './support/process.ts';

const pair = usePair();

/** Asks `/readyz` ten times a second. Returns its different answers in order. */
function watchReadyz({ operationsUrl }: ServiceProcess) {
  const seen: number[] = [];
  let isStopped = false;
  const asking = (async () => {
    while (!isStopped) {
      const { status } = await fetch(`${operationsUrl}/readyz`);
      if (seen.at(-1) !== status) seen.push(status);
      await sleep(100);
    }
  })();
  return {
    stop() {
      isStopped = true;
      return asking.then(() => seen);
    },
  };
}

/** Fails over under load. No client may notice. */
async function failOverUnderLoad(cluster: Pair, signal: NodeJS.Signals): Promise<number> {
  const service = await startProcess(cluster);
  const load = await startLoad(cluster, {
    services: [service],
    apiKey: cluster.apiKey,
    callers: 16,
    shareWithoutKey: 0.5,
  });
  const readiness = watchReadyz(service);
  await load.progress(500);
  const promotedAtMs = await pair.failOver(signal);
  await load.progress(1);
  const firstAfterMs = Math.round(performance.now() - promotedAtMs);
  await load.progress(500);
  const figures = await load.finish();
  report(figures, { firstAfterMs });
  expect(Object.fromEntries(load.failures)).toEqual({});
  expect(await readiness.stop()).toEqual([200]);
  return firstAfterMs;
}

const signals = [
  ['a switchover', 'SIGINT'],
  ['a crash', 'SIGQUIT'],
] as const;

test.each(signals)('in %s, creates wait, and none is refused, lost or doubled', async (_, signal) => {
  expect(await failOverUnderLoad(pair, signal)).toBeLessThan(3_000);
});

test.skipIf(!hasPgBouncer).each(signals)(
  'the same in %s, with a PgBouncer before each server',
  async (_, signal) => {
    const { standby, primary } = pair;
    const poolers = await Promise.all(
      [standby, primary].map(({ folder, port }) =>
        startPgBouncer(folder, `host=127.0.0.1 port=${port} user=postgres`, [
          'server_login_retry = 1',
          'query_wait_timeout = 2',
        ]),
      ),
    );
    const hosts = poolers.map(({ port }) => `127.0.0.1:${port}`).join();
    await failOverUnderLoad({ ...pair, url: `postgresql://postgres@${hosts}/postgres` }, signal);
    await endAll();
    await Promise.all(poolers.map(({ stop }) => stop()));
  },
);
