// An operator's tasks: links that open the console for a person, and the sessions that began with them.

import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import { EndSessionResponseSchema } from '../contract/gen/console/v1/console_service_pb.ts';
import { invisibleProblem } from '../contract/visible-text.ts';
import type { ModeName } from '../contract/words.ts';
import { type ConsoleSession, ConsoleSessionEntity } from '../database/entities/console.ts';
import { keysChangedChannel } from '../database/entities/merchant.ts';
import { formatIdentifier, newUuid } from '../database/identifiers.ts';
import { findMerchant } from '../merchants/administration.ts';
import { AdministrationError } from '../merchants/administration-error.ts';
import { generateSecret } from '../merchants/api-key-format.ts';
import { sessionUuidOf } from '../merchants/operator-ids.ts';
import type { ConsoleMethod } from './rights.ts';
import { idleMs } from './sessions.ts';

const codeMs = 600_000;
const maxLastsMs = 7 * 86_400_000;
const maxName = 100;

export interface LinkOptions {
  /** Whose session it will be. */
  name: string;
  /** Without one, an operator's. */
  merchant?: { id: string; mode: ModeName };
  isReadOnly: boolean;
  lastsMs: number;
}

export interface SessionSummary {
  sessionId: string;
  name: string;
  merchantId: string | undefined;
  mode: ModeName | undefined;
  isReadOnly: boolean;
  /** `code`: the link was not opened yet. */
  status: 'code' | 'open' | 'ended' | 'revoked';
  createdAt: Date;
  expiresAt: Date | undefined;
}

/** Makes a link's code. It is shown only once, and works once, for ten minutes. Throws AdministrationError. */
export async function createLink(
  em: EntityManager,
  peppers: KeyRing,
  { name, merchant, isReadOnly, lastsMs }: LinkOptions,
): Promise<SessionSummary & { code: string }> {
  if (name.trim() === '' || [...name].length > maxName) {
    throw new AdministrationError(`a session's name has 1 to ${maxName} characters`);
  }
  const problem = invisibleProblem(name);
  if (problem !== undefined) throw new AdministrationError(`a session's name ${problem}`);
  if (lastsMs > maxLastsMs) throw new AdministrationError('a session lasts 7 days at most');
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

/** Ends a session on every process, or makes its code useless. Throws AdministrationError. */
export async function revokeSession(em: EntityManager, sessionId: string): Promise<SessionSummary> {
  const id = sessionUuidOf(sessionId);
  return em.fork().transactional(async (tx) => {
    const session = await tx.findOne(ConsoleSessionEntity, { id });
    if (session === null) {
      throw new AdministrationError(`there is no session ${sessionId}: "console list" shows them`);
    }
    session.revokedAt ??= new Date();
    await tx.flush();
    await tx.execute(`select pg_notify('${keysChangedChannel}', '')`);
    return summarize(session);
  });
}

/** `EndSession`: as `revokeSession` does for an operator. */
export function endSession(em: EntityManager): ConsoleMethod<'endSession'> {
  return {
    ratePolicy: 'changes',
    async run(_, { session: { typeId } }) {
      await revokeSession(em, typeId);
      return create(EndSessionResponseSchema);
    },
  };
}

function summarize(session: ConsoleSession): SessionSummary {
  const { id, name, merchantId, mode, isReadOnly, createdAt, codeExpiresAt, expiresAt } = session;
  return {
    sessionId: formatIdentifier('cs', id),
    name,
    merchantId: merchantId == null ? undefined : formatIdentifier('mer', merchantId),
    mode: mode ?? undefined,
    isReadOnly,
    status: statusOf(session),
    createdAt,
    expiresAt: expiresAt ?? codeExpiresAt,
  };
}

function statusOf({ revokedAt, usedAt, expiresAt, codeExpiresAt }: ConsoleSession): SessionSummary['status'] {
  const now = Date.now();
  if (revokedAt != null) return 'revoked';
  if (usedAt == null || expiresAt == null) return codeExpiresAt.getTime() > now ? 'code' : 'ended';
  return expiresAt.getTime() > now && now - usedAt.getTime() <= idleMs ? 'open' : 'ended';
}
