import { createRequire } from 'node:module';
import type { Abi, Hex } from 'viem';

const require = createRequire(import.meta.url);

/** A compiled contract, as Hardhat writes it. */
export interface Artifact {
  abi: Abi;
  /** The code that creates the contract, without the arguments of its constructor. */
  bytecode: Hex;
  linkReferences?: Record<string, Record<string, { start: number; length: number }[]>>;
}

/** Reads an artifact from a package. */
export function readArtifact(path: string): Artifact {
  return require(path);
}

/** Returns the artifact with the addresses of its libraries filled in. */
export function linkArtifact(artifact: Artifact, libraries: Readonly<Record<string, Hex>>): Artifact {
  let { bytecode } = artifact;
  for (const references of Object.values(artifact.linkReferences ?? {})) {
    for (const [name, places] of Object.entries(references)) {
      const address = libraries[name];
      if (address === undefined) throw new Error(`no address for the library ${name}`);
      for (const { start, length } of places) {
        const at = 2 + start * 2;
        bytecode =
          `${bytecode.slice(0, at)}${address.slice(2).toLowerCase()}${bytecode.slice(at + length * 2)}` as Hex;
      }
    }
  }
  return { ...artifact, bytecode };
}
