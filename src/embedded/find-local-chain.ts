import { networkFor } from '../contract/chains.ts';
import type { ChainName } from '../contract/words.ts';
import { chainFolder, type LocalChain, localChain } from './local-chain.ts';
import { isNodeRunning, readRecord } from './node-record.ts';

/** Returns the local chain that another process runs on this data folder, or undefined. Starts nothing. */
export async function findLocalChain(dataDir: string, chain: ChainName): Promise<LocalChain | undefined> {
  const network = networkFor('testnet', chain);
  const folder = chainFolder(dataDir, network);
  const node = await readRecord(folder);
  return node !== undefined && (await isNodeRunning(node.pid, folder))
    ? localChain(network, node)
    : undefined;
}
