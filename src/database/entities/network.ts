import { networks } from '../../contract/chains.ts';

/** Named after its table's prefix: `mode` alone is an aggregate function of PostgreSQL. */
export const modeType = 'payment_mode';

/**
 * The networks' ids with those of their chains, to join: `join ${networkChains} on n.id = …`. The service's role has no right
 * to read the table `networks`, which is for people.
 */
export const networkChains = `(values ${networks.map(({ id, chainId }) => `(${id}, ${chainId})`).join(', ')}) n (id, chain_id)`;
