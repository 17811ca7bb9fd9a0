// Do creates stay fast while the same process watches a chain with payments in its blocks? Compared in turn
// with blocks of the same size that pay nobody, on a chain that nobody watches.

import type { Payment } from '../test/support/chain.ts';
import { untilRead } from './following.ts';
import { loadByWrk, type Measurement } from './load.ts';
import { payEachSecond, paymentsFor, paymentsOfOthers, startPayingChain } from './paying.ts';
import { inTurn, type PreparedDatabase, type Setting, startOurs, warmUpSeconds } from './setting.ts';

export const besideKinds = ['blocks that nobody watches', 'a watcher of blocks that pay'] as const;
export type BesideKind = (typeof besideKinds)[number];

/** Payments in each block; there is one block a second. */
export const besidePayments = 20;

/** Measures creates over JSON. Each kind has its own database. The watcher's has open intents. */
export async function createBesidePayments(
  { folder }: Setting,
  databases: Record<BesideKind, PreparedDatabase>,
  { rounds, seconds }: { rounds: number; seconds: number },
): Promise<Record<BesideKind, Measurement[]>> {
  const chain = await startPayingChain();
  const watching = databases['a watcher of blocks that pay'];
  const payments = await paymentsFor(watching);
  const samples: Record<BesideKind, Measurement[]> = {
    'blocks that nobody watches': [],
    'a watcher of blocks that pay': [],
  };
  for (let round = 0; round < rounds; round++) {
    for (const kind of inTurn(besideKinds, round)) {
      const database = databases[kind];
      const isWatched = database === watching;
      const server = await startOurs(
        { ...database.environment, ...(isWatched && { RPC_URL_BASE_SEPOLIA: chain.url }) },
        'HTTP_PORT',
      );
      const target = { port: server.port, apiKey: database.apiKey, inFlight: 64 };
      await loadByWrk(folder, 'no idempotency keys', { ...target, seconds: warmUpSeconds });
      if (isWatched) await untilRead(database, chain);
      await database.orm.em.execute('checkpoint');
      const next = (): readonly Payment[] =>
        isWatched ? payments.splice(0, besidePayments) : paymentsOfOthers(besidePayments);
      const [sample] = await Promise.all([
        loadByWrk(folder, 'no idempotency keys', { ...target, seconds }),
        payEachSecond(chain, seconds, next),
      ]);
      if (isWatched) await untilRead(database, chain);
      samples[kind].push(sample);
      console.error(`${kind}: ${Math.round(sample.perSecond)} creates/s, p99 ${sample.p99Ms} ms`);
      await server.stop();
    }
  }
  await chain.stop();
  return samples;
}
