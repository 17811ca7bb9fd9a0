// The sessions of the console. A link carries a code, which is exchanged for a token, once. Both are stored as API keys
// are: as keyed hashes.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { ModeName } from '../contract/words.ts';
import { type ConsoleSession, ConsoleSessionEntity } from '../database/entities/console.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { apiKeyFormatOf, generateSecret } from '../merchants/api-key-format.ts';
import { orUnavailable } from '../requests/unavailable.ts';

/** A session ends after this time without a call. */
export const idleMs = 3_600_000;
/** How old the recorded time of the last call may be. */
const touchMs = 60_000;

/** Who calls. */
export interface Session {
  /** Its public id, `cs_…`. */
  typeId: string;
  name: string;
  /** The only merchant and mode that it sees; undefined for an operator. */
  merchant: { id: string; mode: ModeName } | undefined;
  isReadOnly: boolean;
  expiresAt: Date;
}

export interface Sessions {
  /** Exchanges a code. Undefined if it is unknown, older than ten minutes, used, or revoked. Throws `unavailable`. */
  exchange(code: string): Promise<{ token: string; session: Session } | undefined>;
  /** The session of a token. Undefined if it has ended, by its time, an hour without a call, or `console revoke`. */
  identify(token: string): Promise<Session | undefined>;
}

export function createSessions(em: EntityManager, peppers: KeyRing): Sessions {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<ConsoleSession>(em, ConsoleSessionEntity);
  const exchange = preparedStatement(
    'exchange_console_code',
    `update console_sessions s
        set token_hash = decode($3, 'hex'), pepper_version = $4, used_at = $5,
            expires_at = $5::timestamptz + s.lasts_seconds * interval '1 second'
       from unnest($1::text[], $2::smallint[]) as wanted (code_hash, pepper_version)
      where s.code_hash = decode(wanted.code_hash, 'hex') and s.pepper_version = wanted.pepper_version
        and s.token_hash is null and s.revoked_at is null and s.code_expires_at > $5
     returning ${columns.of('s')}`,
  );
  const find = preparedStatement(
    'find_console_session',
    `select ${columns.of('s')}
       from unnest($1::text[], $2::smallint[]) as wanted (token_hash, pepper_version)
       join console_sessions s
         on s.token_hash = decode(wanted.token_hash, 'hex') and s.pepper_version = wanted.pepper_version`,
  );
  const hashes = (secret: string) => [
    peppers.versions.map((version) => peppers.hmac(version, secret, 'hex')),
    peppers.versions,
  ];

  return {
    async exchange(code) {
      if (!code.startsWith('cl_') || apiKeyFormatOf(code, peppers) !== 'keyed') return undefined;
      const token = generateSecret('cs_', peppers);
      const version = peppers.newestVersion;
      const values = [
        ...hashes(code),
        peppers.hmac(version, token, 'hex'),
        version,
        new Date().toISOString(),
      ];
      const [row] = (await orUnavailable(() => run(exchange, values))).rows;
      return row && { token, session: sessionOf(columns.read(row)) };
    },
    async identify(token) {
      if (!token.startsWith('cs_') || apiKeyFormatOf(token, peppers) !== 'keyed') return undefined;
      const [found] = (await orUnavailable(() => run(find, hashes(token)))).rows.map(columns.read);
      if (found?.usedAt == null || found.revokedAt != null) return undefined;
      const session = sessionOf(found);
      const now = Date.now();
      const idleForMs = now - found.usedAt.getTime();
      if (session.expiresAt.getTime() <= now || idleForMs > idleMs) return undefined;
      if (idleForMs > touchMs) {
        await orUnavailable(() => run(touch, [found.id, new Date(now).toISOString()]));
      }
      return session;
    },
  };
}

function sessionOf({ id, name, merchantId, mode, isReadOnly, expiresAt }: ConsoleSession): Session {
  return {
    typeId: formatIdentifier('cs', id),
    name,
    merchant: merchantId == null || mode == null ? undefined : { id: merchantId, mode },
    isReadOnly,
    expiresAt: expiresAt ?? new Date(0),
  };
}

const touch = preparedStatement(
  'touch_console_session',
  'update console_sessions set used_at = $2 where id = $1',
);
