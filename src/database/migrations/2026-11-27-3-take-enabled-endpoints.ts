/** Finds a merchant's enabled endpoints, at most 100, among many deleted ones kept for their deliveries. */
export default [
  'create index webhook_endpoints_enabled_index on webhook_endpoints (merchant_id, mode) where enabled',
];
