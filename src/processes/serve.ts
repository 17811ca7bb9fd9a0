import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import manifest from '../../package.json' with { type: 'json' };
import { checkoutPolicy } from '../checkout/get-checkout.ts';
import { createCheckoutService } from '../checkout/service.ts';
import type { Config, TransportLimits } from '../config/config.ts';
import type { KeyRing } from '../config/key-ring.ts';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { chains } from '../contract/chains.ts';
import { file_google_rpc_error_details } from '../contract/gen/google/rpc/error_details_pb.ts';
import { Health } from '../contract/gen/health/v1/health_pb.ts';
import type { ChainName } from '../contract/words.ts';
import { eventsPositionedChannel } from '../database/entities/event.ts';
import { keysChangedChannel } from '../database/entities/merchant.ts';
import { watchedChainsChangedChannel } from '../database/entities/settlement.ts';
import { listenForNotifications } from '../database/notifications.ts';
import { createDatabaseProbe } from '../database/writability.ts';
import { authenticateByKey, authenticateBySecret } from '../doors/authentication.ts';
import { createGate } from '../doors/call.ts';
import { registerHealth } from '../doors/internal/health.ts';
import { createInternalDoor } from '../doors/internal/internal-door.ts';
import { registerReflection } from '../doors/internal/reflection.ts';
import { type Connection, Listener } from '../doors/listener.ts';
import { createOperationsDoor } from '../doors/operations/operations-door.ts';
import { createReadiness } from '../doors/operations/readiness.ts';
import { loadCheckoutPage } from '../doors/public/checkout-page.ts';
import { loadDocumentation } from '../doors/public/documentation.ts';
import { createPublicDoor } from '../doors/public/public-door.ts';
import { createRateLimit } from '../doors/rate-limit.ts';
import { Strangers } from '../doors/strangers.ts';
import { createTestWallet, type TestWalletOptions } from '../embedded/test-wallet-door.ts';
import { createEventFeed, type EventFeed } from '../events/event-feed.ts';
import { createEventService } from '../events/service.ts';
import { createApiKeys } from '../merchants/api-keys.ts';
import { intentOpenedBy } from '../payment-intents/client-secret.ts';
import { createPaymentIntentService } from '../payment-intents/service.ts';
import { createPaymentIntentStore } from '../payment-intents/store.ts';
import {
  createWatchedChains,
  findUnwatchedMainnet,
  type WatchedChains,
} from '../payment-intents/watched-chains.ts';
import { authenticated } from '../requests/method.ts';
import type { RequestContext, RequestObserver } from '../requests/request-context.ts';
import type { RequestHeader } from '../requests/request-header.ts';
import type { Tracing } from '../requests/tracing.ts';
import { createTransferService } from '../settlement/service.ts';
import type { LogOutput } from '../telemetry/logging.ts';
import { createMetrics, type Metrics } from '../telemetry/metrics.ts';
import { createRequestLog, type RequestLog } from '../telemetry/request-log.ts';
import { startTracing } from '../telemetry/tracing.ts';
import { type AddressPolicy, createAddressPolicy } from '../webhooks/address-policy.ts';
import { assertWebhookKeys } from '../webhooks/key-versions.ts';
import { createWebhookService } from '../webhooks/service.ts';
import { type Background, startBackground } from './background.ts';
import type { Database } from './open-database.ts';
import { openFilesLimit } from './open-files.ts';
import { connectServers, createServers, fitConnections, operationsLimits, reloadTls } from './servers.ts';
import type { RunningWatchers } from './watch-chains.ts';

export interface RunningServer {
  /**
   * The ports in use, also if they were configured as 0. Without the role `api` only `metrics` is open and the others
   * are 0.
   */
  ports: { http: number; grpc: number; metrics: number };
  /**
   * Accepts no more work, finishes what is in flight and closes the listeners. Connections still open a second before
   * the drain timeout are cut. The database is left open for its owner to close.
   */
  close(): Promise<void>;
  /** Watches more chains. Throws StartupError if a node is on another chain. */
  watch(nodes: readonly ChainNodes[], pollMs?: number): Promise<void>;
  /**
   * Reads the TLS files again: new connections use the new certificate. Throws StartupError and keeps the old
   * certificate if the files are not usable.
   */
  reloadTls(): Promise<void>;
}

