// What needs a person. Every item is read from what it is about, so that it ends by itself; what somebody has seen to is
// remembered by the item's id, which says how it was then.

import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import {
  AttentionItemSchema,
  AttentionKind,
  type ListAttentionRequest,
  type ListAttentionResponse,
  ListAttentionResponseSchema,
  type ResolveAttentionRequest,
  type ResolveAttentionResponse,
  ResolveAttentionResponseSchema,
} from '../contract/gen/console/v1/console_service_pb.ts';
import { formatIdentifier, type IdentifierPrefix } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { invalidBody, refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import type { Method } from '../requests/method.ts';
import { type ConsoleCaller, merchantOf } from './rights.ts';

const maxOfKind = 50;
/** Labelled intents looked at, newest first: most of them are settled. */
const maxLabelled = 500;
const maxCounted = 1_000;
const maxNote = 500;
const maxId = 200;

const kinds: Readonly<Record<string, { kind: AttentionKind; prefix: IdentifierPrefix }>> = {
  unattributed: { kind: AttentionKind.UNATTRIBUTED, prefix: 'tr' },
  payment: { kind: AttentionKind.PAYMENT, prefix: 'pi' },
  deliveries: { kind: AttentionKind.DELIVERIES, prefix: 'we' },
  endpoint: { kind: AttentionKind.ENDPOINT, prefix: 'we' },
  refund: { kind: AttentionKind.REFUND, prefix: 'rf' },
  unexpected: { kind: AttentionKind.UNEXPECTED_REFUND, prefix: 'rf' },
};

/** `ListAttention`. */
export function listAttention(
  em: EntityManager,
): Method<ListAttentionRequest, ListAttentionResponse, ConsoleCaller> {
  const { read } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    async run(_, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const { rows } = await orUnavailable(() => read(merchantId, findItems, [merchantId, mode]));
      return create(ListAttentionResponseSchema, {
        items: rows.flatMap((row) => {
          const of = kinds[row.kind];
          return of === undefined ? [] : [itemOf(row, of.kind, of.prefix)];
        }),
      });
    },
  };
}

function itemOf(row: Record<string, unknown>, kind: AttentionKind, prefix: IdentifierPrefix) {
  return create(AttentionItemSchema, {
    id: String(row.item),
    kind,
    subject: formatIdentifier(prefix, String(row.subject)),
    at: timestampFromDate(new Date(row.at as Date)),
    chainId: BigInt(Number(row.chain_id ?? 0)),
    amountUnits: BigInt(String(row.units ?? 0)),
    count: Number(row.count ?? 0),
    labels: (row.labels as string[] | null) ?? [],
    url: String(row.url ?? ''),
    paymentIntent: row.payment_intent == null ? '' : formatIdentifier('pi', String(row.payment_intent)),
  });
}

/** `ResolveAttention`: the item is not listed any more. Resolving it again changes its note. */
export function resolveAttention(
  em: EntityManager,
): Method<ResolveAttentionRequest, ResolveAttentionResponse, ConsoleCaller> {
  const { run } = createPreparedStatements(em);
  const violations = (request: ResolveAttentionRequest) => {
    const all = unknownFieldViolations(request);
    if ([...request.note].length > maxNote) {
      all.push({ field: 'note', message: `must have at most ${maxNote} characters` });
    }
    return all;
  };
  return {
    ratePolicy: 'changes',
    violations,
    async run(request, caller) {
      const { merchantId, mode } = merchantOf(caller);
      refuseInvalid(violations(request));
      const values = [merchantId, mode, request.id.slice(0, maxId), request.note];
      const { rowCount } = await orUnavailable(() => run(resolveItem, values));
      // What is not listed cannot be resolved: nobody fills the table with names of their own.
      if (rowCount === 0) throw invalidBody([{ field: 'id', message: 'must be the id of an item' }]);
      return create(ResolveAttentionResponseSchema);
    },
  };
}

const at = (uuid: string) =>
  `to_timestamp(('x' || left(replace(${uuid}::text, '-', ''), 12))::bit(48)::bigint / 1000.0)`;

