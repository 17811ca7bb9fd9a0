import { Counter, collectDefaultMetrics, Gauge, type Histogram, Registry } from 'prom-client';
import { catalogue } from '../contract/error-catalogue.ts';
import { refusalReasons } from '../contract/x402.ts';
import type { RequestContext, RequestOutcome } from '../requests/request-context.ts';
import { createChainMetrics } from './chain-metrics.ts';
import { createInstruments, durationBuckets, type Instruments } from './instruments.ts';

/** The current state of the database. */
export interface Replication {
  isPrimary: boolean;
  /** False on a standby, or if its host has made the database read-only. */
  acceptsWrites: boolean;
  /** The timeline that is written; null on a standby. */
  timeline: number | null;
  /** The number of the newest epoch of events: one more after each failover and restore. */
  epoch: number;
  /** What each commit waits for, as in `synchronous_standby_names`; empty if for nothing. */
  waitsFor: string;
  /** The write-ahead log cannot be archived: backups stop, and the log fills the disk. */
  archiveFails: boolean;
  /** The standbys that stream now; null if the role may not see them. */
  standbys: { synchronous: number; all: number; lagSeconds: number } | null;
}

/** Values read at each scrape. */
interface MetricSources {
  version: string;
  /** Names of the methods that are served, by door. */
  rpcs: Readonly<Record<string, readonly string[]>>;
  waitingCreates: () => number;
  /** The number of these that wait for the database to come back. */
  heldCreates: () => number;
  /** How often the database could not be reached, by cause. */
  databaseFailures: ReadonlyMap<string, number>;
  droppedLogLines: () => number;
  eventStreams: () => number;
  /** The database's connection pool, as `pg` reports it. */
  pool: { totalCount: number; idleCount: number; waitingCount: number };
  /** Open connections of each listener. */
  connections: () => Readonly<Record<string, number>>;
  isReady: () => Promise<boolean>;
}

export type Metrics = ReturnType<typeof createMetrics>;

/**
 * Creates the metrics of a running service. Operators rely on the names: see ops/ and docs/operations.md.
 * Series of the methods start at zero: Prometheus sees no increase in one that begins with its first error.
 */
export function createMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const instruments = createInstruments(registry);
  const requests = createRequestMetrics(instruments);
  return {
    request: requests.observe,
    batch: createBatchMetrics(instruments),
    keyLookup: createKeyLookupMetrics(instruments),
    ...createWebhookMetrics(instruments),
    ...createChainMetrics(instruments),
    pay: createPayMetrics(instruments),
    ...createTransferMetrics(instruments),
    replication: createReplicationMetrics(instruments),
    ...createProcessMetrics(instruments),
    /** Adds the metrics that are read at each scrape. */
    watch(sources: MetricSources) {
      requests.startAtZero(sources.rpcs);
      watchSources(instruments, sources);
    },
    /** Returns all metrics in Prometheus' text format. */
    async text() {
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}

function createRequestMetrics({ counter, histogram }: Instruments) {
  const requests = counter(
    'requests_total',
    'Requests that have ended, by door, method and code of the catalogue (ok if it succeeded).',
    ['door', 'method', 'code'],
  );
  const durations = histogram(
    'request_duration_seconds',
    'Time from the first byte of a request to its answer.',
    durationBuckets,
    ['door', 'method'],
  );

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
    /** Counts a completed request. `rpc` is undefined if no route matched. */
    observe({ door, startedAtMs }: RequestContext, rpc = 'none', outcome: RequestOutcome) {
      const { count, duration } = seriesOf(door, rpc, outcome);
      count.inc();
      duration.observe((performance.now() - startedAtMs) / 1000);
    },
    startAtZero(rpcs: Readonly<Record<string, readonly string[]>>) {
      for (const [door, names] of Object.entries(rpcs)) {
        for (const rpc of names)
          for (const code of ['ok', ...Object.keys(catalogue)]) seriesOf(door, rpc, code).count.inc(0);
      }
    },
  };
}

function createBatchMetrics({ histogram }: Instruments) {
  const sizes = histogram(
    'commit_batch_size',
    'Creates written by one statement.',
    [1, 2, 4, 8, 16, 32, 64, 128],
  );
  const durations = histogram(
    'commit_duration_seconds',
    'Time of one statement that writes creates, its commit included.',
    durationBuckets,
  );
  /** Records a statement that wrote `size` creates, or failed to. */
  return (size: number, durationMs: number) => {
    sizes.observe(size);
    durations.observe(durationMs / 1000);
  };
}

