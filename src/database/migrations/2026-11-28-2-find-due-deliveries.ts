/** Finds merchants with due deliveries. Meanwhile no webhook is sent: about a second for a million. */
export default [
  `
      create index webhook_deliveries_due_index on webhook_deliveries (next_attempt_at) where status = 'pending'`,
];
