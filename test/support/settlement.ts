// A chain, a service on it, and the watcher between them, driven by the test: nothing is read without a call.

import { type Address, type Hex, stringToHex } from 'viem';
import { chains, networkFor } from '../../src/contract/chains.ts';
import type { Change } from '../../src/settlement/ledger/context.ts';
import { createLedger } from '../../src/settlement/ledger/ledger.ts';
import { Node } from '../../src/settlement/node.ts';
import type { NodeError } from '../../src/settlement/node-answers.ts';
import type { NodeChoiceTimes } from '../../src/settlement/node-choice.ts';
import { Watcher } from '../../src/settlement/watcher.ts';
import { createLogger } from '../../src/telemetry/logging.ts';
import type { TestChain } from './chain.ts';
import type { LyingNode } from './lying-node.ts';
import type { TestService } from './service.ts';

export interface TestWatcherOptions {
  /** The nodes. The first is read, the others confirm. */
  urls: readonly [string, ...string[]];
  chainId?: number;
  observer?: ConstructorParameters<typeof Watcher>[0]['observer'];
  /** How long a node may take to answer. */
  timeoutMs?: number;
  /** How long requests that a node refuses for its rate are retried. */
  patienceMs?: number;
  nodeChoice?: Partial<NodeChoiceTimes>;
  /** How much later a payment has to be denied again; or as in the service. Default: at once. */
  deniedAgainMs?: number | 'usual';
  /** How long its lease lasts. */
  leaseMs?: number;
  /** How far behind the newest block fast chains are read. Default: not at all. */
  spreadMs?: number;
  /** Unattributed transfers below this are dust. Default: everything is recorded. */
  unattributedMinUnits?: bigint;
  /** A pass that fails for this reason, or loses the lease, is repeated at once. Default: none. */
  isRepeated?: (reason: unknown) => boolean;
}

export const leaseNumber = async ({ query }: TestService): Promise<bigint> =>
  BigInt((await query<{ n: string }>('select lease_number as n from watched_chains'))[0]?.n ?? 0);

/** A watcher with a lease of its own on the service's database. */
export function createTestWatcher(
  service: TestService,
  {
    urls,
    chainId = networkFor('testnet', 'base').chainId,
    observer,
    timeoutMs = 10_000,
    patienceMs = 100,
    nodeChoice,
    deniedAgainMs = 0,
    leaseMs,
    spreadMs = 0,
    unattributedMinUnits = 0n,
    isRepeated,
  }: TestWatcherOptions,
) {
  const settings = chains.find((chain) => chain.chainId === chainId);
  if (settings === undefined) throw new Error(`there is no chain ${chainId}`);
  const faults: NodeError[] = [];
  const changes: Change[] = [];
  const log: Record<string, unknown>[] = [];
  const requests: string[] = [];
  const nodes = urls.map(
    (url) =>
      new Node({
        url,
        chainId,
        tokens: settings.tokens,
        onFault: (error) => faults.push(error),
        onRequest: (method) => requests.push(method),
        timeoutMs,
        patienceMs,
      }),
  );
  const logger = createLogger('trace', { write: (text: string) => void log.push(JSON.parse(text)) });
  const ledger = createLedger(service.database.orm.em, {
    settings,
    onChanges: (more) => changes.push(...more),
    logger,
    unattributedMinUnits,
    times: { leaseMs },
  });
  const watcher = new Watcher({
    settings,
    nodes: nodes as [(typeof nodes)[number]],
    ledger,
    logger,
    ...(observer && { observer }),
    finalizedEveryMs: 0,
    ...(deniedAgainMs !== 'usual' && { deniedAgainMs }),
    spreadMs,
    ...(nodeChoice && { nodeChoice }),
  });
  const isLost = ({ message }: Record<string, unknown>) =>
    message === 'another process watches this chain now, or none does';
  const pass = async (run: () => Promise<boolean>): Promise<boolean> => {
    for (;;) {
      const lines = log.length;
      try {
        const hasMore = await run();
        if (isRepeated === undefined || !log.slice(lines).some(isLost)) return hasMore;
      } catch (reason) {
        if (!isRepeated?.(reason)) throw reason;
      }
    }
  };
  const follow = () => pass(() => watcher.follow());
  const verify = () => pass(() => watcher.verify());
  return {
    follow,
    verify,
    /** Follows and verifies, like a process that goes on after each failure. */
    async tryToFollow(times: number): Promise<void> {
      for (let i = 0; i < times; i++) {
        await follow().catch(() => {});
        await verify().catch(() => {});
      }
    },
    release: () => watcher.release(),
    ledger,
    faults,
    /** The RPC methods that were called. */
    requests,
    changes,
    log,
    /** Follows until there is nothing more to read. Waits first for `after`, such as mining. */
    async catchUp(after?: Promise<unknown>): Promise<void> {
      await after;
      while (await follow());
    },
    /** Verifies until everything final was read twice. */
    async readAllAgain(): Promise<void> {
      while (await verify());
    },
  };
}

/** The calls that the settlement tests make as the service's merchant, over the public door. */
export function createMerchantCalls({ call }: Pick<TestService, 'call'>, apiKey?: string) {
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
  const jsonOf = async (answer: Promise<{ json: unknown }>): Promise<any> => (await answer).json;
  const options = apiKey === undefined ? {} : { apiKey };
  return {
    createIntent: (fields: object = {}) =>
      jsonOf(call('createPaymentIntent', { amount_units: 12_500_000, chain: 'base', ...fields }, options)),
    getIntent: (id: string) => jsonOf(call('getPaymentIntent', { id }, options)),
    cancelIntent: (id: string) => jsonOf(call('cancelPaymentIntent', { id }, options)),
  };
}

/** Ends the watch of a test, and forgets its chain. */
export async function endWatch(
  service: TestService,
  { watcher, node, chain }: { watcher: { release(): Promise<void> }; node?: LyingNode; chain?: TestChain },
): Promise<void> {
  await watcher.release();
  await node?.close();
  await chain?.stop();
  await forgetChain(service);
}

/** Forgets the chain and what was seen on it, so that the next test begins with another. */
export async function forgetChain(service: TestService): Promise<void> {
  for (const table of ['watched_chains', 'block_headers', 'transfers', 'payment_sums']) {
    await service.query(`delete from ${table}`);
  }
}

/** What a payer knows about an intent. */
export interface PayableIntent {
  id: string;
  expected_wallet: Address;
}

/** Mints money and sends it with the intent's id, for the next block. */
export async function sendPayment(
  { accounts: [{ address: from }], mint, transfer }: TestChain,
  { id, expected_wallet: to }: PayableIntent,
  amount: bigint | number,
  { token, suffix = idBytes(id) }: { token?: Address; suffix?: Hex } = {},
): Promise<Hex> {
  const amountUnits = BigInt(amount);
  await mint(from, amountUnits, token);
  return transfer({ from, to, amountUnits, suffix, token });
}

/** An intent's id as the checkout appends it to the call of a transfer. */
export const idBytes = (id: string): Hex => stringToHex(id);
