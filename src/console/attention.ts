// What needs a person. Items are read from the current data, so they end by themselves. A resolved item is
// remembered by its id, which contains its state at the time.

import type { JsonObject } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { AttentionKind } from '../contract/gen/console/v1/console_service_pb.ts';
import { invisibleProblem } from '../contract/visible-text.ts';
import { networkChains } from '../database/entities/network.ts';
import { formatIdentifier, type IdentifierPrefix } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { sumsOf } from '../payment-intents/payment-sums.ts';
import { invalidState, violationsIn } from '../requests/errors.ts';
import { unattributedItem } from '../settlement/measures.ts';
import { chainItems } from './console-chains.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

const maxOfKind = 50;
const maxCounted = 1_000;
/** How many of the newest are searched: of labeled intents with an amount refunded, of those without, of transfers. */
const maxSearched = 2_000;
/** An endpoint that has failed for less is retried without being listed. */
const failingMinutes = 15;
const maxNote = 500;
const maxId = 200;

const kinds = {
  unattributed: { kind: AttentionKind.UNATTRIBUTED, prefix: 'tr' },
  payment: { kind: AttentionKind.PAYMENT, prefix: 'pi' },
  deliveries: { kind: AttentionKind.DELIVERIES, prefix: 'we' },
  endpoint: { kind: AttentionKind.ENDPOINT, prefix: 'we' },
  refund: { kind: AttentionKind.REFUND, prefix: 'rf' },
  unexpected: { kind: AttentionKind.UNEXPECTED_REFUND, prefix: 'rf' },
} as const satisfies Record<string, { kind: AttentionKind; prefix: IdentifierPrefix }>;

/** `ListAttention`. Without payments whose surplus is below `minUnits`: anybody can send some dust to them. */
export function listAttention(em: EntityManager, minUnits: bigint): ConsoleMethod<'listAttention'> {
  const { read } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    async run(_, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const { rows } = await read(merchantId, findItems, [merchantId, mode, String(minUnits)]);
      const ofChains = await chainItems(em, mode, caller.session.merchant && merchantId);
      return { items: [...ofChains, ...rows.map(itemOf)] };
    },
  };
}

function itemOf(row: Record<string, unknown>) {
  const { kind, prefix } = kinds[row.kind as keyof typeof kinds];
  return {
    id: String(row.item),
    kind,
    subject: formatIdentifier(prefix, String(row.subject)),
    at: timestampFromDate(new Date(row.at as Date)),
    chainId: BigInt(Number(row.chain_id ?? 0)),
    amountUnits: BigInt(String(row.units ?? 0)),
    tokenAddress: row.token == null ? '' : `0x${(row.token as Buffer).toString('hex')}`,
    count: Number(row.count ?? 0),
    labels: (row.labels as string[] | null) ?? [],
    url: String(row.url ?? ''),
    paymentIntent: row.payment_intent == null ? '' : formatIdentifier('pi', String(row.payment_intent)),
    ...(row.metadata != null && { metadata: row.metadata as JsonObject }),
  };
}

const hasChanged = 'This is not in the list any more, or has changed since. Look at the list again.';

/** `ResolveAttention`: removes the item from the list. Resolving it again changes its note. */
export function resolveAttention(em: EntityManager, minUnits: bigint): ConsoleMethod<'resolveAttention'> {
  const { read, run } = createPreparedStatements(em);
  return {
    ratePolicy: 'changes',
    violations({ id, note }) {
      // The ids of the list: a kind, a UUID, and labels and times as printable text.
      const isItem = /^[a-z]+:[0-9a-f-]{36}:[ -~]*$/.test(id) && id.length <= maxId;
      return violationsIn(
        ['note', [...note].length > maxNote && `must have at most ${maxNote} characters`],
        ['note', invisibleProblem(note)],
        ['id', !isItem && 'must be the id of an item'],
      );
    },
    async run(request, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const { id, note } = request;
      // Only listed items can be resolved, so that nobody can fill the table with invented ones.
      const known = await read(merchantId, isResolved, [merchantId, mode, id]);
      if (!known.rowCount) {
        const { rows } = await read(merchantId, findItems, [merchantId, mode, String(minUnits)]);
        if (!rows.some(({ item }) => item === id)) throw invalidState(hasChanged);
      }
      await run(resolveItem, [merchantId, mode, id, note]);
      // The audit log takes its target from this id.
      const [kind, uuid = ''] = id.split(':');
      const { prefix } = kinds[kind as keyof typeof kinds];
      return { id: formatIdentifier(prefix, uuid) };
    },
  };
}

const at = (uuid: string) =>
  `to_timestamp(('x' || left(replace(${uuid}::text, '-', ''), 12))::bit(48)::bigint / 1000.0)`;

/** An item's id: its subject, and the subject's current state. */
const itemOfRow = (kind: string, subject: string, detail: string) =>
  `left('${kind}:' || ${subject} || ':' || ${detail}, ${maxId})`;
/** True if the item, in its current state, is not resolved. */
const isUnresolved = (item: string) => `not exists (
        select from resolved_attention s where s.merchant_id = $1 and s.mode = $2 and s.item = ${item})`;

const intentState =
  "array_to_string(i.labels, ' ') || ' ' || greatest(m.surplus, 0) || coalesce(' ' || m.other_tokens, '')";
const intentItem = itemOfRow('payment', 'i.id', intentState);
// A delivery that fails later, with another attempt or with its endpoint, makes a new item.
const deliveriesItem = itemOfRow('deliveries', 'w.id', 'd.tried');
const endpointState = "coalesce(w.failing_since::text, '') || ' ' || coalesce(w.disabled_reason, '')";
const endpointItem = itemOfRow('endpoint', 'w.id', endpointState);
const refundItem = itemOfRow('refund', 'r.id', 'r.event_count');
const unexpectedItem = itemOfRow('unexpected', 'r.id', "array_to_string(r.labels, ' ') || ' ' || m.units");

