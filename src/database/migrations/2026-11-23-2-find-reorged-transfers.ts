/** What was reverted is looked for again. Few transfers are. */
export default [
  "create index transfers_reorged_index on transfers (chain_id, created_at) where state = 'reorged'",
];
