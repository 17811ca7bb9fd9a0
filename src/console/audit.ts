// The audit log of changes by console users, API keys and `admin`. The entry is written first: without it,
// nothing is changed. An intent that a key creates has no entry: its request's log line names the key.

import { userInfo } from 'node:os';
import { type DescMethodUnary, type JsonObject, type Message, toJson } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { Access, accessOf } from '../contract/access.ts';
import { ConsoleService } from '../contract/gen/console/v1/console_service_pb.ts';
import { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { ModeName } from '../contract/words.ts';
import { Batcher } from '../database/batcher.ts';
import { lowestUuidOfAge, newUuid } from '../database/identifiers.ts';
import { createPreparedStatements, type PreparedStatement, preparedStatement } from '../database/prepared.ts';
import { AdministrationError } from '../merchants/operator-ids.ts';
import { refuseInvalid, toServiceError } from '../requests/errors.ts';
import type { ImplementedService, Method } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { orUnavailable } from '../requests/unavailable.ts';

const keptDays = 400;
const maxRemoved = 1_000;
const maxBatchSize = 256;

export interface Actor {
  /** `cs_…`, `key_…` or `cli`. */
  actor: string;
  actorName: string;
  merchant: { id: string; mode: ModeName } | undefined;
  /** People look at the outcome next, so their answer waits until it is written. A program's does not. */
  isPerson: boolean;
}

interface AuditEntry extends Actor {
  method: string;
  /** The id of what is changed. If the change creates it, it is known afterwards. */
  target: string | undefined;
  /** The intent that the request also names. */
  paymentIntent: string | undefined;
  /** The request. Its secrets are left out. */
  fields: JsonObject;
  requestId: string;
}

export type Audit = ReturnType<typeof createAudit>;

/** `onLost` is called if an outcome could not be written: its entry then has none. */
export function createAudit(em: EntityManager, onLost: (reason: unknown, requestId: string) => void) {
  const { run } = createPreparedStatements(em);
  /** Rows that arrive while one is written share the next statement, which takes an array for each column. */
  const batched = (statement: PreparedStatement, slots: number) =>
    new Batcher<unknown[], undefined>({
      slots,
      maxBatchSize,
      async run(rows) {
        await run(statement, rows[0]?.map((_, column) => rows.map((row) => row[column])) ?? []);
        return rows.map(() => undefined);
      },
    });
  const inserts = batched(insert, 2);
  const outcomes = batched(noteOutcomes, 1);
  const open = new Set<Promise<unknown>>();
  return {
    /** Resolves when every change that has begun by now has its outcome. */
    settled: (): Promise<unknown> => Promise.all(open),
    /** Writes the entry, runs the change, writes the outcome. Runs nothing if the entry cannot be written. */
    async run<T>(
      { isPerson, requestId, merchant, ...entry }: AuditEntry,
      change: () => Promise<T>,
    ): Promise<T> {
      const id = newUuid();
      const row = [
        ...[id, entry.actor, entry.actorName, entry.method, merchant?.id, merchant?.mode],
        ...[entry.target, entry.paymentIntent, fieldsText(entry.fields), requestId],
      ];
      await inserts.add(row);
      const changed = change();
      const ended = changed
        .then((answer) => ['ok', idIn(answer)])
        .catch((reason) => [codeOf(reason), undefined]);
      const written: Promise<unknown> = ended
        .then((outcome) => outcomes.add([id, ...outcome]))
        .catch((reason) => onLost(reason, requestId))
        .finally(() => open.delete(written));
      open.add(written);
      if (isPerson) await written;
      return changed;
    },
  };
}

const codeOf = (of: unknown) => (of instanceof AdministrationError ? 'refused' : toServiceError(of).code);

/** Returns the method with an audit log of its changes, or the method itself if it only reads. */
export function auditedMethod<Caller>(
  audit: Audit,
  desc: DescMethodUnary,
  method: Method<unknown, unknown, Caller>,
  actorOf: (caller: Caller) => Actor,
): Method<unknown, unknown, Caller> {
  // Operators' lists are not changes either. Ending a session is one, though read-only sessions may do it.
  const isRead = accessOf(desc) === Access.READ && desc !== ConsoleService.method.endSession;
  if (isRead || desc.name.startsWith('List')) return method;
  return {
    ...method,
    async run(request, caller, call) {
      // An invalid request changes nothing.
      refuseInvalid(method.violations?.(request, caller) ?? []);
      const entry = {
        ...actorOf(caller),
        method: `${desc.parent.typeName}/${desc.name}`,
        target: idIn(request),
        paymentIntent: idIn(request, 'paymentIntent'),
        fields: toJson(desc.input, request as Message) as JsonObject,
        requestId: call.context.requestId,
      };
      return orUnavailable(() => audit.run(entry, () => method.run(request, caller, call)));
    },
  };
}

/** Returns a service for keys with an audit log of its changes, except for creations of intents. */
export function auditedService(
  { methods, ...service }: ImplementedService<Identity>,
  audit: Audit,
): ImplementedService<Identity> {
  const actorOf = ({ keyTypeId, merchantId, mode }: Identity): Actor => ({
    actor: keyTypeId,
    actorName: 'API key',
    merchant: { id: merchantId, mode },
    isPerson: false,
  });
  const wrapped = [...methods].map(([desc, method]) => {
    const isCreation = desc === PaymentIntentService.method.createPaymentIntent;
    return [desc, isCreation ? method : auditedMethod(audit, desc, method, actorOf)] as const;
  });
  return { ...service, methods: new Map(wrapped) };
}

/** The entry of an `admin` command: who runs it, and with which arguments. */
export function entryOfCommand(command: string, args: readonly string[]): AuditEntry {
  const ids = args.flatMap((arg) => arg.match(/\b[a-z]{2,3}_[0-9a-z]{26}\b/g) ?? []);
  return {
    actor: 'cli',
    actorName: userName(),
    merchant: undefined,
    isPerson: true,
    method: `admin ${command}`,
    target: ids.find((id) => !/^(?:mer|pi)_/.test(id)),
    paymentIntent: ids.find((id) => id.startsWith('pi_')),
    fields: { arguments: args.join(' ') },
    requestId: '',
  };
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // A container's user may have no name.
    return `user ${process.getuid?.()}`;
  }
}

