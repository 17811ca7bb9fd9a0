/** Deliveries take turns by merchant; one that waits or has failed can be made due. No row is rewritten. */
export default [
  'alter table webhook_deliveries add column leased_until timestamptz(3)',
  // The index without the merchant stays: processes of the previous release claim by it.
  `
      create index webhook_deliveries_turns_index on webhook_deliveries (merchant_id, endpoint_id, next_attempt_at)
        where status = 'pending'`,
  `
      create index webhook_deliveries_failed_index on webhook_deliveries (merchant_id, endpoint_id, created_at)
        where status = 'failed'`,
];
