/**
 * Finds transfers that look like a refund's but lack its id. Meanwhile no transfer is recorded: about a
 * second for two million.
 */
export default [
  `
      create index transfers_plain_refund_index on transfers (merchant_id, to_address) where is_refund and refund is null`,
];
