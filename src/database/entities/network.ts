import { networks } from '../../contract/chains.ts';

/**
 * The ids of the networks with those of their chains, for `join ${networkChains} on n.id = …`. The service's
 * role may not read the table `networks`, which is for people.
 */
export const networkChains = `(values ${networks.map(({ id, chainId, tokenAddress }) => `(${id}, ${chainId}, decode('${tokenAddress.slice(2)}', 'hex'))`).join(', ')}) n (id, chain_id, token)`;
