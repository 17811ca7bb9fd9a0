// A local chain: finds or starts its anvil, deploys the contracts, mines blocks, and saves its state.

import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { Logger } from 'pino';
import { BaseError, type Hex, HttpRequestError, stringToHex } from 'viem';
import { StartupError } from '../config/startup-error.ts';
import { type Network, networkFor } from '../contract/chains.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName } from '../contract/words.ts';
import { startRepeater } from '../scheduling/repeater.ts';
import { answers, startAnvil } from './anvil.ts';
import { type ChainClient, createChainClient } from './chain-client.ts';
import { areContractsDeployed, createPayer, deployContracts } from './contracts.ts';
import { anvilOn, isAlive, type NodeRecord } from './node-record.ts';
import { ifMissing } from './write-once.ts';

export type LocalChain = ReturnType<typeof localChain>;

export interface RunningChain extends LocalChain {
  pid: number;
  /** Saves the state and ends anvil, unless another process still uses it. */
  stop(): Promise<void>;
}

export interface LocalChainOptions {
  /** Anvil's path. */
  program: string;
  dataDir: string;
  network: Network;
  /** True while blocks are awaited: an intent of this chain is open, or a payment unconfirmed. */
  isBusy: (chain: ChainName) => boolean | Promise<boolean>;
  logger: Logger;
}

/** The folder of a chain within the data folder. */
const chainFolder = (dataDir: string, { chain }: Network): string => resolve(dataDir, 'chains', chain);

const rpcUrlOf = ({ port }: NodeRecord) => `http://127.0.0.1:${port}`;

/** A local chain in place of a network. */
function localChain(network: Network, node: NodeRecord) {
  const rpcUrl = rpcUrlOf(node);
  const client = createChainClient(rpcUrl);
  return { network, rpcUrl, client, payer: createPayer(client, network) };
}

/** Returns the local chain that another process runs on this data folder, or undefined. Starts nothing. */
export async function findLocalChain(dataDir: string, chain: ChainName): Promise<LocalChain | undefined> {
  const network = networkFor('testnet', chain);
  const anvil = anvilOn(chainFolder(dataDir, network));
  const node = await anvil.recorded();
  const isRunning = node !== undefined && (await anvil.isRunning(node));
  return isRunning ? localChain(network, node) : undefined;
}

/** How often to check whether a block is due. */
const tickMs = 1_000;
/** The most that a crash of anvil can lose. */
const saveIntervalMs = 10_000;
/** If an empty block is older than this, in blocks, anvil is restarted without old ones, of 10 kB each. */
const maxBlocks = 2_000n;

