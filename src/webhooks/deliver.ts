// Delivers webhooks: claims what is due, sends it, records what came of it. Any number of processes may do so at once.

import type { Logger } from 'pino';
import type { KeyRing } from '../config/key-ring.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { eventText } from '../events/event.ts';
import type { ClaimedDelivery, DeliveryQueue } from './delivery-queue.ts';
import type { Disabled, EndpointHealth } from './endpoint-health.ts';
import type { AttemptResult, Sender } from './sender.ts';
import { signedHeaders } from './signature.ts';

/** Attempts in flight: each holds a connection and at most some 100 KB. */
const maxInFlight = 768;
/** Of those, attempts that may yet be answered at once. */
const maxPrompt = 512;
/** Nothing is claimed for endpoints that fail or are slow while so many of their attempts are in flight. */
const maxLimited = 256;
/** Attempts for one merchant; the share of them that is not for endpoints that fail or are slow; and for one of those. */
const maxOfMerchant = 64;
const reserveShare = 1 / 4;
const maxInReserve = 4;
/** A merchant may have no more than this share of the attempts that are still free: some always are, for the others. */
const freeShare = 1 / 4;
const maxOfHealthyEndpoint = 8;
const maxOfFailingEndpoint = 1;
/** A claim that took longer is let go: what is left of its lease may be too short for an attempt. */
const maxClaimMs = 15_000;
/** An endpoint that has not answered by then is slow, until it answers sooner. */
const slowMs = 1_000;
/** An endpoint that has failed is left alone for so long; each further failure doubles it. */
const defaultFailurePauseMs = 1_000;
const maxFailurePauseMs = 15_000;
/** Slow endpoints that are remembered, and prompt ones, the latest of each. */
const maxRemembered = 1_000;
/** Claimed at once: few enough that a process that is killed leaves few to wait for the end of their lease. */
const maxClaimed = 128;

export interface DelivererOptions {
  /** Called for each attempt. */
  onAttempt?: (outcome: 'delivered' | 'failed', result: AttemptResult) => void;
  /** How long an endpoint is left alone after its first failure. */
  failurePauseMs?: number;
  /** Runs an attempt inside the trace of its event. */
  trace?: (delivery: ClaimedDelivery, run: () => Promise<AttemptResult>) => Promise<AttemptResult>;
}

export interface Deliverer {
  /** Starts attempts for which there is room. Resolves with true if more is probably due and there is room. */
  deliverSome(): Promise<boolean>;
  /** Resolves when no attempt is in flight. */
  idle(): Promise<void>;
}

