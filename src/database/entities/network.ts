import { defineEntity, p } from '@mikro-orm/core';
import { networks } from '../../contract/chains.ts';
import { modeNames } from '../../contract/words.ts';
import { AddressType } from './column-types.ts';

/** Named after its table's prefix: `mode` alone is an aggregate function of PostgreSQL. */
export const modeType = 'payment_mode';

/**
 * The networks' ids with those of their chains, to join: `join ${networkChains} on n.id = …`. The service's role has no right
 * to read the table `networks`, which is for people.
 */
export const networkChains = `(values ${networks.map(({ id, chainId }) => `(${id}, ${chainId})`).join(', ')}) n (id, chain_id)`;

/**
 * The networks that intents refer to: a copy of `networks` in `contract/chains.ts` for queries in SQL. Rows are added
 * by migrations and never changed, because open intents refer to them.
 */
export const NetworkEntity = defineEntity({
  name: 'Network',
  tableName: 'networks',
  properties: {
    id: p.smallint().primary().autoincrement(false),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    chain: p.text(),
    chainId: p.integer(),
    tokenSymbol: p.text(),
    tokenAddress: p.type(AddressType).$type<string>(),
    decimals: p.smallint(),
    confirmationsRequired: p.smallint(),
  },
  triggers: [
    {
      name: 'networks_immutable',
      timing: 'before',
      // The migration adds one for TRUNCATE, which MikroORM does not see in a schema.
      events: ['update', 'delete'],
      forEach: 'statement',
      body: "raise exception 'networks is append-only: a change is a new row'",
    },
  ],
});
