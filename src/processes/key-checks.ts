// The rings of secret keys against the database: whether they hold every version that its rows need, and whether each is the
// key that the database was used with. With another key of the same version all would seem well, and every secret be wrong.

import { type SecretName, secretNames } from '../config/config.ts';
import { StartupError } from '../config/startup-error.ts';
import { maxExpiryMinutes } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
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
export async function assertVersions(
  { orm, keyRing }: Database,
  names: readonly SecretName[] = secretNames,
): Promise<void> {
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

/** Throws StartupError if a key is not the one that the database was used with, or none that a server was started with. */
export async function assertKeys(
  database: Database,
  names: readonly SecretName[] = secretNames,
): Promise<void> {
  const known = await database.orm.em.fork().execute<KeyCheck[]>('select * from key_checks');
  for (const key of checksOf(database, names)) {
    const ofRing = known.filter(({ name }) => name === key.name);
    const found = ofRing.find(({ version }) => version === key.version);
    const place = `version ${key.version} of ${key.name}`;
    if (found !== undefined && found.value !== key.value) {
      throw new StartupError(
        `${place} is not the key that this database was used with: restore that key, or give the new one a version of its own`,
      );
    }
    // What is made with it would be valid nowhere.
    if (
      found === undefined &&
      ofRing.length > 0 &&
      key.version === database.keyRing(key.name).newestVersion
    ) {
      throw new StartupError(`no server was started with ${place} yet: add it to the servers first`);
    }
  }
}

/** For a server that starts: as the others, but that keys that are new are noted. Throws StartupError. */
export async function assertSecrets(database: Database): Promise<void> {
  // Without an older CLIENT_SECRET_KEYS only its links open nothing: one that has leaked is dropped.
  await assertVersions(database, ['API_KEY_PEPPERS', 'WEBHOOK_SECRET_KEYS']);
  await noteKeys(database);
  await assertKeys(database);
}

async function noteKeys(database: Database): Promise<void> {
  await database.orm.em.fork().execute(
    `insert into key_checks select given.*
       from json_to_recordset(?) as given (name text, version smallint, value text)
       left join key_checks known using (name, version)
      where known.name is null
         on conflict do nothing`,
    [JSON.stringify(checksOf(database, secretNames))],
  );
}

interface KeyCheck {
  name: SecretName;
  version: number;
  /** HMAC of a text that nothing else is derived from. */
  value: string;
}

const checksOf = ({ keyRing }: Database, names: readonly SecretName[]): KeyCheck[] =>
  names.flatMap((name) => {
    const { versions, hmac } = keyRing(name);
    return versions.map((version) => ({
      name,
      version,
      value: hmac(version, `key-check:${name}`, 'base64url'),
    }));
  });
