import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { catalogue } from '../contract/error-catalogue.ts';
import type { RequestContext, RequestOutcome } from '../requests/request-context.ts';
import {
  type ChainMetrics,
  type CountedOfChain,
  createChainMetrics,
  durationBuckets,
  type ExpiryMetrics,
} from './chain-metrics.ts';
import { createPayMetrics, type PayMetrics } from './pay-metrics.ts';

/** The size of the database's connection pool, as `pg` reports it. */
export interface PoolUse {
  totalCount: number;
  idleCount: number;
  waitingCount: number;
}

/** What the database is at the moment. */
export interface Replication {
  isPrimary: boolean;
  /** The history that is written; null on a standby. */
  timeline: number | null;
  /** The number of the newest epoch of events: one more after each failover and restore. */
  epoch: number;
  /** What each commit waits for, as in `synchronous_standby_names`; empty if for nothing. */
  waitsFor: string;
  /** The log cannot be archived: backups end, and the log fills the disk. */
  archiveFails: boolean;
  /** The standbys that stream now; null if the role may not see them. */
  standbys: { synchronous: number; all: number; lagSeconds: number } | null;
}

/** Values read at each scrape. */
export interface MetricSources {
  version: string;
  /** Names of the methods that are served. */
  rpcs: readonly string[];
  /** Creates that wait to be written. */
  waitingCreates: () => number;
  /** Those of them that wait for the database to be there again. */
  heldCreates: () => number;
  /** How often the database could not be reached, by cause. */
  databaseFailures: ReadonlyMap<string, number>;
  /** Log lines dropped because standard output was not read. */
  droppedLogLines: () => number;
  /** Open streams of events. */
  eventStreams: () => number;
  pool: PoolUse;
  /** Open connections of each listener. */
  connections: () => Readonly<Record<string, number>>;
  isReady: () => Promise<boolean>;
}

export interface Metrics {
  readonly pay: PayMetrics;
  /** Counts a completed request. `rpc` is undefined if no route matched. */
  request(context: RequestContext, rpc: string | undefined, outcome: RequestOutcome): void;
  /** Records a statement that wrote `size` creates, or failed to. */
  batch(size: number, durationMs: number): void;
  /** Counts a lookup of an API key. `remembered`: it was in the cache. */
  keyLookup(remembered: boolean): void;
  /** Counts intents expired by the service's clock. `lagMs`: how late the first of them was. */
  expiry(expired: number, lagMs: number): void;
  /** Counts an attempt to deliver a webhook. */
  webhookAttempt(outcome: 'delivered' | 'failed', durationMs: number): void;
  /** Records the age of the oldest pending delivery, and how late attempts are. */
  webhookBacklog(backlog: { oldestMs: number; lagMs: number }): void;
  /** Records that this process has no node for a chain. */
  unwatchedChain(mode: string, chain: string): void;
  /** Returns the metrics of a watched chain, with all series at zero for these faults and event types. */
  chain(mode: string, chain: string, counted: CountedOfChain): ChainMetrics;
  /** Records the number of refunds by status, and the age of the oldest that waits for its transfer. */
  refunds(measured: { counts: Readonly<Record<string, number>>; oldestMs: number }): void;
  /** Records the number of unattributed transfers and the age of the oldest. */
  unattributed(waiting: { count: number; oldestMs: number }): void;
  /** Records the amount received on each chain today, in USDC's smallest unit. */
  received(chains: readonly { mode: string; chain: string; units: number }[]): void;
  /** Records what the database is and which standbys it has. */
  replication(found: Replication): void;
  /** Adds the metrics that are read at each scrape. */
  watch(sources: MetricSources): void;
  /** Returns all metrics in Prometheus' text format. */
  text(): Promise<{ contentType: string; body: string }>;
}

/**
 * Creates the metrics of one running service. Operators rely on their names: ops/ and docs/operations.md use them.
 * Series of the methods start at zero: Prometheus sees no increase in a series that begins with its first error.
 */
