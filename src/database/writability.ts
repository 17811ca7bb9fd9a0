import type { EntityManager } from '@mikro-orm/postgresql';
import { StartupError } from '../config/startup-error.ts';
import { preparedStatement } from './prepared.ts';
import { faultOf, insufficientPrivilege } from './remedies.ts';

/** Rights that the service needs on each table. Administration needs more, and reports what it lacks. */
const neededRights = {
  schema_migrations: ['select'],
  key_checks: ['select', 'insert'],
  merchants: ['select'],
  payout_wallets: ['select'],
  checkout_settings: ['select'],
  api_keys: ['select'],
  payment_intents: ['select', 'insert', 'update'],
  payment_intent_metadata: ['select', 'insert'],
  metadata_progress: ['select', 'update'],
  refunds: ['select', 'insert', 'update'],
  authorizations: ['select', 'insert', 'update'],
  watched_chains: ['select', 'insert', 'update'],
  block_headers: ['select', 'insert', 'update', 'delete'],
  transfers: ['select', 'insert', 'update'],
  payment_sums: ['select', 'insert'],
  events: ['select', 'insert', 'update', 'delete'],
  event_epochs: ['select', 'insert'],
  event_progress: ['select', 'update'],
  removed_events: ['select', 'insert', 'delete'],
  webhook_endpoints: ['select', 'insert', 'update'],
  webhook_secrets: ['select', 'insert', 'update'],
  webhook_deliveries: ['select', 'insert', 'update', 'delete'],
  webhook_attempts: ['select', 'insert', 'delete'],
  console_sessions: ['select', 'update'],
  report_changes: ['select', 'update', 'delete'],
  report_hours: ['select', 'insert', 'update'],
  resolved_attention: ['select', 'insert', 'update'],
  export_tickets: ['select', 'insert', 'delete'],
  audit_log: ['select', 'insert', 'update', 'delete'],
};

/** Settings without which the service would misread or miswrite data, and the values they must have. */
const neededSettings = {
  DateStyle: /^ISO/,
  bytea_output: /^hex$/,
  standard_conforming_strings: /^on$/,
  default_transaction_isolation: /^read committed$/,
  // Otherwise an acknowledged intent can be lost with the server, or with its standby's promotion.
  synchronous_commit: /^(?!off|local)/,
  // Otherwise no trigger runs, such as those of the reports.
  session_replication_role: /^(?!replica)/,
  // Otherwise PostgreSQL does not send the notice that a commit may not have reached its standby.
  client_min_messages: /^(?!error|fatal|panic)/,
};

/** Throws StartupError if the database or the role has a setting or encoding that the service does not work with. */
export async function assertSettings(em: EntityManager): Promise<void> {
  const names = Object.keys(neededSettings) as (keyof typeof neededSettings)[];
  const [database] = await em
    .fork()
    .execute<[{ settings: Record<string, string>; encoding: string; path: string; schema: string | null }]>(
      `select json_object_agg(name, current_setting(name)) as settings, current_setting('server_encoding') as encoding,
              current_setting('search_path') as path, current_schema() as schema
         from unnest(?::text[]) as name`,
      [`{${names}}`],
    );
  if (database.encoding !== 'UTF8') {
    throw new StartupError(
      `the database has the encoding ${database.encoding}, which does not hold every text: create it with the encoding UTF8`,
    );
  }
  if (database.schema === null) {
    throw new StartupError(
      `search_path is ${database.path}, with no schema that the role may use: create it, grant usage on it, or reset search_path for the role and the database`,
    );
  }
  const { settings } = database;
  const wrong = names.find((name) => !neededSettings[name].test(settings[name] ?? ''));
  if (wrong === undefined) return;
  throw new StartupError(
    `${wrong} is "${settings[wrong]}", with which the service does not work: reset it for the role and the database`,
  );
}

/** Returns which rights this connection's role lacks on the service's tables, and the remedy. */
export async function findMissingRights(em: EntityManager): Promise<string | undefined> {
  const wanted = Object.entries(neededRights).flatMap(([table, rights]) =>
    rights.map((right) => ({ table, right })),
  );
  const missing = await em.fork().execute<{ table: string; right: string; grantee: string }[]>(
    `select "table", "right", quote_ident(current_user) as grantee
       from json_to_recordset(?) as wanted ("table" text, "right" text)
      where not has_table_privilege("table", "right")
     union all
     select 'function ' || oid::regprocedure, 'execute', quote_ident(current_user)
       from pg_proc
      where proname = 'pg_logical_emit_message' and proargtypes[2] = 'text'::regtype
        and not has_function_privilege(oid, 'execute')`,
    [JSON.stringify(wanted)],
  );
  if (missing.length === 0) return undefined;
  const grants = missing.map(({ table, right, grantee }) => `grant ${right} on ${table} to ${grantee};`);
  return `the role lacks rights: as the owner of the tables, run ${grants.join(' ')}`;
}

