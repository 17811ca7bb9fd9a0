// The background work of a process: the tasks of each role, and their intervals.

import { setTimeout as sleep } from 'node:timers/promises';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { KeyRing } from '../config/key-ring.ts';
import { createAuditRemoval } from '../console/audit.ts';
import { createReportFolding } from '../console/reports.ts';
import { readClockAheadMs, readReplication } from '../database/replication.ts';
import { createPositioner } from '../events/position-events.ts';
import { createEventRemoval } from '../events/remove-events.ts';
import { createExpiry, logUnreadable } from '../payment-intents/expire-payment-intents.ts';
import { createMetadataIndexing } from '../payment-intents/metadata-index.ts';
import type { WatchedChains } from '../payment-intents/watched-chains.ts';
import { type Repeater, type RepeaterOptions, startRepeater } from '../scheduling/repeater.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { AddressPolicy } from '../webhooks/address-policy.ts';
import { createDeliverer } from '../webhooks/deliver.ts';
import { createDeliveries, createDeliveryQueue } from '../webhooks/delivery-queue.ts';
import { createEndpointHealth } from '../webhooks/endpoint-health.ts';
import type { Sender } from '../webhooks/sender.ts';

/** Delay until another process's events get a position. With the streams' polling: under half a second. */
const positionEveryMs = 200;
/** How late an intent may expire. */
const expireEveryMs = 1_000;
const removeEveryMs = 60_000;
/** A thousand events at a time, so at most 5,700 a second: that does not delay new events' positions. */
const removePaceMs = 175;
/** How late an intent can be found by its metadata. */
const indexMetadataEveryMs = 1_000;
/** Four thousand at a time: 2,200 a second of a backlog of over a minute. Creates keep most of their rate. */
const indexMetadataPaceMs = 1_800;
/** How old changes get before they are folded. A summary adds up newer ones itself. */
const foldReportsEveryMs = 2_000;
/** How late a retry may be, or a delivery without a notification. */
const deliverEveryMs = 500;
const measureEveryMs = 10_000;
/** How late a process learns that a chain is watched, without a notification. */
const readWatchedEveryMs = 10_000;

interface BackgroundOptions {
  config: Config;
  metrics: Metrics;
  logger: Logger;
  /** Its keys are `WEBHOOK_SECRET_KEYS`. */
  webhooks: { keys: KeyRing; policy: AddressPolicy };
  watchedChains: WatchedChains;
  /** Call it when the database has worked. */
  onWorked: () => void;
}

export type Background = ReturnType<typeof startBackground>;

export function startBackground(em: EntityManager, options: BackgroundOptions) {
  const { roles } = options.config;
  const deliveries = roles.has('deliveries') ? startDeliveries(em, options) : undefined;
  const positions = startPositions(em, options, () => deliveries?.wake());
  const watchedChains = roles.has('api')
    ? repeat(options, 'watched chains', readWatchedEveryMs, options.watchedChains.refresh)
    : undefined;
  const repeaters = [
    positions,
    ...(watchedChains ? [watchedChains] : []),
    // Every process measures it, because each may be the only one that Prometheus reaches.
    repeat(options, 'read the state of replication', measureEveryMs, async () => {
      const replication = await readReplication(em);
      options.metrics.replication(replication, await readClockAheadMs(em));
      // This process may never be asked whether it is ready.
      if (replication.acceptsWrites) options.onWorked();
    }),
    ...(roles.has('expiry') ? startExpiry(em, options, positions.wake) : []),
  ];
  return {
    /** Call it when an event was recorded, so that it gets its position at once. */
    onEvent: positions.wake,
    /** Call it when deliveries were created: with that role, this process attempts them at once. */
    onDeliveries: () => deliveries?.wake(),
    /** Call it when a chain is watched or no longer watched. */
    onWatchedChains: () => watchedChains?.wake(),
    /** Attempts no more deliveries. Resolves when the current ones are done, or after the timeout. */
    stopDeliveries: async (timeoutMs: number) => deliveries?.stop(timeoutMs),
    /** Starts no more of the other work. Resolves when the current work is done. */
    async stop() {
      await Promise.all(repeaters.map((repeater) => repeater.stop()));
    },
  };
}

