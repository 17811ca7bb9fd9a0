import type { EntityManager } from '@mikro-orm/postgresql';
import { faultOf, insufficientPrivilege } from './remedies.ts';

/** What the service does with each table. Administration needs more, and says so when it is refused. */
const neededRights = {
  schema_migrations: ['select'],
  merchants: ['select'],
  payout_wallets: ['select'],
  api_keys: ['select'],
  payment_intents: ['select', 'insert'],
};

export interface MissingRight {
  table: string;
  right: string;
  /** The role of this connection, quoted for SQL. */
  grantee: string;
}

/** The rights that this connection's role lacks on the service's tables. */
export async function findMissingRights(em: EntityManager): Promise<MissingRight[]> {
  const wanted = Object.entries(neededRights).flatMap(([table, rights]) =>
    rights.map((right) => ({ table, right })),
  );
  return em.fork().execute<MissingRight[]>(
    `select "table", "right", quote_ident(current_user) as grantee
       from json_to_recordset(?) as wanted ("table" text, "right" text)
      where not has_table_privilege("table", "right")`,
    [JSON.stringify(wanted)],
  );
}

/** Throws what PostgreSQL says where nothing can be written, such as on a standby. Writes nothing. */
export async function assertWritable(em: EntityManager): Promise<void> {
  await em.fork().execute('insert into payment_intents select * from payment_intents where false');
}

/** Megabytes that have to be free. */
export const minFreeMb = 16;
/** Of 8 KB each, filled by one row. */
const probePages = (minFreeMb * 1024) / 8;

/**
 * Writes to the database's disk for a moment, and throws what PostgreSQL says if it cannot. On a full disk it goes on for
 * a while with the pages and the log files that it has: only growing by some pages shows it, so a temporary table grows
 * here. Returns false if the role may not create one, so that nothing is known.
 */
export async function probeDisk(entityManager: EntityManager): Promise<boolean> {
  const em = entityManager.fork();
  await em.begin();
  try {
    // Where the intents are, not where an administrator wants temporary data.
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

/** True on a standby, or for a role that may only read. Takes no lock, so that no migration delays it. */
async function isReadOnly(em: EntityManager): Promise<boolean> {
  const [row] = await em
    .fork()
    .execute<{ read_only: boolean }[]>("select current_setting('transaction_read_only') = 'on' as read_only");
  return row?.read_only === true;
}

/** `disk_full`. */
const diskFull = '53100';

export interface DatabaseProbe {
  /** True if creates can be stored; false if the database answers and they cannot. Throws if it does not answer. */
  probe(): Promise<boolean>;
  /** Told of every write that failed: a full disk is looked for from then on, until there is room again. */
  onFailedWrite(reason: unknown): void;
}

/** What readiness asks the database. Cheap while nothing has failed: rights, and whether it may be written. */
export function createDatabaseProbe(em: EntityManager): DatabaseProbe {
  let isDiskSuspect = false;
  return {
    async probe() {
      if ((await findMissingRights(em)).length > 0 || (await isReadOnly(em))) return false;
      try {
        if (isDiskSuspect) await probeDisk(em);
      } catch (reason) {
        if (faultOf(reason)?.code === diskFull) return false;
        throw reason;
      }
      isDiskSuspect = false;
      return true;
    },
    onFailedWrite(reason) {
      if (faultOf(reason)?.code === diskFull) isDiskSuspect = true;
    },
  };
}
