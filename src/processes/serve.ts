import { setTimeout as sleep } from 'node:timers/promises';
import type { DescService } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import manifest from '../../package.json' with { type: 'json' };
import { offerGasless } from '../authorizations/gasless.ts';
import type { ChainNodes, Config } from '../config/config.ts';
import { chains } from '../contract/chains.ts';
import type { ChainName } from '../contract/words.ts';
import { eventsPositionedChannel } from '../database/entities/event.ts';
import { keysChangedChannel } from '../database/entities/merchant.ts';
import { listenForNotifications } from '../database/notifications.ts';
import { createOutageLog, type OutageLog } from '../database/outage-log.ts';
import { Strangers } from '../doors/strangers.ts';
import { createEventFeed, type EventFeed } from '../events/event-feed.ts';
import { createWatchedChains, findUnwatchedMainnet } from '../payment-intents/watched-chains.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { maxStopMs } from '../telemetry/spans.ts';
import { createAddressPolicy } from '../webhooks/address-policy.ts';
import { type Background, startBackground } from './background.ts';
import { type Core, createCore } from './core.ts';
import { createDoors } from './create-doors.ts';
import { assertSecrets } from './key-checks.ts';
import type { Database } from './open-database.ts';
import { createListeners, createServers, fitConnections, reloadTls } from './servers.ts';
import { startTelemetry, type Telemetry } from './start-telemetry.ts';

export type RunningServer = Awaited<ReturnType<typeof startServer>>;

/** The ports in use, even if configured as 0. Without the role `api`, all but `metrics` are closed and 0. */
type Ports = { http: number; grpc: number; metrics: number; console?: number };

interface ServerOptions {
  /** The number of log lines dropped so far. */
  droppedLines?: () => number;
  /** Networks with a local chain: the checkout page offers its test wallet for them. */
  localChains?: readonly ChainName[];
}

/** Opens the listeners. Throws StartupError if a port or a TLS file cannot be used. */
export async function startServer(
  config: Config,
  database: Database,
  log: Logger,
  { droppedLines = () => 0, localChains = [] }: ServerOptions = {},
) {
  const outages = createOutageLog(log);
  const { logger } = outages;
  const limits = await fitConnections(config, logger);
  const telemetry = await startTelemetry(config, logger);
  const { em } = database.orm;
  const feed = createEventFeed(em, logger);
  const keys = database.keyRing('WEBHOOK_SECRET_KEYS');
  await assertSecrets(database);
  const webhooks = { keys, policy: createAddressPolicy(config.webhookAllow) };
  const watchedChains = createWatchedChains(em, config.allowUnwatched);
  await watchedChains.refresh();
  const servers = await createServers(config, limits);
  const { metrics } = telemetry;
  metrics.certificate(servers.certificateDueMs);
  const { onWorked } = outages;
  const background = startBackground(em, { config, metrics, logger, webhooks, watchedChains, onWorked });
  const stopping = new AbortController();
  const chainNodes = [...config.chainNodes];
  const gasless = offerGasless(config, facilitatorMetrics(metrics), logger);
  const work = { feed, background, webhooks, watchedChains, gasless, chainNodes, outages };
  const core = createCore(config, database, telemetry, { ...work, stopping: stopping.signal });
  const strangers = { doors: new Strangers(), operations: new Strangers(), console: new Strangers() };
  const settings = { config, limits, logger, database, localChains };
  const doors = await createDoors(core, telemetry, strangers, stopping.signal, settings).catch(
    async (error) => {
      // Otherwise the background uses the database, which the caller now closes, and keeps the process alive.
      await Promise.all([background.stopDeliveries(0), background.stop()]);
      throw error;
    },
  );
  const listeners = createListeners(servers, doors, strangers, settings, telemetry.onEnd);
  await measure(telemetry.metrics, core, database, feed, outages.failures, droppedLines, listeners);
  const notifications = await listenForChanges(database, core, feed, background, outages);
  const watches = createWatches(em, config, telemetry, background, logger);
  const stopWork = (timeoutMs: number) => {
    // Neither reading a block nor a facilitator that does not answer may take longer than the rest.
    const within = (work: Promise<unknown>) =>
      Promise.race([work, sleep(timeoutMs, undefined, { ref: false })]);
    return Promise.all([
      notifications.stop(),
      background.stopDeliveries(timeoutMs),
      // The background announces the changes made by the watchers, so it stops last.
      within(watches.stop()).then(background.stop),
      feed.stop(),
      within(gasless.stop()),
    ]);
  };
  let ports: Ports;
  try {
    await reportUnwatched(em, config, localChains, telemetry.metrics, logger);
    if (config.roles.has('watcher')) await watches.watch(config.chainNodes);
    ports = await openListeners(config, listeners);
  } catch (error) {
    await Promise.all([stopWork(1_000), ...Object.values(listeners).map((each) => each.close(0))]);
    throw error;
  }

  return {
    ports,
    /**
     * Accepts no more work, finishes what is in flight and closes the listeners. Connections still open after
     * `drainTimeForRequests` are cut. The database is left open for its owner to close.
     */
    async close() {
      core.readiness.drain();
      const requestsMs = drainTimeForRequests(config);
      const delayMs = Math.min(config.drainDelayMs, requestsMs / 2);
      core.store.endWithin(requestsMs * partForQueues);
      core.apiKeys.endWithin(requestsMs * partForQueues);
      const { operations, ...ofClients } = listeners;
      const closed = Object.values(ofClients).map((each) => each.close(requestsMs, delayMs));
      if (delayMs > 0) await sleep(delayMs);
      stopping.abort();
      await Promise.all([...closed, stopWork(requestsMs - delayMs)]);
      await core.forConsole.audit.settled();
      telemetry.requestLog.stop();
      outages.stop();
      await Promise.all([operations.close(0), telemetry.tracing?.stop()]);
    },
    /** Watches more chains. Throws StartupError if a node is on another chain. */
    watch(nodes: readonly ChainNodes[], pollMs?: number): Promise<void> {
      chainNodes.push(...nodes);
      return watches.watch(nodes, pollMs);
    },
    /** Lets payers of more chains pay by a signature. */
    addFacilitator: gasless.add,
    reloadTls: async () => metrics.certificate(await reloadTls(config, servers)),
  };
}

