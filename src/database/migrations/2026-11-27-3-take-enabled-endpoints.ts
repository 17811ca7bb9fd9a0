/** The enabled endpoints of a merchant, at most 100: deleted ones stay for their deliveries, and may be very many. */
export default [
  'create index webhook_endpoints_enabled_index on webhook_endpoints (merchant_id, mode) where enabled',
];