export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const requests = createRequestMetrics(registry);
  const expiry = createExpiryMetrics(registry);
  return {
    request: requests.observe,
    batch: createBatchMetrics(registry),
    keyLookup: createKeyLookupMetrics(registry),
    expiry: (...counted) => expiry.count('service', ...counted),
    ...createWebhookMetrics(registry),
    ...createChainMetrics(registry, expiry),
    pay: createPayMetrics(registry),
    ...createTransferMetrics(registry),
    replication: createReplicationMetrics(registry),
    watch(sources) {
      requests.startAtZero(sources.rpcs);
      watchSources(registry, sources);
    },
    async text() {
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}

function createRequestMetrics(registry: Registry): {
  observe: Metrics['request'];
  startAtZero(rpcs: readonly string[]): void;
} {
  const requests = new Counter({
    name: 'payment_intents_requests_total',
    help: 'Requests that have ended, by door, method and code of the catalogue (ok if it succeeded).',
    labelNames: ['door', 'method', 'code'],
    registers: [registry],
  });
  const durations = new Histogram({
    name: 'payment_intents_request_duration_seconds',
    help: 'Time from the first byte of a request to its answer.',
    labelNames: ['door', 'method'],
    buckets: durationBuckets,
    registers: [registry],
  });

  // Cached, because prom-client builds a text of all labels for each lookup of a series.
  const series = new Map<string, { count: Counter.Internal; duration: Histogram.Internal<string> }>();
  const seriesOf = (door: string, rpc: string, outcome: string) => {
    const key = `${door} ${rpc} ${outcome}`;
    let found = series.get(key);
    if (found === undefined) {
      found = { count: requests.labels(door, rpc, outcome), duration: durations.labels(door, rpc) };
      series.set(key, found);
    }
    return found;
  };

  return {
    observe({ door, startedAtMs }, rpc = 'none', outcome) {
      const { count, duration } = seriesOf(door, rpc, outcome);
      count.inc();
      duration.observe((performance.now() - startedAtMs) / 1000);
    },
    startAtZero(rpcs) {
      for (const door of ['public', 'internal']) {
        for (const rpc of rpcs)
          for (const code of ['ok', ...Object.keys(catalogue)]) seriesOf(door, rpc, code).count.inc(0);
      }
    },
  };
}

function createBatchMetrics(registry: Registry): Metrics['batch'] {
  const sizes = new Histogram({
    name: 'payment_intents_commit_batch_size',
    help: 'Creates written by one statement.',
    buckets: [1, 2, 4, 8, 16, 32, 64, 128],
    registers: [registry],
  });
  const durations = new Histogram({
    name: 'payment_intents_commit_duration_seconds',
    help: 'Time of one statement that writes creates, its commit included.',
    buckets: durationBuckets,
    registers: [registry],
  });
  return (size, durationMs) => {
    sizes.observe(size);
    durations.observe(durationMs / 1000);
  };
}

function createKeyLookupMetrics(registry: Registry): Metrics['keyLookup'] {
  const lookups = new Counter({
    name: 'payment_intents_key_lookups_total',
    help: 'Lookups of API keys: hit if the result was cached, miss if the database was queried.',
    labelNames: ['result'],
    registers: [registry],
  });
  const [hits, misses] = [lookups.labels('hit'), lookups.labels('miss')];
  return (remembered) => (remembered ? hits : misses).inc();
}

function createExpiryMetrics(registry: Registry): ExpiryMetrics {
  const expirations = new Counter({
    name: 'payment_intents_expired_total',
    help: 'Payment intents that this process has expired.',
    registers: [registry],
  });
  const lag = new Gauge({
    name: 'payment_intents_expiry_lag_seconds',
    help: 'How late the payment intents were that this process expired last, by the clock of the service or of a chain; 0 if none was due.',
    labelNames: ['clock'],
    registers: [registry],
  });
  return {
    count(clock, expired, lagMs) {
      expirations.inc(expired);
      lag.set({ clock }, lagMs / 1000);
    },
    forget: (clock) => lag.remove({ clock }),
  };
}

function createWebhookMetrics(registry: Registry): Pick<Metrics, 'webhookAttempt' | 'webhookBacklog'> {
  const attempts = new Counter({
    name: 'payment_intents_webhook_attempts_total',
    help: 'Attempts to deliver a webhook by outcome.',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of ['delivered', 'failed']) attempts.inc({ outcome }, 0);
  const durations = new Histogram({
    name: 'payment_intents_webhook_duration_seconds',
    help: 'Time of an attempt to deliver a webhook, by outcome.',
    labelNames: ['outcome'],
    buckets: durationBuckets,
    registers: [registry],
  });
  const oldest = new Gauge({
    name: 'payment_intents_webhook_oldest_pending_seconds',
    help: 'Age of the oldest webhook that is still to be delivered, perhaps by a later retry; 0 if there is none.',
    registers: [registry],
  });
  const lag = new Gauge({
    name: 'payment_intents_webhook_lag_seconds',
    help: 'How late the latest attempt to deliver a webhook is; 0 if all are in time.',
    registers: [registry],
  });
  // A process that does not measure a value exports no value, rather than 0.
  for (const measured of [oldest, lag]) measured.remove();
  return {
    webhookAttempt(outcome, durationMs) {
      attempts.inc({ outcome });
      durations.observe({ outcome }, durationMs / 1000);
    },
    webhookBacklog({ oldestMs, lagMs }) {
      oldest.set(oldestMs / 1000);
      lag.set(lagMs / 1000);
    },
  };
}

function createTransferMetrics(registry: Registry): Pick<Metrics, 'unattributed' | 'received' | 'refunds'> {
  const waiting = new Gauge({
    name: 'payment_intents_unattributed_transfers',
    help: 'Transfers that wait to be attributed, counted up to a thousand.',
    registers: [registry],
  });
  const oldest = new Gauge({
    name: 'payment_intents_unattributed_oldest_seconds',
    help: 'How long the oldest transfer of the last seven days has waited to be attributed; 0 if there is none.',
    registers: [registry],
  });
  const refunds = new Gauge({
    name: 'payment_intents_refunds',
    help: 'Refunds that are open, or ended within the last 30 days, by status.',
    labelNames: ['status'],
    registers: [registry],
  });
  const oldestRefund = new Gauge({
    name: 'payment_intents_refund_oldest_seconds',
    help: 'How long the oldest open refund has waited for its transfer; 0 if there is none.',
    registers: [registry],
  });
  const received = new Gauge({
    name: 'payment_intents_received_today_units',
    help: "Confirmed payments that count, recorded since midnight UTC, in USDC's smallest unit.",
    labelNames: ['mode', 'chain'],
    registers: [registry],
  });
  return {
    unattributed({ count, oldestMs }) {
      waiting.set(count);
      oldest.set(oldestMs / 1000);
    },
    refunds({ counts, oldestMs }) {
      for (const [status, count] of Object.entries(counts)) refunds.set({ status }, count);
      oldestRefund.set(oldestMs / 1000);
    },
    received(chains) {
      for (const { mode, chain, units } of chains) received.set({ mode, chain }, units);
    },
  };
}

function createReplicationMetrics(registry: Registry): Metrics['replication'] {
  const gauge = (name: string, help: string) => {
    const made = new Gauge({ name: `payment_intents_${name}`, help, registers: [registry] });
    // Not measured yet, or not visible to the role: no value, rather than 0.
    made.remove();
    return made;
  };
  const isPrimary = gauge('database_primary', '1 if the database accepts writes, 0 if it is a standby.');
  const timeline = gauge(
    'database_timeline',
    'The timeline of the database: a promotion begins another one.',
  );
  const epoch = gauge(
    'event_epoch',
    'The epoch of event positions: a failover or a restore begins another one.',
  );
  const synchronous = gauge(
    'database_synchronous_standbys',
    'Standbys that commits wait for and that stream now.',
  );
  const standbys = gauge('database_standbys', 'Standbys that stream now.');
  const lag = gauge('database_standby_lag_seconds', 'How far the slowest standby is behind in replaying.');
  const archiveFails = gauge(
    'database_archive_failing',
    "1 while the write-ahead log cannot be archived, by the database's own archiver.",
  );
  return (found) => {
    archiveFails.set(found.archiveFails ? 1 : 0);
    isPrimary.set(found.isPrimary ? 1 : 0);
    if (found.timeline !== null) timeline.set(found.timeline);
    epoch.set(found.epoch);
    if (found.standbys === null) return;
    synchronous.set(found.standbys.synchronous);
    standbys.set(found.standbys.all);
    lag.set(found.standbys.lagSeconds);
  };
}

/** A refused and a lost connection, a server that is shut down, and one that is a standby. */
const commonFailures = ['ECONNREFUSED', 'ECONNRESET', '57P01', '25006'];

function watchSources(registry: Registry, sources: MetricSources): void {
  new Gauge({
    name: 'payment_intents_build_info',
    help: 'Always 1; the labels are the versions that are running.',
    labelNames: ['version', 'node'],
    registers: [registry],
  }).set({ version: sources.version, node: process.version }, 1);
  new Gauge({
    name: 'payment_intents_commit_queue_length',
    help: 'Creates that wait to be written.',
    registers: [registry],
    collect() {
      this.set(sources.waitingCreates());
    },
  });
  new Gauge({
    name: 'payment_intents_creates_held',
    help: 'Creates that wait for the database to be there again: they were sent and got no answer.',
    registers: [registry],
    collect() {
      this.set(sources.heldCreates());
    },
  });
  new Counter({
    name: 'payment_intents_database_failures_total',
    help: 'Attempts that found the database gone, by SQLSTATE or by the code of the socket.',
    labelNames: ['cause'],
    registers: [registry],
    collect() {
      this.reset();
      for (const cause of commonFailures) this.inc({ cause }, 0);
      for (const [cause, count] of sources.databaseFailures) this.inc({ cause }, count);
    },
  });
  new Gauge({
    name: 'payment_intents_event_streams',
    help: 'Open streams of WatchEvents.',
    registers: [registry],
    collect() {
      this.set(sources.eventStreams());
    },
  });
  new Counter({
    name: 'payment_intents_log_lines_dropped_total',
    help: 'Lines of the log that were dropped because standard output was not read.',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(sources.droppedLogLines());
    },
  });
  new Gauge({
    name: 'payment_intents_database_connections',
    help: 'Connections to PostgreSQL by state, and callers that wait for one.',
    labelNames: ['state'],
    registers: [registry],
    collect() {
      const { totalCount, idleCount, waitingCount } = sources.pool;
      this.set({ state: 'busy' }, totalCount - idleCount);
      this.set({ state: 'idle' }, idleCount);
      this.set({ state: 'awaited' }, waitingCount);
    },
  });
  // Registered after the pool's metric, so that its own query is not counted there.
  new Gauge({
    name: 'payment_intents_ready',
    help: '1 if /readyz reports ready: the database responds and the service is not stopping.',
    registers: [registry],
    async collect() {
      this.set((await sources.isReady()) ? 1 : 0);
    },
  });
  new Gauge({
    name: 'payment_intents_open_connections',
    help: 'Client connections by port.',
    labelNames: ['port'],
    registers: [registry],
    collect() {
      for (const [port, open] of Object.entries(sources.connections())) this.set({ port }, open);
    },
  });
}
