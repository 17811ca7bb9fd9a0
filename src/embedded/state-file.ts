// The state of a chain between two runs. Anvil's own `--state-interval` writes all of it again and again, changed or
// not: with 2,000 blocks, 66 GB a day. Here it is compressed, and written only when there is something new.

import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { Hex } from 'viem';
import type { ChainClient } from './chain-client.ts';

const unzip = promisify(gunzip);

const stateFile = (folder: string) => join(folder, 'state.json.gz');

/** Newest blocks that are always kept. Blocks with transactions are always kept. */
const keptBlocks = 500;

/** What is changed here of anvil's own form. */
interface State {
  best_block_number: number;
  blocks: { header: { number: Hex }; transactions: unknown[] }[];
}

/** Several saves may run at the same time, in this process and others. */
let drafts = 0;

/** Writes the state atomically. */
export async function saveState(client: ChainClient, folder: string): Promise<void> {
  const state = await client.dumpState();
  const draft = `${stateFile(folder)}.new-${process.pid}-${++drafts}`;
  await writeFile(draft, Buffer.from(state.slice(2), 'hex'));
  await rename(draft, stateFile(folder));
}

/** Writes the saved state without most empty blocks to a temporary file; undefined if there is none. Throws DamagedState. */
export async function unpackState(folder: string) {
  const packed = await readFile(stateFile(folder)).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (packed === undefined) return undefined;
  const state = await readState(packed);
  const oldest = state.best_block_number - keptBlocks;
  state.blocks = state.blocks.filter(
    ({ header, transactions }) =>
      transactions.length > 0 || Number(header.number) === 0 || Number(header.number) > oldest,
  );
  const unpacked = await mkdtemp(join(tmpdir(), 'local-chain-'));
  const file = join(unpacked, 'state.json');
  await writeFile(file, JSON.stringify(state));
  return { file, remove: () => rm(unpacked, { recursive: true }) };
}

async function readState(packed: Buffer): Promise<State> {
  try {
    const state: State = JSON.parse(String(await unzip(packed)));
    if (!Array.isArray(state.blocks)) throw new Error('it has no blocks');
    return state;
  } catch (cause) {
    throw new DamagedState(cause);
  }
}

/** The saved state cannot be used. */
export class DamagedState extends Error {
  constructor(cause: unknown) {
    super(`the saved state is damaged: ${cause instanceof Error ? cause.message : cause}`, { cause });
    this.name = 'DamagedState';
  }
}

/** Restarts the chain. The old state is kept beside it until the next restart. */
export async function setStateAside(folder: string): Promise<void> {
  await rename(stateFile(folder), `${stateFile(folder)}.unusable`).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}
