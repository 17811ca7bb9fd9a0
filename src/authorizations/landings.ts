// Waits for the watcher to record transfers that use authorizations. All that wait in this process share one question.

import { setTimeout as sleep } from 'node:timers/promises';
import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { hashOf } from '../settlement/ledger/values.ts';

const everyMs = 300;

export interface Landings {
  /** The hash of the recorded transaction. */
  of(authorizationId: string): Promise<string | undefined>;
  /** The same as soon as there is one; undefined once the signal aborts. */
  wait(authorizationId: string, signal: AbortSignal): Promise<string | undefined>;
}

export function createLandings(em: EntityManager): Landings {
  const { run } = createPreparedStatements(em);
  const waiting = new Map<string, Set<(hash: string | undefined) => void>>();
  let isAsking = false;

  const read = async (ids: readonly string[]): Promise<Map<string, string>> => {
    const { rows } = await run(findLandings, [ids]);
    return new Map(rows.map(({ id, transaction_hash: hash }) => [id as string, hashOf(hash)]));
  };
  const askWhileWaiting = async () => {
    if (isAsking) return;
    isAsking = true;
    while (waiting.size > 0) {
      // A question that fails is asked again: those that wait have a limit of their own.
      const landed = await read([...waiting.keys()]).catch(() => new Map<string, string>());
      for (const [id, hash] of landed) for (const resolve of waiting.get(id) ?? []) resolve(hash);
      await sleep(everyMs);
    }
    isAsking = false;
  };

  return {
    of: async (id) => (await read([id])).get(id),
    wait: (id, signal) =>
      new Promise((resolve) => {
        const own = waiting.get(id) ?? new Set();
        const end = (hash: string | undefined) => {
          signal.removeEventListener('abort', abort);
          own.delete(end);
          if (own.size === 0) waiting.delete(id);
          resolve(hash);
        };
        const abort = () => end(undefined);
        if (signal.aborted) return resolve(undefined);
        own.add(end);
        waiting.set(id, own);
        signal.addEventListener('abort', abort);
        void askWhileWaiting();
      }),
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
