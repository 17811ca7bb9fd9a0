// The memory and disk that the two local chains take, once a minute, while both have a block a second and
// many payments.

import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import os from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stringToHex } from 'viem';
import { type ChainName, chainNames } from '../src/contract/words.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import type { RunningChain } from '../src/embedded/local-chain.ts';
import { startLocalChains } from '../src/embedded/run-local-chains.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { onThisMachine, publish, residentMbOf, table } from './setting.ts';

/** Seconds between two payments on a chain: the 1,000 payments of a week come within two hours. */
const paymentEverySeconds = 6;
const paymentsOfAWeek = 1_000;
/** How many blocks, most of them empty, anvil has after a restart without the older ones. */
const blocksKept = 500;
/** Payments that fail because anvil is just restarting. */
const maxFailures = 20;

const targets = { memoryMb: 300, diskMb: 500 };

interface ChainSample {
  residentMb: number;
  peakMb: number;
  /** Its newest block. */
  head: number;
  /** How many times anvil was restarted without its old empty blocks. */
  turn: number;
  /** Blocks since that restart, and the ones kept by it. */
  blocks: number;
  payments: number;
}

/** What both chains took at the end of a minute. */
interface Sample {
  minute: number;
  chains: Record<ChainName, ChainSample>;
  diskMb: number;
}

