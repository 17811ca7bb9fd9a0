// The metrics of watched chains, which only the process that watches them exports, and those of expiry.

import { durationBuckets, type Instruments } from './instruments.ts';

/** In seconds: up to the longest validity of a signature. */
const settledBuckets = [1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300];

export type ChainMetrics = ReturnType<typeof metricsOf>;

/** A chain's block time, and the faults and events whose counters start at 0. */
type CountedOfChain = { blockTimeMs: number; faults: readonly string[]; events: readonly string[] };

function createExpiryMetrics({ counter, gauge }: Instruments) {
  const expirations = counter('expired_total', 'Payment intents and refunds that this process has expired.');
  const lag = gauge(
    'expiry_lag_seconds',
    'How late the payment intents were that this process expired last, by the clock of the service or of a chain; 0 if none was due.',
    ['clock'],
  );
  return {
    /** Counts intents and refunds expired by this clock. `lagMs`: how late the first of them was. */
    count(clock: string, expired: number, lagMs: number) {
      expirations.inc(expired);
      lag.set({ clock }, lagMs / 1000);
    },
    /** Removes the lag of this clock: another process measures it now. */
    forget: (clock: string) => lag.remove({ clock }),
  };
}

function createSeries({ counter, gauge, histogram }: Instruments) {
  const labels = ['mode', 'chain'] as const;
  const value = (name: string, help: string) => gauge(`chain_${name}`, help, [...labels]);
  const count = <Label extends string = never>(name: string, help: string, ...more: Label[]) =>
    counter(`chain_${name}_total`, help, [...labels, ...more]);
  return {
    watched: value('watched', '1 if this process has a node for the chain, 0 if it has none.'),
    headBlock: value('head_block', "Number of the node's newest block."),
    blockTime: value(
      'block_time_seconds',
      'The usual time between two blocks: what a number of blocks means in seconds.',
    ),
    finalBlock: value('finalized_block', "Number of the node's newest final block."),
    readBlock: value('read_block', 'Number of the last block read.'),
    verifiedBlock: value('verified_block', 'Number of the last final block that was read a second time.'),
    headTime: value('head_timestamp_seconds', "Time of the node's newest block, in seconds since 1970."),
    seenAt: value(
      'seen_timestamp_seconds',
      'Time of the last answer of the node, in seconds since 1970; 0 if there was none.',
    ),
    lags: histogram(
      'chain_block_lag_seconds',
      "Time from the node's first answer with a block's header to the commit of what is in it.",
      durationBuckets,
      [...labels],
    ),
    settled: histogram(
      'chain_authorization_settled_seconds',
      'Time from storing a signed authorization to the block of its transfer.',
      settledBuckets,
      [...labels],
    ),
    deepest: value('reorganisation_depth_blocks', 'Blocks that the last reorganisation reverted.'),
    unconfirmed: value(
      'unconfirmed_oldest_seconds',
      'Age of the oldest pending payment or refund with enough confirmations; 0 if there is none.',
    ),
    reader: value('reader_place', 'Which of the configured nodes reads the chain: 0 is the first.'),
    faults: count('node_faults', 'Answers of nodes that could not be used, by fault.', 'fault'),
    requests: count('node_requests', 'Requests to nodes by method.', 'method'),
    events: count('events', 'Events that the chain has caused, by type.', 'type'),
    /** They begin at 0. */
    counts: {
      blocks: count('blocks', 'Blocks that were read.'),
      transfers: count('transfers', 'Transfers to wallets of merchants that were read.'),
      reorganisations: count('reorganisations', 'Reorganisations of the chain.'),
      finalReorganisations: count(
        'final_reorganisations',
        'Reorganisations that reverted blocks that a node had called final.',
      ),
      missed: count(
        'missed_transfers',
        'Transfers that the verification of final blocks found, or found to prove another intent.',
      ),
      invented: count(
        'invented_transfers',
        'Recorded transfers that the verification of final blocks did not find.',
      ),
      foundLate: count(
        'found_late',
        'Intents with payments in time that were found only after they had expired.',
      ),
      lost: count(
        'reorged_after_success',
        'Confirmed payments that were reverted after their intent had succeeded.',
      ),
      failed: count(
        'failed_transfers',
        'Transfers whose recording as a payment has failed: left unattributed.',
      ),
      dust: count(
        'dust_transfers',
        'Unattributed transfers below UNATTRIBUTED_MIN_UNITS, which are not recorded.',
      ),
    },
  };
}

