import type { EntityManager } from '@mikro-orm/postgresql';
import { StartupError } from '../config/startup-error.ts';

/** Returns the versions of `WEBHOOK_SECRET_KEYS` from which secrets in use are derived. */
export function findWebhookKeyVersions(em: EntityManager): Promise<{ version: number }[]> {
  return em.execute(
    `select distinct s.key_version as version
       from webhook_secrets s join webhook_endpoints w on w.id = s.endpoint_id
      where w.deleted_at is null and (s.expires_at is null or s.expires_at > now())`,
  );
}

/** Throws StartupError if the ring lacks a version in use: signatures could not be made. */
export async function assertWebhookKeys(em: EntityManager, versions: readonly number[]): Promise<void> {
  const used = await findWebhookKeyVersions(em);
  const missing = used.filter(({ version }) => !versions.includes(version)).map(({ version }) => version);
  if (missing.length === 0) return;
  throw new StartupError(
    `WEBHOOK_SECRET_KEYS lacks version ${missing.join(' and ')}, which webhook secrets in use are derived from: add it again after the newest version`,
  );
}
