// Delivers webhooks: claims due deliveries, sends them, records outcomes, in any number of processes.

import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { KeyRing } from '../config/key-ring.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { eventText } from '../events/event.ts';
import { traceDelivery } from '../telemetry/spans.ts';
import type { ClaimedDelivery, DeliveryQueue } from './delivery-queue.ts';
import type { EndpointHealth } from './endpoint-health.ts';
import type { AttemptResult, Sender } from './sender.ts';
import { signedHeaders } from './signature.ts';

/** Maximum attempts in flight. Each holds a connection, and an event's row and body of up to 70 KB each. */
const maxInFlight = 768;
/** Maximum of these for endpoints that are neither failing nor slow. */
const maxPrompt = 512;
/** No more is claimed for failing or slow endpoints while this many of their attempts are in flight. */
const maxLimited = 256;
/** Per merchant: the maximum, the share of it reserved for healthy endpoints, each one's maximum there. */
const maxOfMerchant = 64;
const reserveShare = 1 / 4;
const maxInReserve = 4;
/** A merchant may use at most this share of the free attempts, so that some are left for others. */
const freeShare = 1 / 4;
const maxOfHealthyEndpoint = 8;
const maxOfFailingEndpoint = 1;
/** A claim that took longer is discarded: the rest of its lease may be too short for an attempt. */
const maxClaimMs = 15_000;
/** An endpoint that takes longer counts as slow, until it answers faster. */
const slowMs = 1_000;
/** Pause of an endpoint after a failure; each further failure doubles it. */
const defaultFailurePauseMs = 1_000;
const maxFailurePauseMs = 15_000;
/** Maximum slow and maximum prompt endpoints remembered, the most recent of each. */
const maxRemembered = 1_000;
/** Maximum deliveries claimed at once. If the process is killed, these wait until their lease expires. */
const maxClaimed = 128;

interface DelivererOptions {
  onAttempt?: (outcome: 'delivered' | 'failed', result: AttemptResult) => void;
  onUnrecorded?: () => void;
  onDisabled?: () => void;
  /** Pause of an endpoint after its first failure. */
  failurePauseMs?: number;
}

export function createDeliverer(
  queue: DeliveryQueue,
  health: EndpointHealth,
  sender: Sender,
  keys: KeyRing,
  logger: Logger,
  /** Called when an attempt has ended and more can be claimed. */
  onRoom: () => void,
  { onAttempt, onUnrecorded, onDisabled, failurePauseMs = defaultFailurePauseMs }: DelivererOptions = {},
) {
  /** The attempts, by their delivery. */
  const inFlight = new Map<ClaimedDelivery, Promise<void>>();
  let isLeaving = false;
  const slow = new LRUCache<string, true>({ max: maxRemembered });
  const prompt = new LRUCache<string, true>({ max: maxRemembered });
  /** End of each endpoint's pause, by `performance.now()`. */
  const pauses = new Map<string, number>();

  const notePace = (endpointId: string, isSlow: boolean) => {
    (isSlow ? slow : prompt).set(endpointId, true);
    (isSlow ? prompt : slow).delete(endpointId);
  };

  const attempt = async (delivery: ClaimedDelivery): Promise<void> => {
    const { event, endpointId, url, failures, secrets } = delivery;
    const body = eventText(event);
    const id = formatIdentifier('evt', event.id);
    const headers = signedHeaders(keys, endpointId, secrets, { id, body, at: delivery.claimedAt });
    const becomesSlow = setTimeout(() => {
      notePace(endpointId, true);
      onRoom();
    }, slowMs);
    const result = await traceDelivery({ url, eventId: id, traceparent: event.traceparent ?? null }, () =>
      sender.send(url, headers, body),
    ).finally(() => clearTimeout(becomesSlow));
    if (isLeaving && result.statusCode === undefined) return;
    notePace(endpointId, result.durationMs > slowMs);
    const recorded = await queue.record(delivery, result);
    onAttempt?.(result.error === undefined ? 'delivered' : 'failed', result);
    // The lease has expired, or the endpoint was disabled.
    if (recorded === undefined) return;
    if (recorded.status === 'failed') logGivenUp(logger, delivery, recorded.attempts, result);
    const pauseMs = pauseAfter(failures, failurePauseMs);
    if (result.error !== undefined) pauses.set(endpointId, performance.now() + pauseMs);
    try {
      if (await noteHealth(health, delivery, result, logger)) onDisabled?.();
    } catch (reason) {
      logger.warn({ err: reason, ...idsOf(delivery) }, "could not note a webhook endpoint's health");
    }
  };

  const start = (delivery: ClaimedDelivery) => {
    const ended = attempt(delivery)
      .catch((reason) => {
        // The outcome is not recorded, so the delivery is attempted again when its lease has expired.
        onUnrecorded?.();
        const message = 'could not record a webhook attempt; it is repeated when its lease expires';
        logger.warn({ err: reason, ...idsOf(delivery) }, message);
      })
      .finally(() => {
        inFlight.delete(delivery);
        onRoom();
      });
    inFlight.set(delivery, ended);
  };

  return {
    /** Starts attempts up to the limits. Resolves with true if more are probably due and there is room. */
    async deliverSome(): Promise<boolean> {
      const deliveries = [...inFlight.keys()];
      const limited = deliveries.filter((each) => each.failures > 0 || slow.has(each.endpointId)).length;
      const room = Math.min(maxPrompt - (inFlight.size - limited), maxInFlight - inFlight.size, maxClaimed);
      if (room <= 0) return false;
      const beganAtMs = performance.now();
      for (const [endpointId, untilMs] of pauses) if (untilMs <= beganAtMs) pauses.delete(endpointId);
      const claimed = await queue.claim({
        ...{ slow, prompt, paused: pauses, room },
        byEndpoint: countsOf(deliveries.map(({ endpointId }) => endpointId)),
        byMerchant: countsOf(deliveries.map(({ event }) => event.merchantId)),
        ...limitsOfMerchant(inFlight.size),
        maxHealthy: maxOfHealthyEndpoint,
        maxFailing: maxOfFailingEndpoint,
        maxInReserve,
        roomForFailing: maxLimited - limited,
      });
      if (performance.now() - beganAtMs > maxClaimMs) return false;
      for (const delivery of claimed) start(delivery);
      return claimed.length > 0;
    },
    /** From now on attempts without an answer are not recorded. */
    forgetUnanswered(): void {
      isLeaving = true;
    },
    /** Resolves when no attempt is in flight. */
    async idle(): Promise<void> {
      while (inFlight.size > 0) await Promise.allSettled(inFlight.values());
    },
  };
}

