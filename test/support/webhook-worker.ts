// The worker that delivers webhooks, driven by the test: nothing happens unasked, and steps can be awaited.

import type { EntityManager } from '@mikro-orm/postgresql';
import { loopbackTargets } from '../../src/config/allowed-targets.ts';
import type { KeyRing } from '../../src/config/key-ring.ts';
import { createPositioner } from '../../src/events/position-events.ts';
import { createLogger } from '../../src/telemetry/logging.ts';
import { type AddressPolicy, createAddressPolicy } from '../../src/webhooks/address-policy.ts';
import { createDeliverer } from '../../src/webhooks/deliver.ts';
import {
  createDeliveries,
  createDeliveryQueue,
  type DeliveryQueue,
} from '../../src/webhooks/delivery-queue.ts';
import { createEndpointHealth, type EndpointHealth } from '../../src/webhooks/endpoint-health.ts';
import { type AttemptResult, createSender, type Sender } from '../../src/webhooks/sender.ts';

/** Permits loopback, as in the embedded mode. Answers are not stored. */
const loopbackPermitted = createAddressPolicy(loopbackTargets);

/**
 * The policy for the internet, except that these addresses of this machine count as public, and that http is
 * permitted.
 */
export function policyWithPublic(...addresses: string[]): AddressPolicy {
  const policy = createAddressPolicy({ hosts: [], networks: [] });
  return {
    ...policy,
    reachOf: (address) => (addresses.includes(address) ? 'public' : policy.reachOf(address)),
    urlProblem: () => undefined,
  };
}

export interface WebhookWorker {
  queue: DeliveryQueue;
  health: EndpointHealth;
  sender: Sender;
  deliverer: ReturnType<typeof createDeliverer>;
  /** Parsed lines of the log so far. */
  log: Record<string, unknown>[];
  /** Makes the deliveries of every event that is committed. */
  makeDeliveries(): Promise<void>;
  /** Resolves when an attempt ends, or no longer counts as one that may be answered at once. */
  room(): Promise<void>;
  /** Attempts what is due, as soon as there is room, until nothing is due or in flight. */
  attemptAll(): Promise<void>;
  /** The same after making the deliveries. */
  deliverAll(): Promise<void>;
  close(): Promise<void>;
}

export interface WebhookWorkerOptions {
  policy?: AddressPolicy;
  dnsServers?: readonly string[];
  observer?: Parameters<typeof createDeliverer>[6];
  /** Runs each attempt. */
  onSend?(
    attempt: { url: string; eventId: string },
    run: () => Promise<AttemptResult>,
  ): Promise<AttemptResult>;
}

export function createWebhookWorker(
  em: EntityManager,
  keys: KeyRing,
  { policy = loopbackPermitted, dnsServers, observer, onSend = (_, run) => run() }: WebhookWorkerOptions = {},
): WebhookWorker {
  const log: Record<string, unknown>[] = [];
  const logger = createLogger('trace', { write: (text: string) => void log.push(JSON.parse(text)) });
  const queue = createDeliveryQueue(em);
  const health = createEndpointHealth(em);
  const sender = createSender(policy, dnsServers);
  const observed: Sender = {
    ...sender,
    send: (url, headers, body) =>
      onSend({ url, eventId: headers['webhook-id'] ?? '' }, () => sender.send(url, headers, body)),
  };
  let onRoom = () => {};
  const deliverer = createDeliverer(queue, health, observed, keys, logger, () => onRoom(), {
    // The tests set their own pauses.
    failurePauseMs: 0,
    ...observer,
  });
  const { positionAll } = createPositioner(em, createDeliveries);
  const makeDeliveries = async () => {
    await positionAll();
  };
  const attemptAll = async () => {
    for (;;) {
      const room = new Promise<'room'>((resolve) => {
        onRoom = () => resolve('room');
      });
      if (await deliverer.deliverSome()) continue;
      const idle = deliverer.idle().then(() => 'idle' as const);
      if ((await Promise.race([room, idle])) === 'room') continue;
      if (!(await deliverer.deliverSome())) return;
    }
  };
  return {
    queue,
    health,
    sender,
    deliverer,
    log,
    makeDeliveries,
    room: () =>
      new Promise((resolve) => {
        onRoom = resolve;
      }),
    attemptAll,
    async deliverAll() {
      await makeDeliveries();
      await attemptAll();
    },
    async close() {
      await sender.close();
      await deliverer.idle();
    },
  };
}

/** The state of a worker that has nothing in flight, with room for a whole claim. */
export const nothingInFlight: Parameters<DeliveryQueue['claim']>[0] = {
  byEndpoint: new Map(),
  byMerchant: new Map(),
  slow: new Set(),
  prompt: new Set(),
  paused: new Map(),
  maxHealthy: 8,
  maxFailing: 1,
  maxOfMerchant: 64,
  merchantReserve: 16,
  maxInReserve: 4,
  room: 128,
  roomForFailing: 256,
};