/** The id of a resource; undefined if something else was sent in its place. */
function idIn(message: unknown, name: 'id' | 'paymentIntent' = 'id'): string | undefined {
  const id = (message as Record<string, unknown> | undefined)?.[name];
  return typeof id === 'string' && /^[a-z]{2,3}_[0-9a-z]{26}$/.test(id) ? id : undefined;
}

const maxFieldsLength = 8_192;
const secrets = /(?:sk_(?:testnet|mainnet)_|whsec_|_secret_)[\w+/=-]{16,}|c[lst]_[0-9A-Za-z]{40,}/g;

/**
 * The request as stored. If it is too long, only its length. Characters that JSON escapes by number become
 * U+FFFD, because PostgreSQL cannot convert all of them to text.
 */
function fieldsText(fields: JsonObject): string {
  const escapes = /\\(?:u[0-9a-f]{4}|.)/g;
  const readable = JSON.stringify(fields).replace(escapes, (each) => (each.length > 2 ? '\ufffd' : each));
  const text = readable.replace(secrets, '…');
  return text.length <= maxFieldsLength ? text : JSON.stringify({ left_out: `${text.length} characters` });
}

/** Returns a function that removes a batch of old entries. Resolves with true if there are probably more. */
export function createAuditRemoval(em: EntityManager): () => Promise<boolean> {
  const { run } = createPreparedStatements(em);
  return async () => {
    return (await run(remove, [keptDays * 86_400_000, maxRemoved, Date.now()])).rowCount === maxRemoved;
  };
}

const insert = preparedStatement(
  'insert_audit_entries',
  `insert into audit_log (id, actor, actor_name, method, merchant_id, mode, target, payment_intent, fields, request_id)
   select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::payment_mode[], $7::text[],
                        $8::text[], $9::json[], $10::text[])`,
);
const noteOutcomes = preparedStatement(
  'note_outcomes_of_audit_entries',
  `update audit_log a set outcome = given.outcome, target = coalesce(a.target, given.made)
     from unnest($1::uuid[], $2::text[], $3::text[]) as given (id, outcome, made)
    where a.id = given.id`,
);
const remove = preparedStatement(
  'remove_audit_entries',
  `delete from audit_log
    where id in (select id from audit_log where id < ${lowestUuidOfAge('$1', '$3')} order by id limit $2)`,
);
