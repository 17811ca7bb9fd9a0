// Compares key rings with the database: each must hold every version in use, and every key must be the one
// that the database was used with. A wrong key of the same version would make every secret wrong, unnoticed.

import type { EntityManager } from '@mikro-orm/postgresql';
import { type SecretName, secretNames } from '../config/config.ts';
import { StartupError } from '../config/startup-error.ts';
import { maxExpiryMinutes } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
import { faultOf, insufficientPrivilege } from '../database/remedies.ts';
import { isDatabaseUnavailable } from '../requests/unavailable.ts';
import type { Database } from './open-database.ts';

const versionsInUse: Record<SecretName, string> = {
  API_KEY_PEPPERS:
    'select distinct pepper_version as version from api_keys where revoked_at is null and (expires_at is null or expires_at > now())',
  // An id contains its time, so the primary key finds the intents that may still be paid.
  CLIENT_SECRET_KEYS: 'select distinct client_secret_version as version from payment_intents where id > ?',
  WEBHOOK_SECRET_KEYS: `
    select distinct s.key_version as version
      from webhook_secrets s join webhook_endpoints w on w.id = s.endpoint_id
     where w.deleted_at is null and (s.expires_at is null or s.expires_at > now())`,
};

/** Throws StartupError if a ring lacks a version in use. */
export async function assertVersions({ orm, keyRing }: Database, names: readonly SecretName[] = secretNames) {
  const em = orm.em.fork();
  const missing: string[] = [];
  for (const name of names) {
    const { versions } = keyRing(name);
    const openSince = name === 'CLIENT_SECRET_KEYS' ? [newUuid(Date.now() - maxExpiryMinutes * 60_000)] : [];
    const used = await em.execute<{ version: number }[]>(versionsInUse[name], openSince);
    const absent = used.filter(({ version }) => !versions.includes(version));
    missing.push(...absent.map(({ version }) => `version ${version} of ${name}`));
  }
  if (missing.length === 0) return;
  throw new StartupError(`the secrets lack ${missing.join(' and ')}: add it again after the newest version`);
}

/**
 * Checks the rings that the roles of a starting server use, and records new keys. Throws StartupError if a
 * ring lacks a version in use, or a key is not the one that the database was used with.
 */
export async function assertSecrets(database: Database): Promise<void> {
  const { orm, keyRing, config } = database;
  const isApi = config.roles.has('api');
  const names = secretNames.filter(
    (name) => isApi || (name === 'WEBHOOK_SECRET_KEYS' && config.roles.has('deliveries')),
  );
  // Without an older key of CLIENT_SECRET_KEYS, only its links fail: a leaked one can be dropped.
  const needed = names.filter((name) => name !== 'CLIENT_SECRET_KEYS');
  await assertVersions(database, needed);
  const given = checksOf(keyRing, names);
  const known = await readChecks(orm.em);
  assertSame(known, given);
  if (given.every((key) => known.some(isSameKey(key)))) return;
  await noteKeys(orm.em, given);
  // Another process may have recorded other keys meanwhile.
  assertSame(await readChecks(orm.em), given);
}

/** Throws StartupError if a key is not the servers', or none has the newest: its secrets would be invalid. */
export async function assertKeys({ orm, keyRing }: Database, names: readonly SecretName[] = secretNames) {
  const known = await readChecks(orm.em);
  assertSame(known, checksOf(keyRing, names));
  for (const name of names) {
    const version = keyRing(name).newestVersion;
    if (known.some((row) => row.name === name) && !known.some(isSameKey({ name, version }))) {
      throw new StartupError(
        `no server was started with version ${version} of ${name} yet: add it to the servers first`,
      );
    }
  }
}

interface KeyCheck {
  name: SecretName;
  version: number;
  /** HMAC of a text that nothing else is derived from. */
  value: string;
}

const isSameKey = (key: Omit<KeyCheck, 'value'>) => (row: KeyCheck) =>
  row.name === key.name && row.version === key.version;

function assertSame(known: readonly KeyCheck[], given: readonly KeyCheck[]): void {
  const other = given.find((key) => known.some((row) => isSameKey(key)(row) && row.value !== key.value));
  if (other === undefined) return;
  throw new StartupError(
    `version ${other.version} of ${other.name} is not the key that this database was used with: restore that key, or give the new one a version of its own. If that one was wrong from the first, delete its row in key_checks`,
  );
}

async function noteKeys(em: EntityManager, given: readonly KeyCheck[]): Promise<void> {
  const insert = `
    insert into key_checks select * from json_to_recordset(?) as given (name text, version smallint, value text)
        on conflict do nothing`;
  try {
    await em.fork().execute(insert, [JSON.stringify(given)]);
  } catch (cause) {
    // The database is a standby or unreachable. The next start records them.
    if (!isDatabaseUnavailable(cause)) throwWithRemedy(cause);
  }
}

const readChecks = (em: EntityManager): Promise<KeyCheck[]> =>
  em.fork().execute<KeyCheck[]>('select name, version, value from key_checks').catch(throwWithRemedy);

function throwWithRemedy(cause: unknown): never {
  if (faultOf(cause)?.code !== insufficientPrivilege) throw cause;
  const remedy = 'run "npm run -s admin -- doctor", which says what it lacks';
  throw new StartupError(`the role may not read and insert key_checks: ${remedy}`, { cause });
}

const checksOf = (keyRing: Database['keyRing'], names: readonly SecretName[]): KeyCheck[] =>
  names.flatMap((name) => {
    const { versions, hmac } = keyRing(name);
    const check = (version: number) => hmac(version, `key-check:${name}`, 'base64url');
    return versions.map((version) => ({ name, version, value: check(version) }));
  });
