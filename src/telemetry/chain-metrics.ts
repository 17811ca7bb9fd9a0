// The metrics of watched chains, which only the process exports that watches them.

import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** In seconds, up to the default statement timeout. Most creates end in the first five buckets. */
export const durationBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** In seconds: up to the longest validity of a signature. */
const settledBuckets = [1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300];

export interface ChainMetrics {
  /** Records the reader's newest and newest final block, and the last block read. */
  head(seen: { head: { number: number; time: Date }; finalized: number; cursor: number }): void;
  /** Records a committed block. `lagMs`: the time since the first answer with its header. */
  block(block: { transfers: number; lagMs: number }): void;
  /** Counts unattributed transfers that were too small to be recorded. */
  dust(transfers: number): void;
  /** Counts a reorganisation. `isFinal`: it reverted final blocks. */
  reorganisation(reorganisation: { depth: number; transfers: number; isFinal: boolean }): void;
  /** Counts recorded transfers that verification added or could not find. */
  difference(difference: { missed: number; invented: number }): void;
  /** Counts an answer of a node that could not be used, or contradicted another one; the same error once. */
  nodeFault(error: { fault: string }): void;
  nodeRequest(method: string): void;
  /** Counts an event, with the labels of its intent. */
  change(event: string, labels: readonly string[]): void;
  /** Records the time from a payer's signature to the block of its transfer. */
  settled(ms: number): void;
  /** Records the block time of the oldest pending transfer with enough confirmations, if any. */
  unconfirmed(since: Date | undefined): void;
  /** Counts intents expired by the chain's clock. `lagMs`: how late the first of them was. */
  expiry(expiry: { expired: number; lagMs: number }): void;
  /** Records the index of the reader among the configured nodes. */
  reader(place: number): void;
  /** Removes the metrics that only the lease holder exports. */
  leaseLost(): void;
}

/** What a chain's events are counted by from the start. */
export interface CountedOfChain {
  faults: readonly string[];
  events: readonly string[];
}

export interface ExpiryMetrics {
  /** Counts intents expired by this clock. `lagMs`: how late the first of them was. */
  count(clock: string, expired: number, lagMs: number): void;
  /** Removes the lag of this clock: another process measures it now. */
  forget(clock: string): void;
}

/** The series of all chains. */
function createSeries(registry: Registry) {
  const labelNames = ['mode', 'chain'] as const;
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `payment_intents_chain_${name}`, help, labelNames, registers: [registry] });
  const counter = <Label extends string = never>(name: string, help: string, ...more: Label[]) =>
    new Counter({
      name: `payment_intents_chain_${name}_total`,
      help,
      labelNames: [...labelNames, ...more],
      registers: [registry],
    });
  const watched = gauge('watched', '1 if this process has a node for the chain, 0 if it has none.');
  const headBlock = gauge('head_block', "Number of the node's newest block.");
  const finalBlock = gauge('finalized_block', "Number of the node's newest final block.");
  const readBlock = gauge('read_block', 'Number of the last block read.');
  const headTime = gauge('head_timestamp_seconds', "Time of the node's newest block, in seconds since 1970.");
  const seenAt = gauge(
    'seen_timestamp_seconds',
    'Time of the last answer of the node, in seconds since 1970; 0 if there was none.',
  );
  const blocks = counter('blocks', 'Blocks that were read.');
  const transfers = counter('transfers', 'Transfers to wallets of merchants that were read.');
  const lags = new Histogram({
    name: 'payment_intents_chain_block_lag_seconds',
    help: "Time from the node's first answer with a block's header to the commit of what is in it.",
    labelNames,
    buckets: durationBuckets,
    registers: [registry],
  });
  const settled = new Histogram({
    name: 'payment_intents_chain_authorization_settled_seconds',
    help: "Time from a payer's signature to the block of its transfer.",
    labelNames,
    buckets: settledBuckets,
    registers: [registry],
  });
  const reorganisations = counter('reorganisations', 'Reorganisations of the chain.');
  const deepest = gauge('reorganisation_depth_blocks', 'Blocks that the last reorganisation reverted.');
  const finalReorganisations = counter(
    'final_reorganisations',
    'Reorganisations that reverted blocks that a node had called final.',
  );
  const unconfirmed = gauge(
    'unconfirmed_oldest_seconds',
    'Age of the oldest pending transfer with enough confirmations; 0 if there is none.',
  );
  const reader = gauge('reader_place', 'Which of the configured nodes reads the chain: 0 is the first.');
  const missed = counter('missed_transfers', 'Transfers that only the verification of final blocks found.');
  const invented = counter(
    'invented_transfers',
    'Recorded transfers that the verification of final blocks did not find.',
  );
  const faults = counter('node_faults', 'Answers of nodes that could not be used, by fault.', 'fault');
  const requests = counter('node_requests', 'Requests to nodes by method.', 'method');
  const events = counter('events', 'Events that the chain has caused, by type.', 'type');
  const foundLate = counter(
    'found_late',
    'Payments in time that were found only when their intent had expired.',
  );
  const lost = counter(
    'reorged_after_success',
    'Confirmed payments that were reverted after their intent had succeeded.',
  );
  const dust = counter(
    'dust_transfers',
    'Unattributed transfers below UNATTRIBUTED_MIN_UNITS, which are not recorded.',
  );
  return {
    watched,
    headBlock,
    finalBlock,
    readBlock,
    headTime,
    seenAt,
    blocks,
    transfers,
    lags,
    settled,
    reorganisations,
    deepest,
    finalReorganisations,
    unconfirmed,
    reader,
    missed,
    invented,
    faults,
    requests,
    events,
    foundLate,
    lost,
    dust,
  };
}

