/** Returns the statements of docs/operations.md that grant a role what the service needs besides reading. */
export function grantServiceRights(role: string): string {
  return `
    grant insert, update on payment_intents, refunds, authorizations, transfers, watched_chains, report_hours, resolved_attention to ${role};
    grant insert, update on webhook_endpoints, webhook_secrets to ${role};
    grant insert, update, delete on block_headers, events, webhook_deliveries to ${role};
    grant insert on key_checks, event_epochs, payment_intent_metadata, payment_sums to ${role};
    grant insert, delete on removed_events, webhook_attempts, export_tickets to ${role};
    grant update, delete on report_changes to ${role};
    grant insert, update, delete on audit_log to ${role};
    grant update on event_progress, metadata_progress, console_sessions to ${role};`;
}
