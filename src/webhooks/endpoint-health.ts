// Disables endpoints that answer 410, or that have failed for days.

import type { EntityManager } from '@mikro-orm/postgresql';
import { Batcher } from '../database/batcher.ts';
import { WebhookEndpointEntity } from '../database/entities/webhook.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { giveUpDeliveries } from './endpoints.ts';

const maxFailingDays = 5;
const minFailures = 10;
/** HTTP `Gone`. */
const gone = 410;

export type EndpointHealth = ReturnType<typeof createEndpointHealth>;

interface Disabled {
  reason: string;
  /** Pending deliveries that failed because of this. */
  deliveries: number;
}

/** Returns a counter of failures that disables endpoints. */
export function createEndpointHealth(em: EntityManager) {
  const { run } = createPreparedStatements(em);
  // Many attempts fail at once when an endpoint dies. Counted one by one, each would wait for the row's lock.
  type Failure = { endpointId: string; url: string };
  const counter = new Batcher<Failure, { failures: number; isLong: boolean } | undefined>({
    slots: 1,
    maxBatchSize: 512,
    maxWaiting: 100_000,
    maxWaitMs: 60_000,
    run: async (failures) => {
      const { rows } = await run(countFailures, [
        failures.map(({ endpointId }) => endpointId),
        failures.map(({ url }) => url),
        maxFailingDays,
      ]);
      const byId = new Map(rows.map(({ id, failures, is_long: isLong }) => [id, { failures, isLong }]));
      return failures.map(({ endpointId }) => byId.get(endpointId));
    },
  });
  return {
    /** Resets the failures of an endpoint. */
    async succeeded(endpointId: string): Promise<void> {
      await run(forgetFailures, [endpointId]);
    },
    /** Counts a failure if the endpoint still has this URL. At the limit, disables it and returns why. */
    async failed(
      endpointId: string,
      url: string,
      statusCode: number | undefined,
    ): Promise<Disabled | undefined> {
      const failing = await counter.add({ endpointId, url });
      if (failing === undefined) return undefined;
      const reason =
        statusCode === gone
          ? 'it answered 410 Gone'
          : failing.isLong && failing.failures >= minFailures
            ? `${failing.failures} attempts in a row have failed, over ${maxFailingDays} days`
            : undefined;
      if (reason === undefined) return undefined;
      return em.fork().transactional(async (tx) => {
        // A success, or the merchant, may have reset the failures meanwhile.
        const failures = statusCode === gone ? {} : { failures: { $gte: minFailures } };
        const enabled = { id: endpointId, url, enabled: true, ...failures };
        const disabled = { enabled: false, disabledReason: reason };
        if ((await tx.nativeUpdate(WebhookEndpointEntity, enabled, disabled)) === 0) return undefined;
        return { reason, deliveries: await giveUpDeliveries(tx, endpointId) };
      });
    },
    /** Fails some pending deliveries of disabled and deleted endpoints. Returns their number. */
    giveUpDeliveries: () => giveUpDeliveries(em.fork()),
  };
}

const forgetFailures = preparedStatement(
  'forget_webhook_failures',
  'update webhook_endpoints set failures = 0, failing_since = null where id = $1 and failures > 0',
);
/** Rows are locked in id order to prevent deadlocks. */
const countFailures = preparedStatement(
  'count_webhook_failures',
  `with failed as (
     select id, url, count(*)::int as failures from unnest($1::uuid[], $2::text[]) as f (id, url) group by id, url
   ), locked as materialized (
     select w.id, f.failures from failed f join webhook_endpoints w using (id, url)
      where w.enabled order by w.id for update of w
   )
   update webhook_endpoints w
      set failures = w.failures + l.failures, failing_since = coalesce(w.failing_since, now())
     from locked l where w.id = l.id
   returning w.id, w.failures, w.failing_since <= now() - $3 * interval '1 day' as is_long`,
);