/** Measures facilitators as a task, if there are any: the alert takes the newest success of all processes. */
function facilitatorMetrics({ pay, taskBegan, taskWorked }: Metrics): Parameters<typeof offerGasless>[1] {
  return {
    onAdded(chain) {
      pay.begin(chain);
      taskBegan('facilitators');
    },
    onAllOffered: () => taskWorked('facilitators'),
  };
}

type Listeners = ReturnType<typeof createListeners>;

/** Without the role `api` there is only the port for operations. */
async function openListeners(config: Config, listeners: Listeners): Promise<Ports> {
  const { roles, host, httpPort, grpcPort, console } = config;
  const openMetrics = () => listeners.operations.listen(host, config.metricsPort);
  if (!roles.has('api')) return { http: 0, grpc: 0, metrics: await openMetrics() };
  return {
    http: await listeners.public.listen(host, httpPort),
    grpc: await listeners.internal.listen(host, grpcPort),
    metrics: await openMetrics(),
    ...(console && { console: await listeners.console.listen(console.host, console.port) }),
  };
}

/** Listens for changes made by other processes. */
function listenForChanges(
  { location }: Database,
  { apiKeys }: Core,
  feed: EventFeed,
  { onDeliveries, onWatchedChains }: Background,
  { logger, onWorked }: OutageLog,
) {
  const listeners = {
    // Also called when the connection is open again.
    [keysChangedChannel]: () => {
      onWorked();
      apiKeys.forget();
    },
    [eventsPositionedChannel]: () => {
      feed.notify();
      onDeliveries();
    },
    // A chain is watched, or no longer is.
    watched_chains_changed: onWatchedChains,
  };
  return listenForNotifications(location, listeners, logger);
}

