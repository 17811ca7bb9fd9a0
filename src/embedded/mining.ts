import type { ChainClient } from './chain-client.ts';

/** Seconds between two blocks while a payment is awaited, and otherwise. */
const busyIntervalSeconds = 1;
const idleIntervalSeconds = 60;
/** If the newest block is further ahead than this, the clock was set back: blocks are mined all the same. */
const maxSkewSeconds = 5;

/**
 * Mines a block if one is due: each second while `isBusy` or a transaction is pending, otherwise each minute. Returns
 * the newest block's number. Anvil does not mine on its own, so a chain whose service has died does not grow. Several
 * processes may do this for one chain.
 */
export async function mineIfDue(
  client: ChainClient,
  isBusy: () => boolean | Promise<boolean>,
): Promise<bigint> {
  const [pool, { number, timestamp }, isAwaited] = await Promise.all([
    client.getTxpoolStatus(),
    client.getBlock(),
    isBusy(),
  ]);
  const now = BigInt(Math.floor(Date.now() / 1000));
  const age = Number(now - timestamp);
  const interval = pool.pending > 0 || isAwaited ? busyIntervalSeconds : idleIntervalSeconds;
  const isDue = age >= interval || (interval === busyIntervalSeconds && age < -maxSkewSeconds);
  if (!isDue) return number;
  await mineAt(client, age > 0 ? now : timestamp + 1n);
  return number + 1n;
}

async function mineAt(client: ChainClient, timestamp: bigint): Promise<void> {
  await client.request<{ Method: 'evm_mine'; Parameters: [{ timestamp: number }]; ReturnType: string }>({
    method: 'evm_mine',
    params: [{ timestamp: Number(timestamp) }],
  });
}