export interface ServerOptions {
  droppedLines?: LogOutput['droppedLines'];
  /** Networks with a local chain: the checkout page offers its test wallet for them. */
  localChains?: readonly ChainName[];
}

/** Opens the three listeners. Throws StartupError if a port or a TLS file cannot be used. */
export async function startServer(
  config: Config,
  database: Database,
  logger: Logger,
  { droppedLines = () => 0, localChains = [] }: ServerOptions = {},
): Promise<RunningServer> {
  const limits = {
    ...config.limits,
    maxConnections: fitConnections(config, await openFilesLimit(), logger),
  };
  const telemetry = await startTelemetry(config, logger);
  const { em } = database.orm;
  const feed = createEventFeed(em, logger);
  const webhookKeys = database.keyRing('WEBHOOK_SECRET_KEYS');
  await assertWebhookKeys(em, webhookKeys.versions);
  const addressPolicy = createAddressPolicy(config.webhookAllow);
  const watchedChains = createWatchedChains(em, config.allowUnwatched);
  await watchedChains.refresh();
  const background = startBackground(em, {
    config,
    metrics: telemetry.metrics,
    logger,
    tracing: telemetry.tracing,
    webhookKeys,
    addressPolicy,
    watchedChains,
  });
  const core = createCore(config, database, telemetry, {
    feed,
    background,
    webhooks: { keys: webhookKeys, policy: addressPolicy },
    watchedChains,
  });
  const stopping = new AbortController();
  const strangers = { doors: new Strangers(), operations: new Strangers() };
  const doors = await createDoors(core, telemetry, strangers.doors, stopping.signal, {
    config,
    limits,
    logger,
    database,
    localChains,
    onPublicKey: (connection) => publicListener.noteValidKey(connection),
    onInternalKey: (connection) => internalListener.noteValidKey(connection),
  });
  const servers = await createServers(config, limits);
  connectServers(servers, doors, telemetry.onEnd, strangers, limits, logger);

  const listeners = [
    new Listener(servers.public, 'HTTP_PORT', config.httpPort, strangers.doors, limits, logger),
    new Listener(servers.internal, 'GRPC_PORT', config.grpcPort, strangers.doors, limits, logger),
    new Listener(
      servers.operations,
      'METRICS_PORT',
      config.metricsPort,
      strangers.operations,
      operationsLimits(limits),
      logger,
    ),
  ] as const;
  const [publicListener, internalListener, operationsListener] = listeners;
  await measure(telemetry.metrics, core, database, feed, droppedLines, listeners);
  const notifications = await listenForChanges(database, core, feed, background, logger);
  const servesApi = config.roles.has('api');
  const watches = createWatches(em, config, telemetry, background, logger);
  const stopWork = (timeoutMs: number) =>
    Promise.all([
      notifications.stop(),
      // The background announces the changes made by the watchers, so it stops last.
      watches.stop().then(() => background.stop(timeoutMs)),
      feed.stop(),
    ]);
  try {
    await reportUnwatched(em, config, localChains, telemetry.metrics, logger);
    if (config.roles.has('watcher')) await watches.watch(config.chainNodes);
    for (const listener of servesApi ? listeners : [operationsListener]) await listener.listen(config.host);
  } catch (error) {
    await Promise.all([stopWork(0), ...listeners.map((listener) => listener.close(0))]);
    throw error;
  }

  return {
    ports: {
      http: servesApi ? publicListener.port : 0,
      grpc: servesApi ? internalListener.port : 0,
      metrics: operationsListener.port,
    },
    async close() {
      core.readiness.drain();
      stopping.abort();
      const requestsMs = drainTimeForRequests(config.drainTimeoutMs);
      await Promise.all([
        publicListener.close(requestsMs),
        internalListener.close(requestsMs),
        stopWork(requestsMs),
      ]);
      telemetry.requestLog.stop();
      await Promise.all([operationsListener.close(0), telemetry.tracing?.stop()]);
    },
    watch: watches.watch,
    reloadTls: () => reloadTls(config, servers),
  };
}