/** Starts a task of this process. Without an interval it runs only when woken. */
export function repeat(
  { logger, metrics }: Pick<BackgroundOptions, 'logger' | 'metrics'>,
  name: string,
  intervalMs: number | undefined,
  work: RepeaterOptions['work'],
  paceMs = 0,
): Repeater {
  // A task that only runs when woken may have nothing to do.
  if (intervalMs) metrics.taskBegan(name);
  const onWorked = () => void (intervalMs && metrics.taskWorked(name));
  return startRepeater({ name, intervalMs, work, paceMs, onWorked, logger });
}

function startPositions(em: EntityManager, options: BackgroundOptions, onDeliveries: () => void): Repeater {
  const { roles } = options.config;
  const { positionSome } = createPositioner(em, createDeliveries);
  // Every process positions its own events. These roles also position those of processes that have ended.
  const everyMs = roles.has('expiry') || roles.has('deliveries') ? positionEveryMs : undefined;
  // One batch at a time, so that stopping waits for no backlog.
  return repeat(options, 'position events', everyMs, async () => {
    const { size, hasMore } = await positionSome();
    if (size > 0) onDeliveries();
    return hasMore;
  });
}

function startExpiry(em: EntityManager, options: BackgroundOptions, onEvent: () => void): Repeater[] {
  const { config, metrics, logger } = options;
  const expire = createExpiry(em, logUnreadable(logger));
  let expiredAtMs = Date.now();
  const removeEvents = createEventRemoval(em, config.eventRetentionDays);
  const indexMetadata = createMetadataIndexing(em, config.queue.maxWaitMs);
  return [
    repeat(options, 'expiry', expireEveryMs, async () => {
      const { expired, lagMs, hasMore } = await expire().catch((reason) => {
        metrics.expiry(0, Date.now() - expiredAtMs);
        throw reason;
      });
      expiredAtMs = Date.now();
      metrics.expiry(expired, lagMs);
      if (expired > 0) onEvent();
      return hasMore;
    }),
    repeat(options, 'remove old events', removeEveryMs, removeEvents, removePaceMs),
    repeat(options, 'remove old audit entries', removeEveryMs, createAuditRemoval(em), removePaceMs),
    repeat(options, 'fold reports', foldReportsEveryMs, createReportFolding(em)),
    repeat(options, 'index metadata', indexMetadataEveryMs, indexMetadata, indexMetadataPaceMs),
  ];
}

function startDeliveries(em: EntityManager, options: BackgroundOptions) {
  const { metrics, logger, webhooks } = options;
  const queue = createDeliveryQueue(em);
  const health = createEndpointHealth(em);
  const sender = createLazySender(webhooks.policy);
  const deliverer = createDeliverer(queue, health, sender, webhooks.keys, logger, () => delivery.wake(), {
    onAttempt: (outcome, { durationMs }) => metrics.webhookAttempt(outcome, durationMs),
    onUnrecorded: metrics.webhookUnrecorded,
    onDisabled: metrics.webhookDisabled,
  });
  const delivery = repeat(options, 'deliver webhooks', deliverEveryMs, deliverer.deliverSome);
  const measuring = repeat(options, 'measure webhooks', measureEveryMs, async () =>
    metrics.webhookBacklog(await queue.backlog()),
  );
  const upkeep = repeat(options, 'give up webhooks', measureEveryMs, async () => {
    return (await health.giveUpDeliveries()) > 0;
  });
  return {
    wake: delivery.wake,
    async stop(timeoutMs: number) {
      await Promise.all([delivery.stop(), measuring.stop(), upkeep.stop()]);
      await Promise.race([deliverer.idle(), sleep(timeoutMs, undefined, { ref: false })]);
      // An attempt cut off says nothing about the receiver. It is repeated when its lease expires.
      deliverer.forgetUnanswered();
      await sender.close();
      await deliverer.idle();
    },
  };
}

/** Loads the HTTP client with the first delivery, because loading it takes longer than most of the start. */
function createLazySender(policy: AddressPolicy): Sender {
  let loading: Promise<Sender> | undefined;
  const load = () => {
    loading ??= import('../webhooks/sender.ts').then(({ createSender }) => createSender(policy));
    return loading;
  };
  return {
    send: async (...delivery) => (await load()).send(...delivery),
    close: async () => (await loading)?.close(),
  };
}
