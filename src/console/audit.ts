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
  /** The id of what is changed. */
  target: string | undefined;
  /** The request, without secrets. */
  fields: JsonObject;
  requestId: string;
}

export interface Audit {
  /** Runs a change between its entry and its outcome. Throws `unavailable`, before the change, if there is no entry. */
  run<T>(entry: AuditEntry, change: () => Promise<T>): Promise<T>;
}

/** `onLost` is called if an outcome could not be written: its entry then stands without one. */
export function createAudit(em: EntityManager, onLost: (reason: unknown, entry: AuditEntry) => void): Audit {
  const { run } = createPreparedStatements(em);
  return {
    async run(entry, change) {
      const { actor, actorName, method, merchant, target, fields, requestId } = entry;
      const id = newUuid();
      await orUnavailable(() =>
        run(insert, [
          ...[id, actor, actorName, method, merchant?.id, merchant?.mode, target],
          ...[JSON.stringify(fields), requestId],
        ]),
      );
      const end = (outcome: string) =>
        run(noteOutcome, [id, outcome]).catch((reason) => onLost(reason, entry));
      try {
        const answer = await change();
        await end('ok');
        return answer;
      } catch (reason) {
        await end(toServiceError(reason).code);
        throw reason;
      }
    },
  };
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
  `insert into audit_log (id, actor, actor_name, method, merchant_id, mode, target, fields, request_id)
   values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
);
const noteOutcome = preparedStatement(
  'note_outcome_of_audit_entry',
  'update audit_log set outcome = $2 where id = $1',
);
const remove = preparedStatement(
  'remove_audit_entries',
  'delete from audit_log where id in (select id from audit_log where id < $1 order by id limit $2)',
);