/** Runs the chain. Throws StartupError, with the remedy, if the folder cannot be used. */
export async function runLocalChain(options: LocalChainOptions): Promise<RunningChain> {
  const { network, isBusy, logger } = options;
  const folder = chainFolder(options.dataDir, network);
  const anvil = anvilOn(folder);
  const use = join(folder, 'users', `${process.pid}-${randomUUID()}`);
  let node: NodeRecord;
  try {
    await mkdir(join(folder, 'users'), { recursive: true });
    await writeFile(use, '');
    node = await openNode(folder, options);
  } catch (cause) {
    await rm(use, { force: true }).catch(() => {});
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartupError(
      `the local chain for ${network.chain} cannot use ${folder}: ${reason}. Make that folder and the one of TMPDIR writable, set DATA_DIR to another one, or remove that folder to begin the chain anew`,
      { cause },
    );
  }
  const chain = localChain(network, node);
  const newest = await chain.client.getBlock().catch(() => undefined);
  const aheadSeconds = Number(newest?.timestamp ?? 0) - Math.round(Date.now() / 1000);
  if (aheadSeconds > maxAheadSeconds) {
    logger.warn(
      { chain: network.chain, ahead_seconds: aheadSeconds },
      `local chain: its clock was ahead, so that payments on it are late: stop the service and remove ${folder}`,
    );
  }
  let savedHead = -1n;
  let savedAtMs = Number.NEGATIVE_INFINITY;

  async function save(head: bigint): Promise<void> {
    await saveState(chain.client, folder);
    [savedHead, savedAtMs] = [head, performance.now()];
  }

  /** On the same port, because others use it. */
  async function openAgain(why: string): Promise<void> {
    logger.info({ chain: network.chain }, `local chain: ${why}`);
    node = await openNode(folder, options, node.port);
  }

  async function tick(): Promise<void> {
    const mine = () => mineIfDue(chain.client, () => isBusy(network.chain));
    const head = await mine().catch(async (error) => {
      if (await anvil.isRunning(node)) throw error;
      await openAgain('anvil has ended; restarting it');
      return mine();
    });
    if (head !== savedHead && performance.now() - savedAtMs >= saveIntervalMs) await save(head);
    if (await hasTooManyBlocks(chain.client, head)) {
      await save(head);
      // What has arrived meanwhile is not saved.
      if (await hasNews(chain.client, head)) return;
      await anvil.end(node);
      await openAgain('restarting anvil without old empty blocks');
    }
  }

  const name = `local chain ${network.chain}`;
  const mining = startRepeater({ name, work: tick, intervalMs: tickMs, maxRetryMs: 5_000, logger });

  async function stop(): Promise<void> {
    await mining.stop();
    await rm(use, { force: true });
    if ((await livingUsers(folder)) > 0) return;
    if (await anvil.isRunning(node)) {
      // A payment that was just sent is in no block, and only blocks are saved.
      await mineIfDue(chain.client, () => false, Number.NEGATIVE_INFINITY).catch(() => {});
      await saveState(chain.client, folder).catch((error) => {
        logger.warn({ err: error, chain: network.chain }, 'local chain: could not save its state');
      });
      await anvil.end(node);
    }
    await anvil.forget(node);
  }

  return {
    ...chain,
    get pid() {
      return node.pid;
    },
    stop,
  };
}

/** Finds or starts the chain's anvil and makes sure that the contracts are deployed. */
async function openNode(folder: string, options: LocalChainOptions, port?: number): Promise<NodeRecord> {
  const { network, logger } = options;
  const anvil = anvilOn(folder);
  const recorded = await anvil.recorded();
  if (recorded !== undefined) {
    if (await isUsable(recorded, folder, network)) return recorded;
    await anvil.end(recorded);
    await anvil.forget(recorded);
  }
  const node = await startNode(folder, options, port).catch(async (error) => {
    if (!(error instanceof DamagedState)) throw error;
    const what = 'local chain: could not load its state, starting a new chain';
    logger.warn({ err: error, chain: network.chain }, what);
    await setStateAside(folder);
    return startNode(folder, options, port);
  });
  const first = await anvil.record(node);
  if (first.pid !== node.pid) {
    // Another process was faster, and there must be only one.
    await anvil.end(node);
    return openNode(folder, options, port);
  }
  const { client } = localChain(network, node);
  if (await areContractsDeployed(client, network)) return node;
  if ((await client.getBlockNumber()) > 0n) {
    logger.warn({ chain: network.chain }, 'local chain: contracts are missing, starting a new chain');
    await anvil.end(node);
    await anvil.forget(node);
    await setStateAside(folder);
    return openNode(folder, options, port);
  }
  await deployContracts(client, network);
  await saveState(client, folder);
  return node;
}

/** How long a running anvil may take to answer. */
const silenceTimeoutMs = 3_000;
/** How long another process may take to deploy the contracts on a chain that it has just started. */
const deploymentTimeoutMs = 15_000;

