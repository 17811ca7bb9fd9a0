import type { EntityManager } from '@mikro-orm/postgresql';
import { StartupError } from '../config/startup-error.ts';

/** The versions of `WEBHOOK_SECRET_KEYS` that secrets which still sign are derived with. */
export function findWebhookKeyVersions(em: EntityManager): Promise<{ version: number }[]> {
  return em.execute(
    `select distinct s.key_version as version
       from webhook_secrets s join webhook_endpoints w on w.id = s.endpoint_id
      where w.deleted_at is null and (s.expires_at is null or s.expires_at > now())`,
  );
}

/** Throws StartupError if the ring lacks a version: what this process signs would not verify. */
export async function assertWebhookKeys(em: EntityManager, versions: readonly number[]): Promise<void> {
  const used = await findWebhookKeyVersions(em);
  const missing = used.filter(({ version }) => !versions.includes(version)).map(({ version }) => version);
  if (missing.length === 0) return;
  throw new StartupError(
    `WEBHOOK_SECRET_KEYS lacks version ${missing.join(' and ')}, with which secrets of webhook endpoints are made: put it back behind the newest`,
  );
}
