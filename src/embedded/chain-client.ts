import { createTestClient, http, publicActions, walletActions } from 'viem';

export type ChainClient = ReturnType<typeof createChainClient>;

/** Returns a client of a local anvil: reads, unlocked accounts, anvil's own methods. A call has `timeoutMs`, three times. */
export function createChainClient(url: string, timeoutMs = 30_000) {
  // Nothing is cached: what the node says changes with every block. A call is repeated because a connection that is
  // kept open may be to an anvil that was started again on the same port.
  return createTestClient({
    mode: 'anvil',
    transport: http(url, { retryCount: 2, retryDelay: 50, timeout: timeoutMs }),
    cacheTime: 0,
    pollingInterval: 20,
  })
    .extend(publicActions)
    .extend(walletActions);
}
