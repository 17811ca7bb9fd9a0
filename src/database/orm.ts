import { readdir } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Migration, Migrator } from '@mikro-orm/migrations';
import { type EntityManager, type MigrationObject, MikroORM, type Options } from '@mikro-orm/postgresql';
import type { Pool } from 'pg';
import type { DatabaseTimeouts } from '../config/config.ts';
import { type DatabaseLocation, defaultConnectTimeoutMs, urlsOf } from '../config/database-location.ts';
import { StartupError } from '../config/startup-error.ts';
import { isServerGone } from '../requests/unavailable.ts';
import { DatabaseClient, serversOf } from './client.ts';
import { ApiKeyEntity } from './entities/api-key.ts';
import { AuthorizationEntity } from './entities/authorization.ts';
import { ConsoleSessionEntity } from './entities/console.ts';
import { EventEntity } from './entities/event.ts';
import { CheckoutSettingsEntity, MerchantEntity, PayoutWalletEntity } from './entities/merchant.ts';
import { PaymentIntentEntity } from './entities/payment-intent.ts';
import { RefundEntity } from './entities/refund.ts';
import { TransferEntity, WatchedChainEntity } from './entities/settlement.ts';
import {
  WebhookAttemptEntity,
  WebhookDeliveryEntity,
  WebhookEndpointEntity,
  WebhookSecretEntity,
} from './entities/webhook.ts';
import { faultOf, insufficientPrivilege, lockNotAvailable } from './remedies.ts';

const migrationsTable = 'schema_migrations';
/** The `migrations`, lists of statements, by date and number; their names lack the number. Append only. */
export const ourMigrations: readonly MigrationObject[] = await Promise.all(
  (await readdir(new URL('migrations', import.meta.url))).sort().map(async (file) => {
    const title = basename(file, '.ts');
    const { default: statements }: { default: readonly string[] } = await import(`./migrations/${title}.ts`);
    class Statements extends Migration {
      override up(): void {
        for (const statement of statements) this.addSql(statement);
      }
    }
    return { name: title.replace(/^(.{10})-\d/, '$1'), class: Statements };
  }),
);

/** Locks out a second `migrate` while one runs. The number is arbitrary. */
const migrationLockId = 7_046_029_254_386_353;
/** While a migration waits for a table lock, such as a backup's, all other sessions wait behind it. */
const tableLockMs = 3_000;
const tableLockPauseMs = 3_000;
const maxLockAttempts = 20;
/** SQLSTATEs: a lock was not granted in time, or only by undoing this migration (deadlock). */
const lockFailures = new Set<string | undefined>([lockNotAvailable, '40P01']);

/**
 * Returns MikroORM for one PostgreSQL, not connected yet: the first query connects. Without `timeouts` a
 * statement has no time limit, as a migration needs.
 */
export function createOrm(
  location: DatabaseLocation,
  poolSize: number,
  timeouts?: DatabaseTimeouts,
  migrations: readonly MigrationObject[] = ourMigrations,
): MikroORM {
  const options: Options = {
    // The client gets the address itself, because MikroORM would drop its parameters.
    driverOptions: {
      Client: DatabaseClient,
      servers: serversOf(location, timeouts),
      connectionTimeoutMillis: timeouts?.connectTimeoutMs ?? defaultConnectTimeoutMs,
    },
    dbName: databaseName(location),
    entities: [
      MerchantEntity,
      PayoutWalletEntity,
      CheckoutSettingsEntity,
      ApiKeyEntity,
      ConsoleSessionEntity,
      PaymentIntentEntity,
      EventEntity,
      WebhookEndpointEntity,
      WebhookSecretEntity,
      WebhookDeliveryEntity,
      WebhookAttemptEntity,
      WatchedChainEntity,
      TransferEntity,
      RefundEntity,
      AuthorizationEntity,
    ],
    extensions: [Migrator],
    migrations: {
      tableName: migrationsTable,
      migrationsList: [...migrations],
      snapshot: false,
      silent: true,
    },
    pool: { min: 0, max: poolSize },
    ensureDatabase: false,
    forceUtcTimezone: true,
    // Errors are logged where they are caught.
    logger: () => {},
  };
  return new MikroORM(options);
}

/** How long to wait for the sessions to end. */
const sessionEndMs = 2_000;

/**
 * Closes the connections. Resolves once PostgreSQL has ended their sessions, or after two seconds, because a
 * server that does not answer ends none. MikroORM's own `close` resolves before that, so that a caller who
 * counts the sessions next might still find them.
 */
export async function endSessions(orm: MikroORM): Promise<void> {
  const pool: Pool = await orm.em.getConnection().getNativeClient();
  let left = pool.totalCount;
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, sessionEndMs);
    const check = () => {
      if (left > 0) return;
      clearTimeout(timer);
      resolve();
    };
    pool.on('remove', () => {
      left--;
      check();
    });
    orm.close().then(check, reject);
  });
}