/** Returns what attempts due deliveries: each is claimed, signed, sent, and its outcome recorded. */
export function createDeliverer(
  queue: DeliveryQueue,
  health: EndpointHealth,
  sender: Sender,
  keys: KeyRing,
  logger: Logger,
  /** Called when there is room again. */
  onRoom: () => void,
  { onAttempt, failurePauseMs = defaultFailurePauseMs, trace = (_, run) => run() }: DelivererOptions = {},
): Deliverer {
  const inFlight = new Set<Promise<void>>();
  const byEndpoint = new Map<string, number>();
  const byMerchant = new Map<string, number>();
  const slow = new Set<string>();
  const prompt = new Set<string>();
  /** Until when endpoints are left alone, by `performance.now()`: their other deliveries would fail too. */
  const pauses = new Map<string, number>();
  /** Attempts in flight for endpoints that fail or are slow. */
  let limited = 0;

  const notePace = (endpointId: string, isSlow: boolean) =>
    remember(isSlow ? slow : prompt, isSlow ? prompt : slow, endpointId);

  const attempt = async (delivery: ClaimedDelivery, onSlow: () => void): Promise<void> => {
    const { event, endpointId, url, failures, secrets } = delivery;
    const body = eventText(event);
    const id = formatIdentifier('evt', event.id);
    const headers = signedHeaders(keys, endpointId, secrets, { id, body, at: new Date() });
    const becomesSlow = setTimeout(onSlow, slowMs);
    const result = await trace(delivery, () => sender.send(url, headers, body)).finally(() =>
      clearTimeout(becomesSlow),
    );
    notePace(endpointId, result.durationMs > slowMs);
    const recorded = await queue.record(delivery, result);
    const isSuccess = result.error === undefined;
    onAttempt?.(isSuccess ? 'delivered' : 'failed', result);
    // Another process has it now, and what comes of it there counts.
    if (recorded === undefined) return;
    if (recorded.status === 'failed') logGivenUp(logger, delivery, recorded.attempts, result);
    if (isSuccess && failures > 0) await health.succeeded(endpointId);
    if (isSuccess) return;
    const pauseMs = Math.min(failurePauseMs * 2 ** Math.min(failures, 10), maxFailurePauseMs);
    if (pauseMs > 0) pauses.set(endpointId, performance.now() + pauseMs);
    const disabled = await health.failed(endpointId, result.at, result.statusCode);
    if (disabled === undefined) return;
    logDisabled(logger, delivery, disabled);
  };

  const start = (delivery: ClaimedDelivery) => {
    const { endpointId, failures, event } = delivery;
    let isLimited = failures > 0 || slow.has(endpointId);
    if (isLimited) limited++;
    add(byEndpoint, endpointId, 1);
    add(byMerchant, event.merchantId, 1);
    const onSlow = () => {
      notePace(endpointId, true);
      if (isLimited) return;
      isLimited = true;
      limited++;
      onRoom();
    };
    const running = attempt(delivery, onSlow)
      .catch((reason) => {
        // Not recorded: it is attempted again when its lease has ended.
        logger.warn({ err: reason }, 'the attempt to deliver a webhook could not be recorded');
      })
      .finally(() => {
        inFlight.delete(running);
        if (isLimited) limited--;
        add(byEndpoint, endpointId, -1);
        add(byMerchant, event.merchantId, -1);
        onRoom();
      });
    inFlight.add(running);
  };

  return {
    async deliverSome() {
      const unlimited = inFlight.size - limited;
      const room = Math.min(maxPrompt - unlimited, maxInFlight - inFlight.size, maxClaimed);
      if (room <= 0) return false;
      const beganAtMs = performance.now();
      const mostOfMerchant = Math.min(maxOfMerchant, Math.ceil((maxInFlight - inFlight.size) * freeShare));
      for (const [endpointId, untilMs] of pauses) if (untilMs <= beganAtMs) pauses.delete(endpointId);
      const claimed = await queue.claim({
        byEndpoint,
        byMerchant,
        slow,
        prompt,
        paused: pauses,
        maxHealthy: maxOfHealthyEndpoint,
        maxFailing: maxOfFailingEndpoint,
        maxOfMerchant: mostOfMerchant,
        merchantReserve: Math.ceil(mostOfMerchant * reserveShare),
        maxInReserve,
        room,
        roomForFailing: maxLimited - limited,
      });
      if (performance.now() - beganAtMs > maxClaimMs) return false;
      for (const delivery of claimed) start(delivery);
      return claimed.length > 0;
    },
    async idle() {
      while (inFlight.size > 0) await Promise.allSettled(inFlight);
    },
  };
}

/** Adds to a count, and forgets it at 0. */
function add(counts: Map<string, number>, id: string, change: 1 | -1): void {
  const count = (counts.get(id) ?? 0) + change;
  if (count > 0) counts.set(id, count);
  else counts.delete(id);
}

function logGivenUp(
  logger: Logger,
  { event, endpointId }: ClaimedDelivery,
  attempts: number,
  { statusCode, error }: AttemptResult,
): void {
  const { id, type, merchantId, paymentIntent } = event;
  logger.warn(
    {
      event: formatIdentifier('evt', id),
      event_type: type,
      ...(paymentIntent != null && { payment_intent: formatIdentifier('pi', paymentIntent) }),
      webhook_endpoint: formatIdentifier('we', endpointId),
      merchant_id: formatIdentifier('mer', merchantId),
      attempts,
      status_code: statusCode,
      error,
    },
    'a webhook was given up after its last attempt',
  );
}

function logDisabled(
  logger: Logger,
  { event, endpointId }: ClaimedDelivery,
  { reason, deliveries }: Disabled,
): void {
  logger.warn(
    {
      webhook_endpoint: formatIdentifier('we', endpointId),
      merchant_id: formatIdentifier('mer', event.merchantId),
      failed_deliveries: deliveries,
    },
    `a webhook endpoint was disabled: ${reason}`,
  );
}

/** Keeps an endpoint in one of two sets, as its latest. */
function remember(one: Set<string>, other: Set<string>, endpointId: string): void {
  one.delete(endpointId);
  other.delete(endpointId);
  one.add(endpointId);
  const [oldest] = one;
  if (one.size > maxRemembered && oldest !== undefined) one.delete(oldest);
}
