import type { TestService } from './service.ts';

/** Reverts the migration that counts the figures, so that a test can run it on its own rows. */
export const takeBackFigures = ({ query }: TestService) =>
  query(`
    drop function report_transfers(), report_payment_intents() cascade;
    drop index refunds_labels_index, refunds_waiting_index, payment_intents_refunded_index, payment_intents_labels_index;
    drop table export_tickets, resolved_attention, report_changes, report_hours;
    drop type report_kind;
    delete from schema_migrations where name = '2026-11-25-show-figures'`);
