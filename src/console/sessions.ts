// The sessions of the console. An operator makes a link for a person. Its code is exchanged once for a token.
// Both are stored as keyed hashes, like API keys.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { ModeName } from '../contract/words.ts';
import { type ConsoleSession, ConsoleSessionEntity } from '../database/entities/console.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, newUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { findMerchant } from '../merchants/administration.ts';
import { generateSecret, mayBeIssued } from '../merchants/api-keys.ts';
import { AdministrationError, assertName, noneWith, uuidOf } from '../merchants/operator-ids.ts';
import { orUnavailable } from '../requests/unavailable.ts';

/** A session ends after this time without a call made by a person. */
const idleMs = 3_600_000;
/** How old the recorded time of the last call may be. */
const touchMs = 60_000;

export type Session = ReturnType<typeof sessionOf>;

export type Sessions = ReturnType<typeof createSessions>;

export function createSessions(em: EntityManager, peppers: KeyRing) {
  const statements = createPreparedStatements(em);
  /** Takes turns with reads: with a token of an ended session, anybody can ask as often as they like. */
  const run: RunPrepared = (...of) => statements.read('sessions', ...of);
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
    /** Exchanges a code. Undefined if it is unknown, expired, used or revoked. Throws `unavailable`. */
    async exchange(code: string): Promise<{ token: string; session: Session } | undefined> {
      if (!mayBeIssued('cl_', code, peppers)) return undefined;
      const token = generateSecret('cs_', peppers);
      const version = peppers.newestVersion;
      const now = new Date().toISOString();
      const values = [...hashes(code), peppers.hmac(version, token, 'hex'), version, now];
      const [row] = (await orUnavailable(() => run(exchange, values))).rows;
      return row && { token, session: sessionOf(columns.read(row)) };
    },
    /**
     * Returns the session of a token; undefined if it has expired, was idle for an hour, or was revoked.
     * Calls that a page makes by itself are `unattended`, and keep no session open.
     */
    async identify(token: string, isUnattended: boolean): Promise<Session | undefined> {
      if (!mayBeIssued('cs_', token, peppers)) return undefined;
      const [found] = (await orUnavailable(() => run(find, hashes(token)))).rows.map(columns.read);
      if (found?.usedAt == null || found.revokedAt != null) return undefined;
      const session = sessionOf(found);
      const now = Date.now();
      const idleForMs = now - found.usedAt.getTime();
      if (session.expiresAt.getTime() <= now || idleForMs > idleMs) return undefined;
      if (idleForMs > touchMs && !isUnattended) {
        await orUnavailable(() => run(touch, [found.id, new Date(now).toISOString()]));
      }
      return session;
    },
  };
}

function sessionOf({ id, name, merchantId, mode, isReadOnly, expiresAt }: ConsoleSession) {
  return {
    /** Its public id. */
    typeId: formatIdentifier('cs', id),
    name,
    /** The only merchant and mode that it sees; undefined for an operator. */
    merchant: merchantId == null || mode == null ? undefined : { id: merchantId, mode },
    isReadOnly,
    expiresAt: expiresAt ?? new Date(0),
  };
}

const touch = preparedStatement(
  'touch_console_session',
  'update console_sessions set used_at = $2 where id = $1',
);

const codeMs = 600_000;
const maxLastsMs = 7 * 86_400_000;
const maxName = 100;

interface LinkOptions {
  /** Whose session it will be. */
  name: string;
  /** Without one, an operator's. */
  merchant?: { id: string; mode: ModeName };
  isReadOnly: boolean;
  lastsMs: number;
}

export type SessionSummary = ReturnType<typeof summarize>;

/** Makes a link's code, shown only once. It works once, for ten minutes. Throws AdministrationError. */
export async function createLink(em: EntityManager, peppers: KeyRing, options: LinkOptions) {
  const { name, merchant, isReadOnly, lastsMs } = options;
  assertName('session', name, maxName);
  if (lastsMs < 1 || lastsMs > maxLastsMs) {
    throw new AdministrationError('a session lasts more than 0 seconds, and 7 days at most');
  }
  const code = generateSecret('cl_', peppers);
  const createdAt = new Date();
  const session: ConsoleSession = {
    id: newUuid(createdAt.getTime()),
    name,
    merchantId: merchant ? await findMerchant(em, merchant.id) : null,
    mode: merchant?.mode ?? null,
    isReadOnly,
    pepperVersion: peppers.newestVersion,
    codeHash: Buffer.from(peppers.hmac(peppers.newestVersion, code, 'hex'), 'hex'),
    codeExpiresAt: new Date(createdAt.getTime() + codeMs),
    lastsSeconds: Math.ceil(lastsMs / 1_000),
    tokenHash: null,
    expiresAt: null,
    usedAt: null,
    createdAt,
    revokedAt: null,
  };
  await em.fork().insert(ConsoleSessionEntity, session);
  return { ...summarize(session), code };
}

/** The sessions of the last 30 days, newest first. */
export async function listSessions(em: EntityManager): Promise<SessionSummary[]> {
  const since = new Date(Date.now() - 30 * 86_400_000);
  const where = { createdAt: { $gt: since } };
  return (await em.fork().find(ConsoleSessionEntity, where, { orderBy: { id: 'desc' } })).map(summarize);
}

/** Ends a session on every process, or makes its code invalid. Throws AdministrationError. */
export async function revokeSession(em: EntityManager, sessionId: string): Promise<SessionSummary> {
  const id = uuidOf('cs', sessionId);
  const own = em.fork();
  const session = await own.findOne(ConsoleSessionEntity, { id });
  if (session === null) throw noneWith('cs', sessionId);
  session.revokedAt ??= new Date();
  await own.flush();
  return summarize(session);
}

function summarize(session: ConsoleSession) {
  const { id, name, merchantId, mode, isReadOnly, createdAt, codeExpiresAt, expiresAt } = session;
  return {
    sessionId: formatIdentifier('cs', id),
    name,
    merchantId: merchantId == null ? undefined : formatIdentifier('mer', merchantId),
    mode: mode ?? undefined,
    readOnly: isReadOnly,
    /** `code`: the link was not opened yet. */
    status: statusOf(session),
    createdAt,
    expiresAt: expiresAt ?? codeExpiresAt,
  };
}

function statusOf(session: ConsoleSession): 'code' | 'open' | 'ended' | 'revoked' {
  const { revokedAt, usedAt, expiresAt, codeExpiresAt } = session;
  const now = Date.now();
  if (revokedAt != null) return 'revoked';
  if (usedAt == null || expiresAt == null) return codeExpiresAt.getTime() > now ? 'code' : 'ended';
  return expiresAt.getTime() > now && now - usedAt.getTime() <= idleMs ? 'open' : 'ended';
}