/** A merchant's limits: at most a share of the attempts that are free now. */
function limitsOfMerchant(inFlight: number): { maxOfMerchant: number; merchantReserve: number } {
  const most = Math.min(maxOfMerchant, Math.ceil((maxInFlight - inFlight) * freeShare));
  return { maxOfMerchant: most, merchantReserve: Math.ceil(most * reserveShare) };
}

function countsOf(ids: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}

/** The pause after a failure, which doubles with each of those before it. */
const pauseAfter = (failures: number, firstMs: number) =>
  Math.min(firstMs * 2 ** Math.min(failures, 10), maxFailurePauseMs);

/** Counts the attempt for its endpoint. Returns true if that has disabled the endpoint. */
async function noteHealth(
  health: EndpointHealth,
  delivery: ClaimedDelivery,
  { error, statusCode }: AttemptResult,
  logger: Logger,
): Promise<boolean> {
  const { endpointId, url, failures } = delivery;
  if (error === undefined) {
    if (failures > 0) await health.succeeded(endpointId);
    return false;
  }
  const disabled = await health.failed(endpointId, url, statusCode);
  if (disabled === undefined) return false;
  const { reason, deliveries } = disabled;
  const about = { ...idsOf(delivery), failed_deliveries: deliveries };
  logger.warn(about, `a webhook endpoint was disabled: ${reason}`);
  return true;
}

const idsOf = ({ event, endpointId }: ClaimedDelivery) => ({
  event: formatIdentifier('evt', event.id),
  webhook_endpoint: formatIdentifier('we', endpointId),
  merchant_id: formatIdentifier('mer', event.merchantId),
});

function logGivenUp(
  logger: Logger,
  delivery: ClaimedDelivery,
  attempts: number,
  { statusCode, error }: AttemptResult,
): void {
  const { type, paymentIntent } = delivery.event;
  logger.warn(
    {
      ...idsOf(delivery),
      event_type: type,
      ...(paymentIntent != null && { payment_intent: formatIdentifier('pi', paymentIntent) }),
      attempts,
      status_code: statusCode,
      error,
    },
    'a webhook delivery has failed: no retries left',
  );
}