function createKeyLookupMetrics({ counter }: Instruments) {
  const lookups = counter(
    'key_lookups_total',
    'Lookups of API keys: hit if the result was cached, miss if the database was queried.',
    ['result'],
  );
  const [hits, misses] = [lookups.labels('hit'), lookups.labels('miss')];
  /** Counts a lookup of an API key. `remembered`: it was in the cache. */
  return (remembered: boolean) => (remembered ? hits : misses).inc();
}

function createWebhookMetrics({ counter, histogram, measured }: Instruments) {
  const attempts = counter('webhook_attempts_total', 'Attempts to deliver a webhook by outcome.', [
    'outcome',
  ]);
  for (const outcome of ['delivered', 'failed', 'unrecorded']) attempts.inc({ outcome }, 0);
  const durations = histogram(
    'webhook_duration_seconds',
    'Time of an attempt to deliver a webhook, by outcome.',
    durationBuckets,
    ['outcome'],
  );
  const oldest = measured(
    'webhook_oldest_pending_seconds',
    'Age of the oldest webhook that is still to be delivered, perhaps by a later retry; 0 if there is none.',
  );
  const lag = measured(
    'webhook_lag_seconds',
    'How late the latest webhook is to a merchant that has no attempt in flight; 0 if all are in time.',
  );
  const disabled = counter(
    'webhook_endpoints_disabled_total',
    'Webhook endpoints that were disabled for failing.',
  );
  return {
    webhookDisabled: () => disabled.inc(),
    webhookUnrecorded: () => attempts.inc({ outcome: 'unrecorded' }),
    webhookAttempt(outcome: 'delivered' | 'failed', durationMs: number) {
      attempts.inc({ outcome });
      durations.observe({ outcome }, durationMs / 1000);
    },
    /** Records the age of the oldest pending delivery, and how late attempts are. */
    webhookBacklog({ oldestMs, lagMs }: { oldestMs: number; lagMs: number }) {
      oldest.set(oldestMs / 1000);
      lag.set(lagMs / 1000);
    },
  };
}

type ChainLabels = { mode: string; chain: string };

/** Metrics of payments by signature. The chain's watcher measures when their transfers arrive. */
function createPayMetrics({ counter }: Instruments) {
  const sent = counter(
    'authorizations_sent_total',
    'Signed authorizations that were given to a facilitator.',
    ['mode', 'chain'],
  );
  const refused = counter(
    'authorizations_refused_total',
    'Signed authorizations that were refused before a facilitator was asked, by reason.',
    ['reason'],
  );
  const answers = counter(
    'facilitator_answers_total',
    'Answers of facilitators, by outcome. Nothing follows from them: the chain decides.',
    ['mode', 'chain', 'outcome'],
  );
  return {
    /** Starts the counts at 0 for a chain that payers can pay on by signature. */
    begin({ mode, chain }: ChainLabels) {
      for (const reason of refusalReasons) refused.inc({ reason }, 0);
      sent.inc({ mode, chain }, 0);
      for (const outcome of ['accepted', 'refused']) answers.inc({ mode, chain, outcome }, 0);
    },
    /** Counts an authorization that was stored and given to a facilitator. */
    sent: ({ mode, chain }: ChainLabels) => sent.inc({ mode, chain }),
    /** Counts one that was refused before it was sent, by x402's reason. */
    refused: (reason: string) => refused.inc({ reason }),
    /** Counts what a facilitator has answered. */
    answered: ({ mode, chain }: ChainLabels, isAccepted: boolean) =>
      answers.inc({ mode, chain, outcome: isAccepted ? 'accepted' : 'refused' }),
  };
}

function createTransferMetrics({ gauge }: Instruments) {
  const waiting = gauge(
    'unattributed_transfers',
    'Transfers that wait to be attributed, counted up to a thousand.',
  );
  const oldest = gauge(
    'unattributed_oldest_seconds',
    'How long the oldest transfer of the last seven days has waited to be attributed; 0 if there is none.',
  );
  const refunds = gauge('refunds', 'Refunds that are open, or ended within the last 30 days, by status.', [
    'status',
  ]);
  const oldestRefund = gauge(
    'refund_oldest_seconds',
    'How long the oldest open refund has waited for its transfer; 0 if there is none.',
  );
  const received = gauge(
    'received_today_units',
    "Confirmed payments that count, recorded since midnight UTC, in the token's smallest unit.",
    ['mode', 'chain', 'token'],
  );
  return {
    /** Records the number of unattributed transfers and the age of the oldest. */
    unattributed({ count, oldestMs }: { count: number; oldestMs: number }) {
      waiting.set(count);
      oldest.set(oldestMs / 1000);
    },
    /** Records the number of refunds by status, and the age of the oldest that waits for its transfer. */
    refunds({ counts, oldestMs }: { counts: Readonly<Record<string, number>>; oldestMs: number }) {
      for (const [status, count] of Object.entries(counts)) refunds.set({ status }, count);
      oldestRefund.set(oldestMs / 1000);
    },
    /** Records the amount received on each chain today, in each token's smallest unit. */
    received(sums: readonly { mode: string; chain: string; token: string; units: number }[]) {
      for (const { units, ...labels } of sums) received.set(labels, units);
    },
  };
}