/** True if this anvil runs, answers, and has the contracts or is about to have them. */
async function isUsable(node: NodeRecord, folder: string, network: Network): Promise<boolean> {
  if (!(await anvilOn(folder).isRunning(node))) return false;
  const client = createChainClient(rpcUrlOf(node), silenceTimeoutMs);
  if (!(await untilTrue(silenceTimeoutMs, () => answers(node.port)))) return false;
  return untilTrue(
    deploymentTimeoutMs,
    () => areContractsDeployed(client, network).catch(() => false),
    async () => (await livingUsers(folder)) > 1,
  );
}

/** Polls until it is true, the timeout is over, or `isWorthwhile` returns false. */
async function untilTrue(timeoutMs: number, isTrue: () => Promise<boolean>, isWorthwhile = async () => true) {
  for (const deadlineMs = Date.now() + timeoutMs; ; await sleep(20)) {
    if (await isTrue()) return true;
    if (Date.now() > deadlineMs || !(await isWorthwhile())) return false;
  }
}

async function startNode(folder: string, { program, network }: LocalChainOptions, port?: number) {
  const state = await unpackState(folder);
  const flags = [
    ...['--chain-id', String(network.chainId), '--no-mining', '--accounts', '3'],
    // Without history the cache stays empty; its path also identifies the folder's anvil.
    ...['--prune-history', '--slots-in-an-epoch', '1', '--cache-path', `${folder}/cache`],
    ...(state === undefined ? [] : ['--load-state', state.file]),
  ];
  const started = await startAnvil(program, flags, port)
    .catch((error) => {
      throw error.message.includes('--load-state') ? new DamagedState(error) : error;
    })
    .finally(() => state?.remove());
  return { pid: started.pid, port: started.port };
}

/** Seconds between two blocks while a payment is awaited, and otherwise. */
const busyIntervalSeconds = 1;
const idleIntervalSeconds = 60;
/** If the newest block is further ahead than this, the clock was set back: blocks are mined all the same. */
const maxSkewSeconds = 5;
/** If the newest block is further ahead than this, intents end long before their time. */
const maxAheadSeconds = 60;

/**
 * Mines a block if one is due: each second while `isBusy` or a transaction is pending, otherwise each minute.
 * Returns the newest block's number. Anvil does not mine on its own, so a chain whose service has died does
 * not grow. Several processes may do this for one chain.
 */
async function mineIfDue(
  client: ChainClient,
  isBusy: () => boolean | Promise<boolean>,
  busyInterval = busyIntervalSeconds,
): Promise<bigint> {
  const asked = [client.getTxpoolStatus(), client.getBlock(), isBusy()] as const;
  const [pool, { number, timestamp }, isAwaited] = await Promise.all(asked);
  const now = BigInt(Math.floor(Date.now() / 1000));
  const age = Number(now - timestamp);
  const interval = pool.pending > 0 || isAwaited ? busyInterval : idleIntervalSeconds;
  const isDue = age >= interval || (interval === busyInterval && age < -maxSkewSeconds);
  if (!isDue) return number;
  await client.request<{ Method: 'evm_mine'; Parameters: [{ timestamp: number }]; ReturnType: string }>({
    method: 'evm_mine',
    params: [{ timestamp: Number(age > 0 ? now : timestamp) }],
  });
  return number + 1n;
}

/** True if old empty blocks exist and no transaction is pending, which a restart would lose. */
async function hasTooManyBlocks(client: ChainClient, head: bigint): Promise<boolean> {
  if (head <= maxBlocks) return false;
  const old = await client.getBlock({ blockNumber: head - maxBlocks }).catch(() => undefined);
  return old?.transactions.length === 0 && !(await hasNews(client, head));
}

/** True if a transaction waits, or there is a block above the head. */
async function hasNews(client: ChainClient, head: bigint): Promise<boolean> {
  return (await client.getTxpoolStatus()).pending > 0 || (await client.getBlockNumber()) !== head;
}

