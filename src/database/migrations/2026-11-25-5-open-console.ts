/** The sessions of the console, and the audit log of what was done with them. */
export default [
  `
      create table console_sessions (
        id              uuid           not null primary key,
        name            text           not null,
        merchant_id     uuid,
        mode            payment_mode,
        is_read_only    boolean        not null,
        pepper_version  smallint       not null,
        code_hash       bytea          not null constraint console_sessions_code_hash_unique unique,
        code_expires_at timestamptz(3) not null,
        lasts_seconds   int            not null,
        token_hash      bytea constraint console_sessions_token_hash_unique unique,
        expires_at      timestamptz(3),
        used_at         timestamptz(3),
        created_at      timestamptz(3) not null,
        revoked_at      timestamptz(3)
      )`,
  `
      create table audit_log (
        id          uuid not null primary key,
        actor       text not null,
        actor_name  text not null,
        method      text not null,
        merchant_id uuid,
        mode        payment_mode,
        target      text,
        payment_intent text,
        fields      json not null,
        request_id  text not null,
        outcome     text
      )`,
  'create index audit_log_intent_index on audit_log (payment_intent) where payment_intent is not null',
  'create index audit_log_target_index on audit_log (target, id) where target is not null',
];
