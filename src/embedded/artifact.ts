import { createRequire } from 'node:module';
import type { Abi, Hex } from 'viem';

const require = createRequire(import.meta.url);

/** A compiled contract, as Hardhat writes it. */
export interface Artifact {
  abi: Abi;
  /** The code that creates the contract, without the arguments of its constructor. */
  bytecode: Hex;
}

/** Reads an artifact from a package. */
export function readArtifact(path: string): Artifact {
  return require(path);
}
