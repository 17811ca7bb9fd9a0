import type { EntityManager } from '@mikro-orm/postgresql';
import { chains } from '../contract/chains.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

const dayMs = 86_400_000;

/** The amount received on a chain, in USDC's smallest unit. */
export interface Received {
  mode: ModeName;
  chain: ChainName;
  units: number;
}

/**
 * Returns a function that sums today's (UTC) confirmed payments that count, by chain. It reads every transfer of the day.
 */
export function createReceivedMeasure(em: EntityManager): () => Promise<Received[]> {
  const { run } = createPreparedStatements(em);
  return async () => {
    const { rows } = await run(measure, [lowestUuid(Math.floor(Date.now() / dayMs) * dayMs)]);
    return chains.map(({ mode, chain, chainId }) => ({
      mode,
      chain,
      units: Number(rows.find(({ chain_id }) => chain_id === chainId)?.units ?? 0),
    }));
  };
}

/** An id begins with its time, so the primary key finds the transfers of the day. */
const measure = preparedStatement(
  'measure_received',
  `select chain_id, sum(amount_units) as units from transfers
    where id >= $1 and payment_intent is not null and counts and state = 'confirmed' group by chain_id`,
);
