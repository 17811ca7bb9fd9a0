import { createTestClient, http, publicActions, walletActions } from 'viem';

export type ChainClient = ReturnType<typeof createChainClient>;

/** A client of a local anvil: reads, unlocked accounts, anvil's methods. Three tries, `timeoutMs` each. */
export function createChainClient(url: string, timeoutMs = 30_000) {
  // Nothing is cached: answers change with every block. Calls are repeated because a kept-alive connection
  // may be to an anvil that was restarted on the same port.
  return createTestClient({
    mode: 'anvil',
    transport: http(url, { retryCount: 2, retryDelay: 50, timeout: timeoutMs }),
    cacheTime: 0,
    pollingInterval: 20,
  })
    .extend(publicActions)
    .extend(walletActions);
}