/** Takes notice of what other processes have changed. */
function listenForChanges(
  { location }: Database,
  { apiKeys }: Core,
  feed: EventFeed,
  { onDeliveries, onWatchedChains }: Background,
  logger: Logger,
) {
  const listeners = {
    [keysChangedChannel]: apiKeys.forget,
    [eventsPositionedChannel]: () => {
      feed.notify();
      onDeliveries();
    },
    [watchedChainsChangedChannel]: onWatchedChains,
  };
  return listenForNotifications(location, listeners, logger);
}

/** Adds what is measured at each scrape. */
async function measure(
  metrics: Metrics,
  { services, store, readiness }: Core,
  { orm }: Database,
  feed: EventFeed,
  droppedLogLines: () => number,
  [publicListener, internalListener, operationsListener]: readonly [Listener, Listener, Listener],
): Promise<void> {
  metrics.watch({
    version: manifest.version,
    rpcs: services.flatMap(({ desc }) => desc.methods.map(({ name }) => name)),
    waitingCreates: store.waiting,
    eventStreams: feed.streams,
    droppedLogLines,
    pool: await orm.em.getConnection().getNativeClient(),
    connections: () => ({
      public: publicListener.connections,
      internal: internalListener.connections,
      operations: operationsListener.connections,
    }),
    isReady: async () => (await readiness.check()) === 'ready',
  });
}

