import { preparedStatement } from '../database/prepared.ts';
import type { EventReferences } from '../events/remove-events.ts';

/** Events with pending deliveries are kept. Other deliveries are removed with their event. */
export const deliveriesOfEvents: EventReferences = {
  isNeeded: `exists (select from webhook_deliveries d
                      where d.merchant_id = e.merchant_id and d.event_id = e.id and d.status = 'pending')`,
  async removeOf(run, ids) {
    await run(removeAttempts, [ids]);
    await run(removeDeliveries, [ids]);
  },
};

const removeAttempts = preparedStatement(
  'remove_webhook_attempts',
  'delete from webhook_attempts where event_id = any ($1::uuid[])',
);
/** Joins `removed_events`, because the index begins with the merchant. */
const removeDeliveries = preparedStatement(
  'remove_webhook_deliveries',
  `delete from webhook_deliveries d using removed_events r
    where r.id = any ($1::uuid[]) and d.merchant_id = r.merchant_id and d.event_id = r.id`,
);
