// Who has changed what by the console. The entry is written before the change: without it nothing is changed.

import type { JsonObject } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { ModeName } from '../contract/words.ts';
import { lowestUuid, newUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { toServiceError } from '../requests/errors.ts';

const keptDays = 400;
const maxRemoved = 1_000;

export interface AuditEntry {
  /** `cs_…`. */
  actor: string;
  actorName: string;
  method: string;
  merchant: { id: string; mode: ModeName } | undefined;
  /** The id of what is changed; of what is made, it is known afterwards. */
  target: string | undefined;
  /** The intent that the request names besides it. */
  paymentIntent: string | undefined;
  /** The request. Its secrets are left out. */
  fields: JsonObject;
  requestId: string;
}

export interface Audit {
  /** Runs a change between its entry and its outcome. Throws `unavailable`, before the change, if there is no entry. */
  run<T extends object>(entry: AuditEntry, change: () => Promise<T>): Promise<T>;
}

/** `onLost` is called if an outcome could not be written: its entry then stands without one. */
export function createAudit(em: EntityManager, onLost: (reason: unknown, entry: AuditEntry) => void): Audit {
  const { run } = createPreparedStatements(em);
  return {
    async run(entry, change) {
      const { actor, actorName, method, merchant, target, paymentIntent, fields, requestId } = entry;
      const id = newUuid();
      await orUnavailable(() =>
        run(insert, [
          ...[id, actor, actorName, method, merchant?.id, merchant?.mode, target],
          ...[paymentIntent, fieldsText(fields), requestId],
        ]),
      );
      const end = (outcome: string, made?: string) =>
        run(noteOutcome, [id, outcome, made]).catch((reason) => onLost(reason, entry));
      try {
        const answer = await change();
        await end('ok', idIn(answer));
        return answer;
      } catch (reason) {
        await end(toServiceError(reason).code);
        throw reason;
      }
    },
  };
}

/** The id of a resource. Whatever else is sent in its place, such as a secret, is not kept. */
export function idIn(message: object, name: 'id' | 'paymentIntent' = 'id'): string | undefined {
  const id = (message as Record<string, unknown>)[name];
  return typeof id === 'string' && /^[a-z]{2,3}_[0-9a-z]{26}$/.test(id) ? id : undefined;
}

const maxFieldsLength = 8_192;
const secrets = /(?:sk_(?:testnet|mainnet)_|whsec_|c[ls]_|_secret_)[\w+/=-]{16,}/g;

/** The request as it is kept. What is too long for that says how long it was. */
function fieldsText(fields: JsonObject): string {
  const text = JSON.stringify(fields).replace(secrets, '…');
  return text.length <= maxFieldsLength ? text : JSON.stringify({ left_out: `${text.length} characters` });
}

/** Returns a function that removes a batch of old entries. Resolves with true if there are probably more. */
export function createAuditRemoval(em: EntityManager): () => Promise<boolean> {
  const { run } = createPreparedStatements(em);
  return async () => {
    const before = lowestUuid(Date.now() - keptDays * 86_400_000);
    return (await run(remove, [before, maxRemoved])).rowCount === maxRemoved;
  };
}

const insert = preparedStatement(
  'insert_audit_entry',
  `insert into audit_log (id, actor, actor_name, method, merchant_id, mode, target, payment_intent, fields, request_id)
   values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
);
const noteOutcome = preparedStatement(
  'note_outcome_of_audit_entry',
  'update audit_log set outcome = $2, target = coalesce(target, $3) where id = $1',
);
const remove = preparedStatement(
  'remove_audit_entries',
  'delete from audit_log where id in (select id from audit_log where id < $1 order by id limit $2)',
);
