/** Finds the merchants that have deliveries to send now. Meanwhile no webhook is sent: about a second for a million deliveries. */
export default [
  `
      create index webhook_deliveries_due_index on webhook_deliveries (next_attempt_at) where status = 'pending'`,
];
