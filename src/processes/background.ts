// What a process does besides answering: each role's work, as often as it is needed.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import { createPositioner } from '../events/position-events.ts';
import { createEventRemoval } from '../events/remove-events.ts';
import { createExpiry } from '../payment-intents/expire-payment-intents.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { type Repeater, startRepeater } from './repeater.ts';

/**
 * How soon an event that another process has recorded gets its position. Together with how often streams look for new
 * events, less than half a second.
 */
const positionEveryMs = 200;
/** How late an intent may expire. */
const expireEveryMs = 1_000;
/** Twice as long as it worked: a backlog leaves two thirds of the time to creates. */
const expiryRest = 2;
const removeEveryMs = 60_000;

export interface Background {
  /** Call it when an event was recorded: it gets its position at once. */
  onEvent(): void;
  /** Resolves when the work that runs is done. */
  stop(): Promise<void>;
}

export function startBackground(
  em: EntityManager,
  { roles, eventRetentionDays }: Config,
  metrics: Metrics,
  logger: Logger,
): Background {
  const { positionAll } = createPositioner(em);
  const givesPositions = roles.has('expiry') || roles.has('deliveries');
  const positions = startRepeater({
    name: 'positions of events',
    work: async () => {
      await positionAll();
      return false;
    },
    // Every process does this for its own events. Those of a process that has ended are for the others.
    intervalMs: givesPositions ? positionEveryMs : undefined,
    logger,
  });
  const repeaters: Repeater[] = [positions];

  if (roles.has('expiry')) {
    const expire = createExpiry(em, (id, reason) => {
      logger.error(
        { err: reason, payment_intent: id },
        'an intent cannot be expired: its row cannot be read',
      );
    });
    const remove = createEventRemoval(em, eventRetentionDays);
    repeaters.push(
      startRepeater({
        name: 'expiry',
        work: async () => {
          const { expired, lagMs, hasMore } = await expire();
          metrics.expiry(expired, lagMs);
          if (expired > 0) positions.wake();
          return hasMore;
        },
        intervalMs: expireEveryMs,
        restRatio: expiryRest,
        logger,
      }),
      startRepeater({
        name: 'removal of old events',
        work: remove,
        intervalMs: removeEveryMs,
        restRatio: expiryRest,
        logger,
      }),
    );
  }

  return {
    onEvent: positions.wake,
    async stop() {
      await Promise.all(repeaters.map((repeater) => repeater.stop()));
    },
  };
}
