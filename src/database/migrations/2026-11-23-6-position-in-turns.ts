/**
 * Merchants take turns in getting positions for their events. Events wait while the index is built: it holds
 * few of them, but all are read once.
 *
 * Processes of the previous release may go on beside new ones. They sort the waiting events, which are few.
 */
export default [
  'create index events_turns_index on events (merchant_id, sequence, id) where position is null',
  // Reads wait for this, which takes no time. With both indexes the planner could take this one, and read the
  // waiting events of all merchants to find those of one.
  'drop index events_unpositioned_index',
];
