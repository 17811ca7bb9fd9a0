import type { MikroORM } from '@mikro-orm/postgresql';
import type { Config, SecretName } from '../config/config.ts';
import { type DatabaseLocation, urlsOf } from '../config/database-location.ts';
import type { KeyRing } from '../config/key-ring.ts';
import { StartupError } from '../config/startup-error.ts';
import { connectToAny, createOrm, endSessions, migrate, pendingMigrations } from '../database/orm.ts';
import { remedyFor } from '../database/remedies.ts';
import { assertSettings } from '../database/writability.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/postgres.ts';
import { loadSecrets } from '../embedded/secrets.ts';
import { causesOf } from '../requests/errors.ts';
import { isDatabaseUnavailable } from '../requests/unavailable.ts';

export interface Database {
  orm: MikroORM;
  config: Config;
  location: DatabaseLocation;
  /** The keys that belong to the data. Throws StartupError if they are not configured. */
  keyRing(name: SecretName): KeyRing;
  embedded: boolean;
  /** Migrations that were not run. Empty for an embedded database that was brought up to date. */
  pending: string[];
  /** Closes the connections, and stops the embedded PostgreSQL if no other process uses it. */
  close(): Promise<void>;
}

/**
 * Opens the configured database, or the embedded one, with its secrets. `postgres` is the embedded one if the
 * caller has already started it. Throws StartupError with a remedy if the database cannot be reached.
 */
export async function openDatabase(config: Config, postgres?: EmbeddedPostgres): Promise<Database> {
  if (config.databaseUrl !== undefined) return openExternal(config, config.databaseUrl);
  return openEmbedded(config, postgres ?? (await startEmbeddedPostgres(config.dataDir)), true);
}

/** Opens a running embedded database. Without `bringUpToDate`, migrates nothing and makes no secrets. */
export async function openEmbedded(
  config: Config,
  postgres: EmbeddedPostgres,
  bringUpToDate: boolean,
): Promise<Database> {
  const orm = createOrm(postgres.location, config.databasePool, config.databaseTimeouts);
  const close = async () => {
    await endSessions(orm);
    await postgres.stop();
  };
  try {
    let pending = await pendingMigrations(orm.em.fork());
    if (pending.length > 0 && bringUpToDate) {
      await migrate(postgres.location);
      pending = [];
    }
    const generated = await loadSecrets(config.dataDir, bringUpToDate);
    return {
      orm,
      config,
      location: postgres.location,
      keyRing(name) {
        const ring = config.secrets[name] ?? generated[name];
        if (ring === undefined) {
          throw new StartupError(`${config.dataDir} has no ${name} yet: the next "npm start" adds it`);
        }
        return ring;
      },
      embedded: true,
      pending,
      close,
    };
  } catch (cause) {
    await close();
    if (!isDatabaseUnavailable(cause)) throw cause;
    throw new StartupError(
      `the embedded PostgreSQL in ${config.dataDir} does not answer (${reasonOf(cause)}): end its remaining processes, or set DATA_DIR to another folder`,
      { cause },
    );
  }
}

async function openExternal(config: Config, url: string): Promise<Database> {
  const location = { url };
  const orm = createOrm(location, config.databasePool, config.databaseTimeouts);
  try {
    await connectToAny(orm, location);
    await assertSettings(orm.em);
    const pending = await pendingMigrations(orm.em.fork());
    return {
      orm,
      config,
      location,
      keyRing(name) {
        const ring = config.secrets[name];
        if (ring === undefined)
          throw new StartupError(`${name} is missing: set it to the value that the server uses`);
        return ring;
      },
      embedded: false,
      pending,
      close: () => orm.close(),
    };
  } catch (cause) {
    await orm.close();
    if (cause instanceof StartupError) throw cause;
    const urls = urlsOf(url);
    const hosts = urls.map(({ hostname, port }) => `${hostname || 'localhost'}:${port || 5432}`);
    throw new StartupError(
      `the database "${urls[0].pathname.slice(1)}" at ${hosts.join(' or ')} cannot be used (${reasonOf(cause)}): ${remedyFor(cause) ?? 'check DATABASE_URL and that PostgreSQL runs there'}`,
      { cause },
    );
  }
}

/** The first line of the driver's message; it never contains the password. */
function reasonOf(error: unknown): string {
  const messages = causesOf(error).map((cause) =>
    cause instanceof AggregateError ? cause.errors[0].message : cause.message,
  );
  return messages.find((message) => message !== '')?.split('\n', 1)[0] ?? 'no reason given';
}
