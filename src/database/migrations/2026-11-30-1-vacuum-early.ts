/**
 * Until a vacuum, every search for what is overdue, unconfirmed or undelivered steps over the index entries
 * of all rows that have ended since the last one: by default, up to a fifth of the table.
 */
export default ['payment_intents', 'transfers', 'webhook_deliveries'].map(
  (table) =>
    `alter table ${table} set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 50)`,
);
