import { createTestClient, http, publicActions, walletActions } from 'viem';

export type ChainClient = ReturnType<typeof createChainClient>;

/** Returns a client of a local anvil: reads, transactions of unlocked accounts, and anvil's own methods. */
export function createChainClient(url: string) {
  // Nothing is repeated or cached: the node is on this machine, and what it says changes with every block.
  return createTestClient({
    mode: 'anvil',
    transport: http(url, { retryCount: 0, timeout: 30_000 }),
    cacheTime: 0,
    pollingInterval: 20,
  })
    .extend(publicActions)
    .extend(walletActions);
}
