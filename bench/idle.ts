// What a chain without payments costs: requests to its node, and their bytes.

import { setTimeout as sleep } from 'node:timers/promises';
import { chains, networkFor } from '../src/contract/chains.ts';
import { type ChainName, chainNames } from '../src/contract/words.ts';
import type { TestChain } from '../test/support/chain.ts';
import { type LyingNode, startLyingNode } from '../test/support/lying-node.ts';
import { startWatcher, untilProgress, untilRead } from './following.ts';
import { pay, paymentsOfOthers, startPayingChain } from './paying.ts';
import type { PreparedDatabase } from './setting.ts';

/** Transfers in the block that shows what other people's transfers cost. */
const othersInBlock = 100;

/** Calls of one method, with the bytes of their bodies. */
interface Calls {
  calls: number;
  requestBytes: number;
  answerBytes: number;
}

export interface Idle {
  seconds: number;
  byMethod: Record<ChainName, Record<string, Calls>>;
  /** What a transfer between others adds, in bytes. */
  bytesOfOthers: number;
}

/** Counts the requests for chains whose blocks are empty. */
export async function countIdle(database: PreparedDatabase, seconds: number): Promise<Idle> {
  const names = { base: 'RPC_URL_BASE_SEPOLIA', polygon: 'RPC_URL_POLYGON_AMOY' } as const;
  const watched = await Promise.all(
    chainNames.map(async (name) => {
      const network = networkFor('testnet', name);
      const chain = await startPayingChain({ network });
      return { name, chain, node: await startLyingNode(chain.url) };
    }),
  );
  const urls = Object.fromEntries(watched.map(({ name, node }) => [names[name], node.url]));
  const watcher = await startWatcher(database, urls);
  const mining: NodeJS.Timeout[] = [];
  for (const { chain } of watched) {
    const { blockTimeMs } = chains.find(({ chainId }) => chainId === chain.network.chainId) ?? {};
    // anvil counts in whole seconds.
    mining.push(setInterval(() => void chain.mine(), blockTimeMs));
    const head = Number(await chain.client.getBlockNumber());
    await untilProgress(database, chain, ({ block }) => block > head);
  }
  for (const { node } of watched) node.requests.length = 0;
  await sleep(seconds * 1000);
  for (const each of mining) clearInterval(each);
  const byMethod = Object.fromEntries(
    watched.map(({ name, node }) => [name, sumByMethod(node)]),
  ) as Idle['byMethod'];
  const [first] = watched;
  const bytesOfOthers = first === undefined ? Number.NaN : await bytesOf(database, first.chain, first.node);
  await watcher.stop();
  for (const { chain, node } of watched) {
    await node.close();
    await chain.stop();
  }
  return { seconds, byMethod, bytesOfOthers };
}

function sumByMethod({ requests }: LyingNode): Record<string, Calls> {
  const sums: Record<string, Calls> = {};
  for (const { method, requestBytes, responseBytes } of requests) {
    const {
      calls,
      requestBytes: asked,
      answerBytes,
    } = sums[method] ?? {
      calls: 0,
      requestBytes: 0,
      answerBytes: 0,
    };
    sums[method] = {
      calls: calls + 1,
      requestBytes: asked + requestBytes,
      answerBytes: answerBytes + responseBytes,
    };
  }
  return sums;
}

/** What a transfer that concerns nobody adds to the answers about its block. */
async function bytesOf(database: PreparedDatabase, chain: TestChain, node: LyingNode): Promise<number> {
  const largest = async (count: number) => {
    await pay(chain, paymentsOfOthers(count));
    node.requests.length = 0;
    await chain.mine();
    await untilRead(database, chain);
    const most = (method: string) =>
      Math.max(...node.requests.filter((one) => one.method === method).map((one) => one.responseBytes));
    return most('eth_getBlockByNumber') + most('eth_getLogs');
  };
  const few = await largest(1);
  return ((await largest(1 + othersInBlock)) - few) / othersInBlock;
}
