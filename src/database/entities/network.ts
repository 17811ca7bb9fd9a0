import { networks } from '../../contract/chains.ts';

/**
 * The ids of the networks with those of their chains, for `join ${networkChains} on n.id = …`. The service's
 * role may not read the table `networks`, which is for people.
 */
export const networkChains = `(values ${networks.map(({ id, chainId }) => `(${id}, ${chainId})`).join(', ')}) n (id, chain_id)`;
