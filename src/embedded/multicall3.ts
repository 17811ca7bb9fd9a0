import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Address, type Hex, multicall3Abi } from 'viem';
import type { Deployment } from './deploy-at.ts';

/** The same on every chain. */
export const multicall3Address: Address = '0xcA11bde05977b3631167028862bE2a173976CA11';

/** Multicall3 at its canonical address. */
export async function multicall3(): Promise<Deployment> {
  // viem ships the code and exports only the address.
  const viem = dirname(createRequire(import.meta.url).resolve('viem/package.json'));
  const constants: { multicall3Bytecode: Hex } = await import(
    pathToFileURL(join(viem, '_esm/constants/contracts.js')).href
  );
  const artifact = { abi: multicall3Abi, bytecode: constants.multicall3Bytecode };
  return { address: multicall3Address, artifact };
}
