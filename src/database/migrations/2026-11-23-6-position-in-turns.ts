/**
 * Events get their positions in turns of their merchants. The index is built while events wait: it holds few of them, but
 * all are read once.
 *
 * Processes of the release before go on beside new ones. They sort the events that wait, of which there are few.
 */
export default [
  'create index events_turns_index on events (merchant_id, sequence, id) where position is null',
  // Reads wait for what follows, which takes no time. With both indexes the planner could take the other one, and read
  // the waiting events of all merchants to find those of one.
  'drop index events_unpositioned_index',
];