/** The chains that this process watches: those of its configuration, and those that its embedded mode starts later. */
function createWatches(
  em: EntityManager,
  { unattributedMinUnits, databaseTimeouts }: Config,
  { metrics, tracing }: Telemetry,
  { onEvent }: Background,
  logger: Logger,
): { watch: RunningServer['watch']; stop(): Promise<unknown> } {
  const watching: RunningWatchers[] = [];
  let isStopped = false;
  return {
    async watch(nodes, pollMs) {
      if (nodes.length === 0 || isStopped) return;
      // Loads viem, which takes longer than everything else.
      const { watchChains } = await import('./watch-chains.ts');
      const pace = pollMs === undefined ? {} : { pollMs };
      const databaseTimeoutMs = databaseTimeouts.statementTimeoutMs;
      const limits = { unattributedMinUnits, databaseTimeoutMs };
      const options = { nodes, metrics, logger, tracing, onEvent, ...limits, ...pace };
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
 * Logs the chains that this process could watch but has no node for. A warning if merchants expect payments there that
 * nobody sees; processes without the role `watcher` log only those.
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
  logger[expected.length > 0 ? 'warn' : 'info'](
    {
      chains: reported.map(({ mode, chain }) => `${mode} ${chain}`),
      variables: reported.map(({ rpcVariable }) => rpcVariable),
    },
    'no node is configured for these chains: payments on them are not seen. Set the variables',
  );
}

interface Telemetry {
  metrics: Metrics;
  requestLog: RequestLog;
  tracing: Tracing | undefined;
  onEnd: RequestObserver;
}

/** Creates the observers of completed requests. */
async function startTelemetry(config: Config, logger: Logger): Promise<Telemetry> {
  const metrics = createMetrics();
  const tracing = config.tracing ? await startTracing(manifest.version, logger) : undefined;
  const requestLog = createRequestLog(logger);
  return {
    metrics,
    requestLog,
    tracing,
    onEnd(context, rpc, outcome) {
      requestLog.observe(context, rpc, outcome);
      metrics.request(context, rpc, outcome);
      tracing?.end(context, outcome);
    },
  };
}

interface Work {
  feed: EventFeed;
  background: Background;
  webhooks: { keys: KeyRing; policy: AddressPolicy };
  watchedChains: WatchedChains;
}

/** The services, with their gate, that the doors share. */
function createCore(
  config: Config,
  database: Database,
  { metrics, tracing }: Telemetry,
  { feed, background: { onEvent, onDeliveries }, webhooks, watchedChains }: Work,
) {
  const { em } = database.orm;
  const apiKeys = createApiKeys(em, database.keyRing('API_KEY_PEPPERS'), {
    onLookup: metrics.keyLookup,
    tracing,
  });
  const databaseProbe = createDatabaseProbe(em);
  const store = createPaymentIntentStore(em, config.queue, {
    onBatch: metrics.batch,
    onFailedWrite: databaseProbe.onFailedWrite,
    tracing,
  });
  const clientSecretKeys = database.keyRing('CLIENT_SECRET_KEYS');
  const forKeys = [
    createPaymentIntentService(em, store, clientSecretKeys, watchedChains, onEvent),
    createEventService(em, feed),
    createWebhookService(em, { ...webhooks, onEvent, onDeliveries }),
    createTransferService(em, onEvent),
  ];
  const checkout = createCheckoutService(em);
  const takeFromLimit = createRateLimit(config.rateLimits, [...forKeys, checkout]);
  const byKey = authenticateByKey(apiKeys);
  const takeOfCheckout = (context: RequestContext) => takeFromLimit(context, checkoutPolicy);
  const bySecret = authenticateBySecret((secret) => intentOpenedBy(clientSecretKeys, secret), takeOfCheckout);
  const services = [
    ...forKeys.map((service) => authenticated(service, byKey)),
    authenticated(checkout, bySecret),
  ];
  return {
    apiKeys,
    store,
    services,
    gate: createGate(takeFromLimit),
    /** The gate of what the checkout page calls besides its method. */
    async admitPayer(context: RequestContext, header: RequestHeader) {
      const opened = await bySecret(context, header);
      takeOfCheckout(context);
      return opened;
    },
    readiness: createReadiness(databaseProbe.probe),
  };
}

type Core = ReturnType<typeof createCore>;

interface DoorSettings {
  config: Config;
  limits: TransportLimits;
  logger: Logger;
  database: Database;
  localChains: readonly ChainName[];
  /** Called with the connection of each request whose key is valid. */
  onPublicKey: (connection: Connection) => void;
  onInternalKey: (connection: Connection) => void;
}

async function createDoors(
  { services, gate, admitPayer, readiness }: Core,
  { onEnd, tracing, metrics }: Telemetry,
  strangers: Strangers,
  shutdownSignal: AbortSignal,
  { config, limits, logger, database, localChains, onPublicKey, onInternalKey }: DoorSettings,
) {
  const scheme = config.tls ? 'https' : 'http';
  // Only on a developer's own machine and without TLS: the page is at http://localhost or http://127.0.0.1.
  const allowsTryIt = database.embedded && scheme === 'http';
  const { requestTimeoutMs } = limits;
  const sites = await Promise.all([loadDocumentation({ allowsTryIt }), loadCheckoutPage(localChains)]);
  if (localChains.length > 0) {
    const { isDraining } = readiness;
    const pay = testWalletOf(config, database, localChains);
    sites.push(createTestWallet({ admit: admitPayer, pay, isDraining, requestTimeoutMs, scheme }));
  }
  const common = { services, gate, strangers, logger, onEnd, tracing, requestTimeoutMs };
  return {
    scheme,
    public: createPublicDoor({
      ...common,
      isDraining: readiness.isDraining,
      trustedProxies: config.trustedProxies,
      onValidKey: onPublicKey,
      scheme,
      sites,
      allowsTryIt,
    }),
    internal: createInternalDoor({
      ...common,
      openRoutes: (router) => {
        const contract = services.map(({ desc }) => desc);
        registerHealth(
          router,
          readiness,
          contract.map(({ typeName }) => typeName),
        );
        registerReflection(router, [...contract, Health], [file_google_rpc_error_details]);
      },
      onValidKey: onInternalKey,
      shutdownSignal,
    }),
    operations: createOperationsDoor(readiness, metrics),
  } as const;
}

function testWalletOf(
  { dataDir }: Config,
  { orm }: Database,
  chains: readonly ChainName[],
): TestWalletOptions['pay'] {
  return async (intent, amount) => {
    // Loads viem, like the watcher of these chains.
    const { payFromTestWallet } = await import('../embedded/test-wallet.ts');
    return payFromTestWallet(orm.em, { dataDir, chains }, intent, amount);
  };
}

/** The drain timeout minus the time reserved for closing the rest: a second, or half of a shorter timeout. */
function drainTimeForRequests(drainTimeoutMs: number): number {
  return Math.max(drainTimeoutMs - 1_000, drainTimeoutMs / 2);
}