/** The number of processes that use the chain. Ignores killed ones. */
async function livingUsers(folder: string): Promise<number> {
  let count = 0;
  // The folder may be removed, or moved, under the chain.
  const names = await readdir(join(folder, 'users')).catch(ifMissing);
  for (const name of names ?? []) {
    if (isAlive(Number.parseInt(name, 10))) count++;
    else await rm(join(folder, 'users', name), { force: true });
  }
  return count;
}

// The state of a chain between two runs. Anvil's own `--state-interval` writes all of it each time, changed
// or not: with 2,000 blocks, 66 GB a day. Here it is compressed, and written only if changed.

const unzip = promisify(gunzip);

const stateFile = (folder: string) => join(folder, 'state.json.gz');

/** Newest blocks that are kept even if empty. Blocks with transactions are always kept. */
const keptBlocks = 500;

/** The part of anvil's own form that is changed here. */
interface State {
  best_block_number: number;
  blocks: { header: { number: Hex; timestamp: Hex }; transactions: unknown[] }[];
}

/** Several saves may run at the same time, in this process and others. */
let drafts = 0;

/** Writes the state atomically. */
async function saveState(client: ChainClient, folder: string): Promise<void> {
  const state = await client.dumpState();
  const draft = `${stateFile(folder)}.new-${process.pid}-${++drafts}`;
  try {
    await writeFile(draft, Buffer.from(state.slice(2), 'hex'));
    await rename(draft, stateFile(folder));
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** Writes the saved state, if any, without most empty blocks to a temporary file. Throws DamagedState. */
async function unpackState(folder: string) {
  const packed = await readFile(stateFile(folder)).catch(ifMissing);
  if (packed === undefined) return undefined;
  const state = await readState(packed);
  const oldest = state.best_block_number - keptBlocks;
  // The state has a block 0 for each start of anvil. The chain's own is the last one before block 1.
  const timesOf = (number: number) =>
    state.blocks.flatMap(({ header }) => (Number(header.number) === number ? Number(header.timestamp) : []));
  const next = Math.min(...timesOf(1));
  const genesis = Math.max(...timesOf(0).filter((time) => time <= next));
  state.blocks = state.blocks.filter(({ header, transactions }) =>
    Number(header.number) === 0
      ? Number(header.timestamp) === genesis
      : transactions.length > 0 || Number(header.number) > oldest,
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
class DamagedState extends Error {
  constructor(cause: unknown) {
    super(`the saved state is damaged: ${cause instanceof Error ? cause.message : cause}`, { cause });
    this.name = 'DamagedState';
  }
}

/** Moves the saved state aside, so that a new chain begins. It is kept until this is called again. */
async function setStateAside(folder: string): Promise<void> {
  await rename(stateFile(folder), `${stateFile(folder)}.unusable`).catch(ifMissing);
}

interface TestPayment {
  chain: ChainName;
  wallet: WalletAddress;
  amountUnits: bigint;
  /** The public id of the intent or refund. Without it, the payer seems to know only the address. */
  id: string | undefined;
}

/** The token refused the transfer, for the reason in the message. */
export class TransferRefused extends Error {}

/**
 * Pays on the local chain that runs on this data folder. Returns the hash of a pending transaction, or
 * undefined if no such chain runs or answers. Throws TransferRefused.
 */
export async function payIntent(dataDir: string, { chain, wallet, amountUnits, id }: TestPayment) {
  const local = await findLocalChain(dataDir, chain);
  return local?.payer
    .pay({ to: wallet, amountUnits, suffix: id === undefined ? undefined : stringToHex(id) })
    .catch((cause) => {
      // It may be restarting.
      const isOfHttp = (error: unknown) => error instanceof HttpRequestError;
      if (cause instanceof BaseError && cause.walk(isOfHttp)) return undefined;
      throw new TransferRefused(reasonOf(cause), { cause });
    });
}

function reasonOf(cause: unknown): string {
  const { shortMessage, message } = cause as { shortMessage?: string; message?: string };
  return (shortMessage ?? message ?? String(cause)).split('\n')[0] ?? '';
}
