import type { EntityManager } from '@mikro-orm/postgresql';
import { networks } from '../contract/chains.ts';
import { maxExpiryMinutes, minExpiryMinutes } from '../database/entities/payment-intent.ts';
import { formatIdentifier } from '../database/identifiers.ts';

/**
 * Rules for every intent that PostgreSQL does not check at insert, because a check costs throughput. The code
 * that creates intents is tested for them. The condition is true for a row that breaks the rule.
 */
const rules: readonly { rule: string; isBroken: string }[] = [
  { rule: 'its merchant is there', isBroken: 'm.id is null' },
  {
    rule: 'its network is one of its mode',
    isBroken: `(i.network, i.mode::text) not in (${networks.map(({ id, mode }) => `(${id}, '${mode}')`).join(', ')})`,
  },
  {
    rule: `it expires ${minExpiryMinutes} to ${maxExpiryMinutes} whole minutes after its creation`,
    isBroken: `i.expires_at - i.created_at not between interval '${minExpiryMinutes} minutes' and interval '${maxExpiryMinutes} minutes'
               or extract(epoch from i.expires_at - i.created_at)::numeric % 60 <> 0`,
  },
  { rule: 'its wallet has 20 bytes', isBroken: 'octet_length(i.expected_wallet) <> 20' },
  { rule: 'its metadata is an object', isBroken: `json_typeof(i.metadata) <> 'object'` },
  {
    rule: 'its idempotency key has 1 to 255 characters',
    isBroken: 'char_length(i.idempotency_key) not between 1 and 255',
  },
  {
    rule: 'it has a request fingerprint of 32 bytes if it has an idempotency key',
    isBroken:
      '(i.idempotency_key is null) <> (i.request_fingerprint is null) or octet_length(i.request_fingerprint) <> 32',
  },
  { rule: 'its client secret is of a key version', isBroken: 'i.client_secret_version < 1' },
  {
    rule: 'what was returned of it is the sum of the confirmed transfers of its refunds',
    isBroken: `coalesce(i.amount_refunded_units, 0) <>
               (select coalesce(sum(t.amount_units), 0) from refunds r join transfers t on t.refund = r.id
                 where r.payment_intent = i.id and t.state = 'confirmed')`,
  },
];

/** Reads the newest intents, or all. Returns the broken rules, how many break each, and one (`pi_…`). */
export async function findBrokenRules(em: EntityManager, newest: number | 'all') {
  const limit = newest === 'all' ? '' : `order by id desc limit ${newest}`;
  const [row] = await em.fork().execute<Record<string, string | null>[]>(
    `select count(*) as read,
            ${rules.map(({ isBroken }, i) => `count(*) filter (where ${isBroken}) as count_${i}, min(i.id::text) filter (where ${isBroken}) as example_${i}`).join(', ')}
       from (select * from payment_intents ${limit}) i left join merchants m on m.id = i.merchant_id`,
  );
  const broken = rules.flatMap(({ rule }, i) => {
    const example = row?.[`example_${i}`];
    return example == null
      ? []
      : [{ rule, count: Number(row?.[`count_${i}`]), example: formatIdentifier('pi', example) }];
  });
  return { read: Number(row?.read), broken };
}