/** Throws PostgreSQL's error if nothing can be written, such as on a standby. Writes nothing. */
export async function assertWritable(em: EntityManager): Promise<void> {
  await em.fork().execute('insert into payment_intents select * from payment_intents where false');
}

/** Megabytes that must be free. */
export const minFreeMb = 16;
/** Pages of 8 KB, each filled by one row. */
const probePages = (minFreeMb * 1024) / 8;

/**
 * Writes to the database's disk, and throws PostgreSQL's error if that fails. On a full disk PostgreSQL can
 * still write to the pages and log files that it has. Only a growing table shows the fault, so a temporary
 * table grows here. Returns false, which says nothing, if the role may not create one.
 */
export async function probeDisk(entityManager: EntityManager): Promise<boolean> {
  const em = entityManager.fork();
  await em.begin();
  try {
    // On the disk of the intents, not the one configured for temporary data.
    await em.execute("set local temp_tablespaces = ''");
    await em.execute('create temporary table disk_probe (page text) on commit drop');
    await em.execute('alter table disk_probe alter column page set storage plain');
    await em.execute(
      `insert into disk_probe select repeat('x', 8000) from generate_series(1, ${probePages})`,
    );
    return true;
  } catch (error) {
    if (faultOf(error)?.code !== insufficientPrivilege) throw error;
    return false;
  } finally {
    await em.rollback().catch(() => {});
  }
}

/** True on a standby, or for a role that may only read. Takes no lock, so migrations do not delay it. */
async function isReadOnly(em: EntityManager): Promise<boolean> {
  const [row] = await em
    .fork()
    .execute<[{ read_only: boolean }]>("select current_setting('transaction_read_only') = 'on' as read_only");
  return row.read_only;
}

/** SQLSTATE `disk_full`. */
const diskFull = '53100';

/** Commits no data. Once it resolves, the standbys that commits wait for have all earlier commits. */
export const commitNothing = preparedStatement(
  'commit_nothing',
  "select pg_logical_emit_message(true, 'payment-intent-service', '')",
);

/** How long not to trust a probe that found room just before a write failed: a host may have quotas. */
const distrustMs = 60_000;
/** A commit within this time shows that the database can commit. */
const commitEveryMs = 5_000;

interface ProbeObserver {
  /** The database has committed. */
  onCommit?(): void;
  /** Why creates cannot be stored, or undefined once they can be again. */
  onRefusal?(refusal: string | undefined): void;
}

/** Returns the readiness probe: rights, read-only mode, commits and, after a failed write, the disk. */
export function createDatabaseProbe(em: EntityManager, { onCommit, onRefusal }: ProbeObserver = {}) {
  let refusal: string | undefined;
  let isDiskSuspect = false;
  let probedAtMs = Number.NEGATIVE_INFINITY;
  let distrustedAtMs = Number.NEGATIVE_INFINITY;
  let committedAtMs = Number.NEGATIVE_INFINITY;
  const onCommitted = () => {
    committedAtMs = performance.now();
    onCommit?.();
  };
  const findRefusal = async (): Promise<string | undefined> => {
    const missing = await findMissingRights(em);
    if (missing !== undefined) return missing;
    if (await isReadOnly(em)) {
      // This fails and ends the session: the host's name may lead to another server by now.
      await assertWritable(em).catch(() => {});
      return 'the database can only be read';
    }
    const noRoom = "the database's disk is full";
    if (isDiskSuspect && performance.now() - distrustedAtMs < distrustMs) return noRoom;
    try {
      if (isDiskSuspect) {
        await probeDisk(em);
        probedAtMs = performance.now();
      }
      if (performance.now() - committedAtMs >= commitEveryMs) {
        await em.fork().execute(commitNothing.text);
        onCommitted();
      }
    } catch (reason) {
      if (faultOf(reason)?.code === diskFull) return noRoom;
      throw reason;
    }
    isDiskSuspect = false;
    return undefined;
  };
  return {
    /** To be called for each successful write. */
    onWrite() {
      distrustedAtMs = Number.NEGATIVE_INFINITY;
      onCommitted();
    },
    /**
     * Returns whether creates can be stored. Throws if the database does not respond. Commits unless it did
     * in the last 5 s: without its synchronous standby a database answers everything but a commit.
     */
    async probe(): Promise<boolean> {
      const found = await findRefusal();
      if (found !== refusal) onRefusal?.(found);
      refusal = found;
      return found === undefined;
    },
    /** To be called for each failed write. After `disk_full`, `probe` checks the disk until it finds room. */
    onFailedWrite(reason: unknown): void {
      if (faultOf(reason)?.code !== diskFull) return;
      isDiskSuspect = true;
      if (performance.now() - probedAtMs < distrustMs) distrustedAtMs = performance.now();
    },
  };
}