export async function measureLocalChains({ minutes }: { minutes: number }): Promise<void> {
  const dataDir = await mkdtemp(join(os.tmpdir(), 'pi-bench-chains-'));
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
  const started = await startLocalChains({
    dataDir,
    isBusy: () => true,
    chains: chainNames,
    logger: createLogger('warn', process.stderr),
  });
  if ('missing' in started) throw new Error(started.missing);
  try {
    const chains = chainNames.flatMap((name) => started.chains[name] ?? []).map(followed);
    const samples: Sample[] = [];
    const beganAtMs = performance.now();
    for (let next = 1; samples.length < minutes; next++) {
      await sleep(beganAtMs + next * paymentEverySeconds * 1_000 - performance.now(), undefined, {
        signal: interrupted.signal,
      });
      for (const chain of chains) await chain.pay();
      if (performance.now() - beganAtMs < (samples.length + 1) * 60_000) continue;
      const entries = await Promise.all(chains.map(async (chain) => [chain.name, await chain.sample()]));
      const sample = {
        minute: samples.length + 1,
        chains: Object.fromEntries(entries),
        diskMb: await diskMbOf(dataDir),
      };
      samples.push(sample);
      console.error(JSON.stringify(sample));
    }
    await publish('results-local-chains.md', report(samples));
  } finally {
    await started.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}

/** Pays on the chain, and keeps count. */
function followed(chain: RunningChain) {
  let { pid } = chain;
  let [turn, turnedAt, payments, failures] = [0, 0, 0, 0];
  const name = chain.network.chain;
  return {
    name,
    async pay(): Promise<void> {
      if (pid !== chain.pid) {
        pid = chain.pid;
        turn++;
        turnedAt = Number(await chain.client.getBlockNumber()) - blocksKept;
      }
      try {
        await chain.payer.pay({
          to: `0x${randomBytes(20).toString('hex')}`,
          amountUnits: 12_500_000n,
          suffix: stringToHex(formatIdentifier('pi', newUuid())),
        });
        payments++;
      } catch (error) {
        if (++failures > maxFailures) throw error;
        console.error(`a payment on ${name} has failed: ${error}`);
      }
    },
    async sample(): Promise<ChainSample> {
      const { now, peak } = await residentMbOf(chain.pid);
      const head = Number(await chain.client.getBlockNumber());
      return { residentMb: now, peakMb: peak, head, turn, blocks: head - turnedAt, payments };
    },
  };
}

/** How much disk the files of a folder take, in MB (10^6 bytes). */
async function diskMbOf(folder: string): Promise<number> {
  let blocks = 0;
  for (const entry of await readdir(folder, { recursive: true })) {
    // A temporary file may have been renamed meanwhile.
    blocks += (await stat(join(folder, entry)).catch(() => undefined))?.blocks ?? 0;
  }
  return (blocks * 512) / 1e6;
}

const sumOf = (sample: Sample, of: keyof ChainSample) =>
  chainNames.reduce((sum, name) => sum + sample.chains[name][of], 0);
const memoryOf = (sample: Sample) => sumOf(sample, 'residentMb');

/**
 * What a payment adds permanently. Empty blocks come and go, so each sample is compared with that of the
 * previous turn with as many blocks. Undefined if the run was too short for a second turn.
 */
function growthPerPayment(samples: readonly Sample[], of: (sample: Sample) => number): number | undefined {
  const turnOf = (sample: Sample) => Math.min(...chainNames.map((name) => sample.chains[name].turn));
  let [grown, paid] = [0, 0];
  for (const sample of samples) {
    const distance = (other: Sample) => Math.abs(sumOf(other, 'blocks') - sumOf(sample, 'blocks'));
    const [nearest] = samples
      .filter((other) => turnOf(other) === turnOf(sample) - 1)
      .toSorted((one, other) => distance(one) - distance(other));
    if (nearest === undefined) continue;
    grown += of(sample) - of(nearest);
    paid += sumOf(sample, 'payments') - sumOf(nearest, 'payments');
  }
  return paid === 0 ? undefined : grown / paid;
}

function report(samples: readonly Sample[]): string {
  const last = samples.at(-1) as Sample;
  const afterAWeek = (of: (sample: Sample) => number): string => {
    const most = samples.toSorted((a, b) => of(b) - of(a))[0] as Sample;
    const growth = growthPerPayment(samples, of);
    if (growth === undefined) return 'not known: the run was too short';
    const missing = paymentsOfAWeek * chainNames.length - sumOf(most, 'payments');
    return `**${Math.round(of(most) + Math.max(0, growth) * missing)} MB**`;
  };
  const most = (of: (sample: Sample) => number) => Math.max(...samples.map(of)).toFixed(1);
  const perPayment = (of: (sample: Sample) => number) => {
    const growth = growthPerPayment(samples, of);
    return growth === undefined ? '' : `${(growth * 1000).toFixed(1)} kB`;
  };
  const row = (name: string, of: (sample: Sample) => number, target: number) => [
    name,
    most(of),
    perPayment(of),
    afterAWeek(of),
    `under ${target} MB`,
  ];
  return `# The chains of this machine

\`npm run bench -- --local-chains --minutes ${samples.length}\` ${onThisMachine()}; both chains together, a block a second on each as while an intent is open, and a payment every ${paymentEverySeconds} s on each: ${sumOf(last, 'payments').toLocaleString('en')} payments in all.

${table(
  ['both chains', 'most, MB', 'a payment adds', 'after a week', 'target'],
  [
    row('resident memory', memoryOf, targets.memoryMb),
    row('data folder', ({ diskMb }) => diskMb, targets.diskMb),
  ],
)}

Anvil is started again without its empty blocks when it has 2,000 of them, which takes about half an hour: they come and go. Blocks with payments stay. A week is what was most, and what the rest of ${paymentsOfAWeek.toLocaleString('en')} payments on each chain adds: one every ten minutes. What a payment adds comes from samples with as many blocks, before and after such a start; it includes what reading the state leaves behind once. At its peak, while the state is read or written, one anvil had ${Math.max(...samples.flatMap(({ chains }) => chainNames.map((name) => chains[name].peakMb))).toFixed(0)} MB.

${table(
  [
    'minute',
    ...chainNames.flatMap((name) => [`${name}: MB`, 'blocks', 'payments']),
    'memory, MB',
    'data folder, MB',
  ],
  samples.map((sample) => [
    sample.minute,
    ...chainNames.flatMap((name) => {
      const { residentMb, blocks, payments } = sample.chains[name];
      return [residentMb.toFixed(1), blocks, payments];
    }),
    memoryOf(sample).toFixed(1),
    sample.diskMb.toFixed(1),
  ]),
)}
`;
}
