// Disables endpoints that no longer want events, or have not taken one for days.

import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

const maxFailingDays = 5;
const minFailures = 10;
const dayMs = 86_400_000;
/** HTTP `Gone`. */
const gone = 410;

export interface EndpointHealth {
  /** Forgets the failures of an endpoint. */
  succeeded(endpointId: string): Promise<void>;
  /** Counts a failure. Disables the endpoint if it was the last one that it may have, and returns the reason. */
  failed(endpointId: string, at: Date, statusCode: number | undefined): Promise<string | undefined>;
  /** The pending deliveries of endpoints that are disabled or deleted have failed. Returns how many there were. */
  giveUpDeliveries(): Promise<number>;
}

export function createEndpointHealth(em: EntityManager): EndpointHealth {
  const { run, transaction } = createPreparedStatements(em);
  return {
    async succeeded(endpointId) {
      await run(forgetFailures, [endpointId]);
    },
    async failed(endpointId, at, statusCode) {
      const { rows } = await run(countFailure, [endpointId, at.toISOString()]);
      const [row] = rows;
      if (row === undefined) return undefined;
      const isLong = new Date(row.failing_since).getTime() <= at.getTime() - maxFailingDays * dayMs;
      const reason =
        statusCode === gone
          ? 'it answered 410 Gone'
          : isLong && row.failures >= minFailures
            ? `${row.failures} attempts in a row have failed, over ${maxFailingDays} days`
            : undefined;
      if (reason === undefined) return undefined;
      return transaction(async (runInside) => {
        const { rowCount } = await runInside(disable, [endpointId, reason]);
        if (rowCount === 0) return undefined;
        await runInside(giveUpOf, [endpointId]);
        return reason;
      });
    },
    giveUpDeliveries: async () => (await run(giveUpAll, [])).rowCount ?? 0,
  };
}

const forgetFailures = preparedStatement(
  'forget_webhook_failures',
  'update webhook_endpoints set failures = 0, failing_since = null where id = $1 and failures > 0',
);
const countFailure = preparedStatement(
  'count_webhook_failure',
  `update webhook_endpoints set failures = failures + 1, failing_since = coalesce(failing_since, $2)
    where id = $1 and enabled
   returning failures, failing_since`,
);
const disable = preparedStatement(
  'disable_webhook_endpoint',
  'update webhook_endpoints set enabled = false, disabled_reason = $2 where id = $1 and enabled',
);
const giveUpOf = preparedStatement(
  'give_up_webhook_deliveries_of',
  "update webhook_deliveries set status = 'failed', next_attempt_at = null where endpoint_id = $1 and status = 'pending'",
);
/** Those that were made while their endpoint was being disabled. */
const giveUpAll = preparedStatement(
  'give_up_webhook_deliveries',
  `update webhook_deliveries d set status = 'failed', next_attempt_at = null
     from webhook_endpoints w
    where w.id = d.endpoint_id and not w.enabled and d.status = 'pending'`,
);
