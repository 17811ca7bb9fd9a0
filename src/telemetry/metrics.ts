import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { catalogue } from '../contract/error-catalogue.ts';
import type { RequestContext, RequestOutcome } from '../requests/request-context.ts';

/** The database's connection pool, as `pg` counts it. */
export interface PoolUse {
  totalCount: number;
  idleCount: number;
  waitingCount: number;
}

/** What is read when somebody asks, rather than counted as it happens. */
export interface MetricSources {
  version: string;
  /** Creates that wait to be written. */
  waitingCreates: () => number;
  /** Lines of the log that were dropped because nobody read them. */
  droppedLogLines: () => number;
  pool: PoolUse;
  /** Open connections of each listener. */
  connections: () => Readonly<Record<string, number>>;
  isReady: () => Promise<boolean>;
}

export interface Metrics {
  /** A request has ended. `rpc` is undefined for a path that is nobody's. */
  request(context: RequestContext, rpc: string | undefined, outcome: RequestOutcome): void;
  /** A statement has written that many creates, or failed to. */
  batch(size: number, durationMs: number): void;
  /** Whom a key stands for was remembered, or the database had to be asked. */
  keyLookup(remembered: boolean): void;
  /** Adds what is read when somebody asks. */
  watch(sources: MetricSources): void;
  /** All of it in Prometheus' text format. */
  text(): Promise<{ contentType: string; body: string }>;
}

/** Up to 10 s, which is what a statement may take; most creates end in the first five. */
const durationBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * The numbers of one running service. Their names are part of what operators rely on: ops/ and docs/operations.md use
 * them. `rpcs` are counted from zero: of a series that begins with its first error, Prometheus would see no increase.
 */
export function createMetrics(rpcs: readonly string[]): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return {
    request: createRequestMetrics(registry, rpcs),
    batch: createBatchMetrics(registry),
    keyLookup: createKeyLookupMetrics(registry),
    watch: (sources) => watchSources(registry, sources),
    async text() {
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}

function createRequestMetrics(registry: Registry, rpcs: readonly string[]): Metrics['request'] {
  const requests = new Counter({
    name: 'payment_intents_requests_total',
    help: 'Requests that have ended, by door, method and code of the catalogue (ok where all went well).',
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

  // Kept, because prom-client looks a series up by a text that it makes of all labels, each time.
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

  for (const door of ['public', 'internal']) {
    for (const rpc of rpcs)
      for (const code of ['ok', ...Object.keys(catalogue)]) seriesOf(door, rpc, code).count.inc(0);
  }

  return ({ door, startedAtMs }, rpc = 'none', outcome) => {
    const { count, duration } = seriesOf(door, rpc, outcome);
    count.inc();
    duration.observe((performance.now() - startedAtMs) / 1000);
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
    help: 'Lookups of API keys: hit where the answer was remembered, miss where the database was asked.',
    labelNames: ['result'],
    registers: [registry],
  });
  const [hits, misses] = [lookups.labels('hit'), lookups.labels('miss')];
  return (remembered) => (remembered ? hits : misses).inc();
}

function watchSources(registry: Registry, sources: MetricSources): void {
  new Gauge({
    name: 'payment_intents_build_info',
    help: 'Always 1; the labels say what is running.',
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
  // Behind the pool: this question to the database is no part of what the pool is used for.
  new Gauge({
    name: 'payment_intents_ready',
    help: '1 where /readyz says so: the database answers and the service is not about to stop.',
    registers: [registry],
    async collect() {
      this.set((await sources.isReady()) ? 1 : 0);
    },
  });
  new Gauge({
    name: 'payment_intents_open_connections',
    help: 'Connections of clients by port.',
    labelNames: ['port'],
    registers: [registry],
    collect() {
      for (const [port, open] of Object.entries(sources.connections())) this.set({ port }, open);
    },
  });
}