/** Connects to the first host that accepts writes, trying each host once. Throws the last host's error. */
export async function connectToAny({ em }: MikroORM, location: DatabaseLocation): Promise<void> {
  const others = 'url' in location ? urlsOf(location.url).length - 1 : 0;
  for (let i = 0; ; i++) {
    try {
      await em.fork().execute('select 1');
      return;
    } catch (reason) {
      if (i >= others || !isServerGone(reason)) throw reason;
    }
  }
}

function databaseName(location: DatabaseLocation): string {
  return 'url' in location
    ? decodeURIComponent(urlsOf(location.url)[0].pathname.slice(1))
    : location.database;
}

/**
 * Returns the names of the migrations that this database still lacks. Throws StartupError if `search_path`
 * leads past the service's tables, which would be made a second time, or to the table of another program.
 */
export async function pendingMigrations(em: EntityManager, all = ourMigrations): Promise<string[]> {
  // Rails, for one, has a table of this name, with other columns.
  const [{ table, ours, path }] = await em.execute<[{ table: string | null; ours: string[]; path: string }]>(
    `select to_regclass('${migrationsTable}')::text as table, current_setting('search_path') as path,
            array(select c.oid::regclass::text from pg_class c join pg_attribute a on a.attrelid = c.oid
                   where c.relname = '${migrationsTable}' and a.attname = 'executed_at') as ours`,
  );
  if (table === null ? ours.length > 0 : !ours.includes(table)) {
    const reason =
      ours.length === 0
        ? `${table} is another program's: give the service a schema or a database of its own`
        : `the service's tables are those beside ${ours.join(', ')}: set it to their schema for the role and the database, or use another database for a second installation`;
    throw new StartupError(`search_path is ${path}, and ${reason}`);
  }
  const applied =
    table === null ? [] : await em.execute<{ name: string }[]>(`select name from ${migrationsTable}`);
  const names = new Set(applied.map((row) => row.name));
  return all.map(({ name }) => name).filter((name) => !names.has(name));
}

/**
 * Brings the schema up to date, and returns the names of the migrations it ran. A new schema is made in one
 * transaction. After that each migration has its own, so that no table is locked while a later one builds an
 * index. If several processes call it at once, one does the work and the others wait. Throws StartupError,
 * with the rights to grant, if the role may not change the schema.
 */
export async function migrate(
  location: DatabaseLocation,
  migrations: readonly MigrationObject[] = ourMigrations,
): Promise<string[]> {
  // MikroORM looks for the database on a connection of its own.
  const orm = createOrm(location, 2, undefined, migrations);
  const once = () =>
    orm.em.fork().transactional(async (tx) => {
      await tx.execute('set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0');
      // Only PostgreSQL 17 and newer have it.
      await tx.execute(
        `select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'`,
      );
      await tx.execute(`select pg_advisory_xact_lock(${migrationLockId})`);
      await tx.execute(`set local lock_timeout = ${tableLockMs}`);
      const pending = await pendingMigrations(tx, migrations);
      const some = pending.length === migrations.length ? pending : pending.slice(0, 1);
      if (some.length > 0) {
        // A copy by logical replication has the rows, but not the sequence that numbers them.
        if (some.length < migrations.length)
          await tx.execute(
            `select setval(pg_get_serial_sequence('${migrationsTable}', 'id'), max(id)) from ${migrationsTable}`,
          );
        await orm.migrator.up({ migrations: some, transaction: tx.getTransactionContext() });
      }
      return { some, isLast: some.length === pending.length };
    });
  try {
    await connectToAny(orm, location);
    const names: string[] = [];
    for (let left = maxLockAttempts; ; left--) {
      try {
        const { some, isLast } = await once();
        names.push(...some);
        if (isLast) return names;
        left = maxLockAttempts + 1;
      } catch (reason) {
        if (left === 1 || !lockFailures.has(faultOf(reason)?.code)) throw reason;
        await sleep(tableLockPauseMs);
      }
    }
  } catch (cause) {
    const fault = faultOf(cause);
    throw fault?.code === insufficientPrivilege ? await missingRightError(orm, fault.message, cause) : cause;
  } finally {
    await orm.close();
  }
}

async function missingRightError(orm: MikroORM, refusal: string, cause: unknown): Promise<StartupError> {
  const [row] = await orm.em
    .fork()
    .execute<[{ role: string; database: string; grantee: string }]>(
      'select current_user as role, current_database() as database, quote_ident(current_user) as grantee',
    );
  const [, schema] = /^permission denied for schema (.+)$/.exec(refusal) ?? [];
  const remedy =
    schema === undefined
      ? 'run migrate as the role that owns the tables'
      : `its owner has to run "grant usage, create on schema ${schema} to ${row.grantee}", or make ${row.role} the owner of the database`;
  return new StartupError(
    `the role ${row.role} may not change the schema of the database ${row.database} (${refusal}): ${remedy}`,
    { cause },
  );
}