/**
 * Of a merchant's mode. An intent is listed while it has more confirmed money than it should and than was returned, or
 * lacks what was reorganised.
 */
const items = `
  (select 'unattributed' as kind, t.id as subject, t.id::text as detail, t.block_time as at, t.chain_id,
          t.amount_units as units, null::int as count, t.labels, null::text as url, null::uuid as payment_intent
     from transfers t
    where t.merchant_id = $1 and t.mode = $2 and t.payment_intent is null and not t.is_refund and t.state <> 'reorged'
    order by t.id desc limit ${maxOfKind})
  union all
  (select 'payment', i.id, array_to_string(i.labels, ' ') || ' ' || m.surplus,
          coalesce(i.succeeded_at, i.expired_at, i.canceled_at, i.created_at), n.chain_id, greatest(m.surplus, 0), null,
          i.labels, null, null
     from (select * from payment_intents
            where merchant_id = $1 and mode = $2 and labels is not null order by id desc limit ${maxLabelled}) i
     join networks n on n.id = i.network
    cross join lateral (
      select coalesce(sum(t.amount_units) filter (where not coalesce('wrong_token' = any (t.labels), false)), 0)
             - case i.status when 'succeeded' then i.amount_units else 0 end
             - coalesce(i.amount_refunded_units, 0) as surplus
        from transfers t where t.payment_intent = i.id and t.state = 'confirmed'
    ) m
    where i.status <> 'processing' and i.status <> 'requires_payment'
      and (m.surplus > 0 or i.labels && array['reorged', 'wrong_token'])
    order by i.id desc limit ${maxOfKind})
  union all
  (select 'deliveries', w.id, d.last::text, d.last, null, null, d.count, null, w.url, null
     from webhook_endpoints w
    cross join lateral (
      select count(*)::int as count, max(f.created_at) as last
        from (select created_at from webhook_deliveries
               where merchant_id = w.merchant_id and endpoint_id = w.id and status = 'failed'
               order by created_at desc limit ${maxCounted}) f
    ) d
    where w.merchant_id = $1 and w.mode = $2 and w.deleted_at is null and d.count > 0 limit ${maxOfKind})
  union all
  (select 'endpoint', w.id, w.disabled_reason, ${at('w.id')}, null, null, null, null, w.url, null
     from webhook_endpoints w
    where w.merchant_id = $1 and w.mode = $2 and w.deleted_at is null and not w.enabled and w.disabled_reason is not null limit ${maxOfKind})
  union all
  (select 'refund', r.id, '', r.created_at, n.chain_id, r.amount_units, null, null, null, r.payment_intent
     from refunds r join networks n on n.id = r.network
    where r.merchant_id = $1 and r.mode = $2 and r.status = 'requires_transfer' order by r.id desc limit ${maxOfKind})
  union all
  (select 'unexpected', r.id, array_to_string(r.labels, ' '), coalesce(r.succeeded_at, r.canceled_at, r.expired_at, r.created_at),
          n.chain_id, r.amount_units, null, r.labels, null, r.payment_intent
     from refunds r join networks n on n.id = r.network
    where r.merchant_id = $1 and r.mode = $2 and r.labels is not null order by r.id desc limit ${maxOfKind})`;

/** The items that nobody has seen to as they are now. */
const open = `
  select i.*, left(i.kind || ':' || i.subject || ':' || i.detail, ${maxId}) as item from (${items}) i
   where not exists (
     select from resolved_attention s
      where s.merchant_id = $1 and s.mode = $2
        and s.item = left(i.kind || ':' || i.subject || ':' || i.detail, ${maxId}))`;

const findItems = preparedStatement('find_attention', `select * from (${open}) o order by o.at desc`);
const resolveItem = preparedStatement(
  'resolve_attention',
  `insert into resolved_attention (merchant_id, mode, item, note, resolved_at)
   select $1, $2::payment_mode, $3, $4, now()
    where exists (select from (${open}) o where o.item = $3)
       or exists (select from resolved_attention s where s.merchant_id = $1 and s.mode = $2 and s.item = $3)
   on conflict (merchant_id, mode, item) do update set note = excluded.note, resolved_at = excluded.resolved_at`,
);