/** Returns functions that create the metrics of a chain, and that say that one is not watched. */
export function createChainMetrics(registry: Registry, expiry: ExpiryMetrics) {
  const series = createSeries(registry);
  return {
    unwatchedChain: (mode: string, chain: string) => series.watched.set({ mode, chain }, 0),
    chain(mode: string, chain: string, counted: CountedOfChain): ChainMetrics {
      return metricsOf(series, { mode, chain }, counted, expiry);
    },
  };
}

function metricsOf(
  series: ReturnType<typeof createSeries>,
  of: { mode: string; chain: string },
  { faults, events }: CountedOfChain,
  expiry: ExpiryMetrics,
): ChainMetrics {
  const clock = `${of.mode} ${of.chain}`;
  series.watched.set(of, 1);
  // Without it, a node that never answers would not raise an alert.
  series.seenAt.set(of, 0);
  for (const fault of faults) series.faults.inc({ ...of, fault }, 0);
  for (const type of events) series.events.inc({ ...of, type }, 0);
  for (const count of [
    ...[series.blocks, series.transfers, series.reorganisations, series.finalReorganisations],
    ...[series.missed, series.invented, series.foundLate, series.lost, series.dust],
  ])
    count.inc(of, 0);
  series.settled.zero(of);
  // The node's client and the watcher may report the same error.
  const counted = new WeakSet<object>();
  return {
    head({ head, finalized, cursor }) {
      series.headBlock.set(of, head.number);
      series.finalBlock.set(of, finalized);
      series.readBlock.set(of, cursor);
      series.headTime.set(of, head.time.getTime() / 1000);
      series.seenAt.set(of, Date.now() / 1000);
    },
    block({ transfers, lagMs }) {
      series.blocks.inc(of);
      series.transfers.inc(of, transfers);
      series.lags.observe(of, lagMs / 1000);
    },
    settled: (ms) => series.settled.observe(of, Math.max(0, ms) / 1000),
    reorganisation({ depth, isFinal }) {
      series.reorganisations.inc(of);
      if (isFinal) series.finalReorganisations.inc(of);
      series.deepest.set(of, depth);
    },
    difference(difference) {
      series.missed.inc(of, difference.missed);
      series.invented.inc(of, difference.invented);
    },
    dust: (count) => series.dust.inc(of, count),
    nodeFault(error) {
      if (!counted.has(error)) series.faults.inc({ ...of, fault: error.fault });
      counted.add(error);
    },
    nodeRequest: (method) => series.requests.inc({ ...of, method }),
    change(type, labels) {
      series.events.inc({ ...of, type });
      if (type === 'payment_intent.late_payment' && labels.includes('found_late')) series.foundLate.inc(of);
      if (type === 'payment_intent.reorged' && labels.includes('reorged')) series.lost.inc(of);
    },
    unconfirmed: (since) =>
      series.unconfirmed.set(of, since === undefined ? 0 : (Date.now() - since.getTime()) / 1000),
    expiry: ({ expired, lagMs }) => expiry.count(clock, expired, lagMs),
    reader: (place) => series.reader.set(of, place),
    leaseLost() {
      series.reader.remove(of);
      series.unconfirmed.remove(of);
      expiry.forget(clock);
    },
  };
}
