import type { ChainClient } from './chain-client.ts';

/** Seconds between two blocks while somebody waits for them, and while nobody does. */
const busyIntervalSeconds = 1;
const idleIntervalSeconds = 60;
/** Beyond this, the clock was set back, and the chain goes on without it. */
const maxSkewSeconds = 5;

/**
 * Mines a block if one is due: each second while `isBusy` says so or a transaction waits, otherwise each minute.
 * Returns the newest block's number. Anvil mines nothing by itself, so that a chain whose service has died stands still
 * and does not grow. Several processes may do this for one chain.
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
