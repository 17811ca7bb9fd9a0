import type { EntityManager } from '@mikro-orm/postgresql';
import { checksum } from 'ox/Address';
import type { ModeName } from '../contract/words.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import type { Identity } from '../requests/request-context.ts';
import { orUnavailable } from '../requests/unavailable.ts';

/** Returns what a method needs of a merchant in a mode, by its UUID, besides the caller's id; undefined if there is none. */
export type FindMerchant = (id: string, mode: ModeName) => Promise<Omit<Identity, 'keyTypeId'> | undefined>;

export function createFindMerchant(em: EntityManager): FindMerchant {
  const { run } = createPreparedStatements(em);
  return async (id, mode) => {
    const { rows } = await orUnavailable(() => run(find, [id, mode]));
    if (rows.length === 0) return undefined;
    const wallets = rows.filter(({ chain }) => chain !== null);
    return {
      merchantId: id,
      merchantTypeId: formatIdentifier('mer', id),
      mode,
      payoutWallets: Object.fromEntries(wallets.map(({ chain, address }) => [chain, checksum(address)])),
    };
  };
}

const find = preparedStatement(
  'find_merchant_with_wallets',
  `select w.chain, w.address from merchants m
     left join payout_wallets w on w.merchant_id = m.id and w.mode = $2
    where m.id = $1`,
);