/** Returns functions that create a chain's metrics, mark one as unwatched, and count expiry. */
export function createChainMetrics(instruments: Instruments) {
  const series = createSeries(instruments);
  const expiry = createExpiryMetrics(instruments);
  return {
    /** Counts intents expired by the service's clock. `lagMs`: how late the first of them was. */
    expiry: (expired: number, lagMs: number) => expiry.count('service', expired, lagMs),
    /** Records that this process has no node for a chain. */
    unwatchedChain: (mode: string, chain: string) => series.watched.set({ mode, chain }, 0),
    /** Returns the metrics of a watched chain, with all series at zero for these faults and event types. */
    chain: (mode: string, chain: string, counted: CountedOfChain) =>
      metricsOf(series, { mode, chain }, counted, expiry),
  };
}

function metricsOf(
  { counts, ...series }: ReturnType<typeof createSeries>,
  of: { mode: string; chain: string },
  { blockTimeMs, faults, events }: CountedOfChain,
  expiry: ReturnType<typeof createExpiryMetrics>,
) {
  const clock = `${of.mode} ${of.chain}`;
  series.watched.set(of, 1);
  series.blockTime.set(of, blockTimeMs / 1000);
  // Without it, a node that never answers would not raise an alert.
  series.seenAt.set(of, 0);
  for (const fault of faults) series.faults.inc({ ...of, fault }, 0);
  for (const type of events) series.events.inc({ ...of, type }, 0);
  for (const count of Object.values(counts)) count.inc(of, 0);
  series.settled.zero(of);
  // The node's client and the watcher may report the same error.
  const counted = new WeakSet<object>();
  return {
    /** Records the reader's newest and newest final block, and the last block read. */
    head(state: { head: { number: number; time: Date }; finalized: number; cursor: number }) {
      series.headBlock.set(of, state.head.number);
      series.finalBlock.set(of, state.finalized);
      series.readBlock.set(of, state.cursor);
      series.headTime.set(of, state.head.time.getTime() / 1000);
      series.seenAt.set(of, Date.now() / 1000);
    },
    verified: (number: number) => series.verifiedBlock.set(of, number),
    /** Records a committed block. `lagMs`: the time since the first answer with its header. */
    block({ transfers, lagMs }: { transfers: number; lagMs: number }) {
      counts.blocks.inc(of);
      counts.transfers.inc(of, transfers);
      series.lags.observe(of, lagMs / 1000);
    },
    settled: (ms: number) => series.settled.observe(of, Math.max(0, ms) / 1000),
    /** Counts a reorganisation. `isFinal`: it reverted final blocks. */
    reorganisation({ depth, isFinal }: { depth: number; transfers: number; isFinal: boolean }) {
      counts.reorganisations.inc(of);
      if (isFinal) counts.finalReorganisations.inc(of);
      series.deepest.set(of, depth);
    },
    /** Counts recorded transfers that verification added or could not find. */
    difference({ missed, invented }: { missed: number; invented: number }) {
      counts.missed.inc(of, missed);
      counts.invented.inc(of, invented);
    },
    failed: () => counts.failed.inc(of),
    dust: (transfers: number) => counts.dust.inc(of, transfers),
    /** Counts an answer that could not be used or contradicted another, but the same error only once. */
    nodeFault(error: { fault: string }) {
      if (!counted.has(error)) series.faults.inc({ ...of, fault: error.fault });
      counted.add(error);
    },
    nodeRequest: (method: string) => series.requests.inc({ ...of, method }),
    /** Counts an event. */
    change(type: string, { isFoundLate, isLost }: { isFoundLate: boolean; isLost: boolean }) {
      series.events.inc({ ...of, type });
      if (isFoundLate) counts.foundLate.inc(of);
      if (isLost) counts.lost.inc(of);
    },
    /** Records the block time of the oldest pending transfer with enough confirmations, if any. */
    unconfirmed: (since: Date | undefined) =>
      series.unconfirmed.set(of, since === undefined ? 0 : (Date.now() - since.getTime()) / 1000),
    /** Counts intents expired by the chain's clock. `lagMs`: how late the first of them was. */
    expiry: ({ expired, lagMs }: { expired: number; lagMs: number }) => expiry.count(clock, expired, lagMs),
    /** Records the index of the reader among the configured nodes. */
    reader: (place: number) => series.reader.set(of, place),
    /** Removes the metrics that only the lease holder exports. */
    leaseLost() {
      const { reader, unconfirmed, deepest, headBlock, finalBlock, readBlock, verifiedBlock, headTime } =
        series;
      const own = [reader, unconfirmed, deepest, headBlock, finalBlock, readBlock, verifiedBlock, headTime];
      for (const each of own) each.remove(of);
      expiry.forget(clock);
    },
  };
}