/** Adds what is measured at each scrape. */
async function measure(
  metrics: Metrics,
  { services, forConsole, store, readiness }: Core,
  { orm, config }: Database,
  feed: EventFeed,
  databaseFailures: ReadonlyMap<string, number>,
  droppedLogLines: () => number,
  listeners: Listeners,
): Promise<void> {
  const namesOf = (all: readonly { desc: DescService }[]) =>
    all.flatMap(({ desc }) => desc.methods.map(({ name }) => name));
  const rpcs = namesOf(services);
  metrics.watch({
    version: manifest.version,
    rpcs: {
      public: [...rpcs, 'PayCheckout'],
      internal: rpcs,
      ...(config.console && { console: namesOf([...forConsole.services, forConsole.consoleService]) }),
    },
    waitingCreates: store.waiting,
    heldCreates: store.held,
    databaseFailures,
    eventStreams: feed.streams,
    droppedLogLines,
    pool: await orm.em.getConnection().getNativeClient(),
    connections: () => ({
      public: listeners.public.connections,
      internal: listeners.internal.connections,
      operations: listeners.operations.connections,
      ...(config.console && { console: listeners.console.connections }),
    }),
    isReady: async () => (await readiness.check()) === 'ready',
  });
}

/** The chains that this process watches: the configured ones, and those its embedded mode starts later. */
function createWatches(
  em: EntityManager,
  { unattributedMinUnits, databaseTimeouts }: Config,
  { metrics }: Telemetry,
  { onEvent }: Background,
  logger: Logger,
) {
  const watching: { stop(): Promise<void> }[] = [];
  let isStopped = false;
  return {
    async watch(nodes: readonly ChainNodes[], pollMs?: number) {
      if (nodes.length === 0 || isStopped) return;
      // Only a process that watches chains loads it.
      const { watchChains } = await import('./watch-chains.ts');
      const databaseTimeoutMs = databaseTimeouts.statementTimeoutMs;
      const limits = { unattributedMinUnits, databaseTimeoutMs };
      const options = { nodes, metrics, logger, onEvent, pollMs, ...limits };
      const started = await watchChains(em, options);
      watching.push(started);
      if (isStopped) await started.stop();
    },
    stop() {
      isStopped = true;
      return Promise.all(watching.map((one) => one.stop()));
    },
  };
}

/**
 * Logs the chains that this process could watch but has no node for. It is a warning if merchants expect
 * payments there, which nobody sees. Processes without the role `watcher` log only those.
 */
async function reportUnwatched(
  em: EntityManager,
  { roles, chainNodes }: Config,
  localChains: readonly ChainName[],
  metrics: Metrics,
  logger: Logger,
): Promise<void> {
  const isWatcher = roles.has('watcher');
  const own = isWatcher
    ? [...chainNodes, ...localChains.map((chain) => ({ mode: 'testnet' as const, chain }))]
    : [];
  const unwatched = await findUnwatchedMainnet(em);
  const without = chains.filter(
    ({ mode, chain }) => !own.some((one) => one.mode === mode && one.chain === chain),
  );
  const expected = without.filter(
    ({ mode, chain }) =>
      mode === 'mainnet' &&
      (unwatched.chains.includes(chain) ||
        (unwatched.anyChain && !own.some((one) => one.mode === 'mainnet'))),
  );
  if (isWatcher) for (const { mode, chain } of without) metrics.unwatchedChain(mode, chain);
  const reported = isWatcher ? without : expected;
  if (reported.length === 0) return;
  const names = reported.map(({ mode, chain }) => `${mode} ${chain}`);
  logger[expected.length > 0 ? 'warn' : 'info'](
    { chains: names, variables: reported.map(({ rpcVariable }) => rpcVariable) },
    'no node is configured for these chains: payments on them are not seen. Set the variables',
  );
}

/** After this part of the drain time, waiting creates and lookups are refused, so that answers arrive. */
const partForQueues = 0.8;

/** The drain timeout minus a second, and the last spans' time, to close the rest; at least half of it. */
function drainTimeForRequests({ drainTimeoutMs, tracing }: Config): number {
  return Math.max(drainTimeoutMs - 1_000 - (tracing ? maxStopMs : 0), drainTimeoutMs / 2);
}