/**
 * Ended intents with a confirmed surplus that was not returned or a wrong token, or with a reorged payment. Those
 * with the most at stake are listed: strangers can send small amounts to many.
 */
const payments = (refunded: string) => `
  (select 'payment' as kind, i.id as subject, ${intentItem} as item,
          coalesce(i.succeeded_at, i.expired_at, i.canceled_at, i.created_at) as at, n.chain_id, n.token,
          greatest(m.surplus, 0) as units, null::int as count, i.labels, null::text as url, null::uuid as payment_intent,
          case when 'reorged' = any (i.labels) then 'infinity' else greatest(m.surplus, m.other_tokens) end as stake
     from (select * from payment_intents i
            where i.merchant_id = $1 and i.mode = $2 and i.labels is not null and i.amount_refunded_units ${refunded}
            order by i.id desc limit ${maxSearched}) i
     join ${networkChains} on n.id = i.network
    cross join lateral (
      select coalesce(sum(p.units) filter (where not 'wrong_token' = any (p.labels)), 0)
             - case i.status when 'succeeded' then i.amount_units else 0 end
             - coalesce(i.amount_refunded_units, 0) as surplus,
             sum(p.units) filter (where 'wrong_token' = any (p.labels)) as other_tokens
        from ${sumsOf('i.id')} p where p.state = 'confirmed'
    ) m
    where i.status <> 'processing' and i.status <> 'requires_payment'
      and (greatest(m.surplus, m.other_tokens) >= greatest($3::bigint, 1) or 'reorged' = any (i.labels)) and ${isUnresolved(intentItem)}
    order by stake desc, i.id desc limit ${maxOfKind})`;

const findItems = preparedStatement(
  'find_attention',
  `select * from (
  (select kind, subject, item, at, chain_id, token, units, count, labels, url, payment_intent
     from (${payments('is null')} union all ${payments('is not null')}) p
    order by stake desc, subject desc limit ${maxOfKind})
  union all
  (select 'unattributed', t.id, ${unattributedItem}, t.block_time, t.chain_id, t.token_address, t.amount_units, null, t.labels, null, null
     from (select * from transfers t
            where t.merchant_id = $1 and t.mode = $2 and t.payment_intent is null and not t.is_refund and t.state <> 'reorged'
              and ${isUnresolved(unattributedItem)}
            order by t.id desc limit ${maxSearched}) t
    order by t.amount_units desc, t.id desc limit ${maxOfKind})
  union all
  (select 'deliveries', w.id, ${deliveriesItem}, d.last, null, null, null, d.count, null, w.url, null
     from webhook_endpoints w
    cross join lateral (
      select count(*)::int as count, max(f.created_at) as last, max(greatest(f.created_at, f.leased_until)) as tried
        from (select created_at, leased_until from webhook_deliveries
               where merchant_id = w.merchant_id and endpoint_id = w.id and status = 'failed'
               order by created_at desc limit ${maxCounted}) f
    ) d
    where w.merchant_id = $1 and w.mode = $2 and w.deleted_at is null and d.count > 0 and ${isUnresolved(deliveriesItem)}
    limit ${maxOfKind})
  union all
  (select 'endpoint', w.id, ${endpointItem}, coalesce(w.failing_since, ${at('w.id')}), null, null, null,
          case when w.enabled then w.failures end, null, w.url, null
     from webhook_endpoints w
    where w.merchant_id = $1 and w.mode = $2 and w.deleted_at is null and ${isUnresolved(endpointItem)}
      and case when w.enabled then w.failing_since < now() - interval '${failingMinutes} minutes'
               else w.disabled_reason is not null end
    limit ${maxOfKind})
  union all
  (select 'refund', r.id, ${refundItem}, r.created_at, n.chain_id, n.token, r.amount_units, null, null, null, r.payment_intent
     from refunds r join ${networkChains} on n.id = r.network
    where r.merchant_id = $1 and r.mode = $2 and r.status = 'requires_transfer' and ${isUnresolved(refundItem)}
    order by r.id desc limit ${maxOfKind})
  union all
  (select 'unexpected', r.id, ${unexpectedItem}, coalesce(r.succeeded_at, r.canceled_at, r.expired_at, r.created_at),
          n.chain_id, n.token, r.amount_units, null, r.labels, null, r.payment_intent
     from refunds r join ${networkChains} on n.id = r.network
    cross join lateral (
      select coalesce(sum(s.units), 0) as units from ${sumsOf('r.id', 'refund')} s where s.state <> 'reorged'
    ) m
    where r.merchant_id = $1 and r.mode = $2 and r.labels is not null and ${isUnresolved(unexpectedItem)}
    order by r.id desc limit ${maxOfKind})
  ) o left join lateral (
    select metadata from payment_intents i
     where i.id = case o.kind when 'payment' then o.subject else o.payment_intent end limit 1) i on true
   order by o.at desc`,
);
const isResolved = preparedStatement(
  'is_attention_resolved',
  'select from resolved_attention where merchant_id = $1 and mode = $2 and item = $3',
);
const resolveItem = preparedStatement(
  'resolve_attention',
  `insert into resolved_attention (merchant_id, mode, item, note, resolved_at) values ($1, $2, $3, $4, now())
   on conflict (merchant_id, mode, item) do update set note = excluded.note, resolved_at = excluded.resolved_at`,
);
