// Waits for the watcher to record transfers that use authorizations. All that wait in this process share a statement.

import { setTimeout as sleep } from 'node:timers/promises';
import type { EntityManager } from '@mikro-orm/postgresql';
import { Batcher, usualWaits } from '../database/batcher.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { hashOf } from '../settlement/ledger/values.ts';

const everyMs = 200;
/** Those that ask within it share a statement. */
const gatherMs = 100;
const maxBatchSize = 1_024;

export type Landings = ReturnType<typeof createLandings>;

export function createLandings(em: EntityManager) {
  const { run } = createPreparedStatements(em);
  const reads = new Batcher<string, string | undefined>({
    ...usualWaits,
    slots: 1,
    maxBatchSize,
    gatherMs,
    async run(ids) {
      const { rows } = await run(findLandings, [ids]);
      const hashes = new Map(rows.map(({ id, transaction_hash: hash }) => [id as string, hashOf(hash)]));
      return ids.map((id) => hashes.get(id)) as string[];
    },
  });
  return {
    /** The hash of the recorded transaction. */
    of: (id: string) => reads.add(id),
    /** The same as soon as there is one; undefined once the signal aborts. */
    async wait(id: string, signal: AbortSignal): Promise<string | undefined> {
      const ignore = () => undefined;
      for (;;) {
        // It is not on the chain yet, and who is declined meanwhile is told at once.
        await sleep(everyMs, undefined, { signal }).catch(ignore);
        if (signal.aborted) return undefined;
        // A question that fails is asked again: who waits has a limit of its own.
        const hash = await reads.add(id, signal).catch(ignore);
        if (hash !== undefined) return hash;
      }
    },
  };
}

const findLandings = preparedStatement(
  'find_landings',
  `select a.id, t.transaction_hash
     from authorizations a
     join transfers t on t.payment_intent = a.payment_intent and t.authorized_by = a.id and t.state <> 'reorged'
                    and t.amount_units = a.amount_units
    where a.id = any ($1::uuid[]) and a.status = 'landed'`,
);