function createProcessMetrics({ gauge }: Instruments) {
  const tasks = gauge(
    'task_succeeded_timestamp_seconds',
    'When a background task of this process has succeeded last; 0 if it never has.',
    ['task'],
  );
  const certificate = gauge(
    'tls_certificate_due_timestamp_seconds',
    'By when the certificate in use has to be replaced: a sixth of its life before its end. Infinite without TLS.',
  );
  return {
    taskBegan: (task: string) => tasks.set({ task }, 0),
    taskWorked: (task: string) => tasks.set({ task }, Date.now() / 1000),
    certificate: (dueMs = Number.POSITIVE_INFINITY) => certificate.set(dueMs / 1000),
  };
}

function createReplicationMetrics({ measured }: Instruments) {
  const isPrimary = measured('database_primary', '1 if the database is a primary, 0 if it is a standby.');
  const timeline = measured(
    'database_timeline',
    'The timeline of the database: a promotion begins another one.',
  );
  const epoch = measured(
    'event_epoch',
    'The epoch of event positions: a failover or a restore begins another one.',
  );
  const synchronous = measured(
    'database_synchronous_standbys',
    'Standbys that commits wait for and that stream now.',
  );
  const standbys = measured('database_standbys', 'Standbys that stream now.');
  const lag = measured('database_standby_lag_seconds', 'How far the slowest standby is behind in replaying.');
  const archiveFails = measured(
    'database_archive_failing',
    "1 while the write-ahead log cannot be archived, by the database's own archiver.",
  );
  const clock = measured(
    'clock_ahead_seconds',
    "How far this machine's clock is ahead of the database's; negative if it is behind.",
  );
  return (found: Replication, clockAheadMs: number) => {
    clock.set(clockAheadMs / 1_000);
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

/** A refused connection, a lost one, a server that is shut down, and a standby. */
const commonFailures = ['ECONNREFUSED', 'ECONNRESET', '57P01', '25006'];

function watchSources({ named, gauge, read }: Instruments, sources: MetricSources): void {
  gauge('build_info', 'Always 1; the labels are the versions that are running.', ['version', 'node']).set(
    { version: sources.version, node: process.version },
    1,
  );
  read('commit_queue_length', 'Creates that wait to be written.', sources.waitingCreates);
  read(
    'creates_held',
    'Creates that wait for the database to be there again: they were sent and got no answer.',
    sources.heldCreates,
  );
  new Counter({
    ...named(
      'database_failures_total',
      'Attempts that found the database gone, by SQLSTATE or by the code of the socket.',
      ['cause'],
    ),
    collect() {
      this.reset();
      for (const cause of commonFailures) this.inc({ cause }, 0);
      for (const [cause, count] of sources.databaseFailures) this.inc({ cause }, count);
    },
  });
  read('event_streams', 'Open streams of WatchEvents.', sources.eventStreams);
  new Counter({
    ...named(
      'log_lines_dropped_total',
      'Lines of the log that were dropped because standard output was not read.',
    ),
    collect() {
      this.reset();
      this.inc(sources.droppedLogLines());
    },
  });
  new Gauge({
    ...named('database_connections', 'Connections to PostgreSQL by state, and callers that wait for one.', [
      'state',
    ]),
    collect() {
      const { totalCount, idleCount, waitingCount } = sources.pool;
      this.set({ state: 'busy' }, totalCount - idleCount);
      this.set({ state: 'idle' }, idleCount);
      this.set({ state: 'awaited' }, waitingCount);
    },
  });
  // Registered after the pool's metric, so that its own query is not counted there.
  read(
    'ready',
    '1 if /readyz reports ready: the database stores intents, or did some seconds ago, and the service is not stopping.',
    async () => ((await sources.isReady()) ? 1 : 0),
  );
  new Gauge({
    ...named('open_connections', 'Client connections by port.', ['port']),
    collect() {
      for (const [port, open] of Object.entries(sources.connections())) this.set({ port }, open);
    },
  });
}
