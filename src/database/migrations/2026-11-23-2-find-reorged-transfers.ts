/** Finds reverted transfers, which are looked for again. There are few. */
export default [
  "create index transfers_reorged_index on transfers (chain_id, created_at) where state = 'reorged'",
];
