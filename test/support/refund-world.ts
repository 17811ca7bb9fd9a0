// The service's refunds: makes them as the merchant, and reads them from the database.

import type { Address, Hex } from 'viem';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import type { TestService } from './service.ts';

/** Wallets of payers. The first one may also be the wallet of an intent. */
export const destinations: readonly Address[] = [
  '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
  '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359',
  '0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB',
];

export interface WorldRefund {
  id: string;
  amountUnits: number;
  destination: Address;
  /** In whole seconds. */
  expiresAt: number;
}

/** A refund in the database. Labels are in alphabetical order, types of events without `refund.`. */
export interface StoredRefund {
  status: string;
  labels: string[];
  events: string[];
  /** In the order of their hashes, including reorged ones. */
  transfers: { hash: Hex; units: number; state: string; counts: boolean; labels: string[] }[];
}

/** A refund in the API and in its events. */
export interface ReportedRefund {
  status: string;
  labels?: string[];
  transfers?: { transaction_hash: string; status: string }[];
}

export function createRefundWorld(service: TestService) {
  const isOk = ({ code }: { code: string }) => code === 'ok';
  return {
    /** Returns undefined if it is refused. */
    async create(
      payment_intent: string,
      destination: Address,
      amount_units?: number,
    ): Promise<WorldRefund | undefined> {
      const fields = { payment_intent, destination, ...(amount_units && { amount_units }) };
      const { code, json } = await service.call('createRefund', fields);
      if (code !== 'ok') return undefined;
      const [row] = await service.query<{ expires_at: Date }>(
        `update refunds set expires_at = date_trunc('second', expires_at) where id = $1 returning expires_at`,
        [parseIdentifier('rf', json.id)],
      );
      const expiresAt = Number(row?.expires_at) / 1000;
      return { id: json.id, amountUnits: json.amount_units, destination, expiresAt };
    },
    cancel: async ({ id }: WorldRefund) => isOk(await service.call('cancelRefund', { id })),
    confirm: async ({ id }: WorldRefund, transaction_hash: Hex) =>
      isOk(await service.call('confirmRefund', { id, transaction_hash })),
    async get({ id }: WorldRefund): Promise<ReportedRefund> {
      return (await service.call('getRefund', { id })).json;
    },
    /** Returns the refund in its last event. */
    async lastEvent({ id }: WorldRefund): Promise<ReportedRefund | undefined> {
      const [row] = await service.query<{ data: string }>(
        'select data from events where refund = $1 order by sequence desc limit 1',
        [parseIdentifier('rf', id)],
      );
      return row && JSON.parse(row.data).refund;
    },

    /** Returns what can still be returned of an intent. */
    async refundableUnits(intent: string): Promise<number> {
      const [row] = await service.query<{ rest: number }>(
        `${money} select greatest(0, received - returned - held)::int as rest from money where id = $1`,
        [parseIdentifier('pi', intent)],
      );
      return row?.rest ?? 0;
    },
    /** Returns the stored refunds in this order. */
    async stored(refunds: readonly WorldRefund[]): Promise<(StoredRefund | undefined)[]> {
      const rows = await service.query(storedRefunds);
      const byId = new Map(rows.map(({ id, ...row }) => [id, row as StoredRefund]));
      return refunds.map(({ id }) => byId.get(parseIdentifier('rf', id)));
    },
    /** Returns broken invariants. */
    async broken(): Promise<string[]> {
      const rows = await service.query<{ what: string }>(brokenRules);
      return rows.map(({ what }) => what);
    },
  };
}

/** USDC of each intent: received and refunded with all confirmations, on its way, held by open refunds. */
const money = `
  with returns as (
    select t.*, r.payment_intent as of_intent from transfers t join refunds r on r.id = t.refund
     where t.state <> 'reorged'
  ), money as (
    select i.id, i.amount_refunded_units,
           (select coalesce(sum(t.amount_units), 0) from transfers t
             where t.payment_intent = i.id and t.state = 'confirmed' and not 'wrong_token' = any (coalesce(t.labels, '{}')))
             as received,
           (select coalesce(sum(t.amount_units), 0) from returns t where t.of_intent = i.id) as returned,
           (select coalesce(sum(t.amount_units), 0) from returns t where t.of_intent = i.id and t.state = 'confirmed')
             as refunded,
           (select coalesce(sum(r.amount_units), 0) from refunds r
             where r.payment_intent = i.id and r.status = 'requires_transfer') as held,
           exists (select from refunds r join events e on e.refund = r.id and e.type = 'refund.unexpected'
                    where r.payment_intent = i.id and cardinality(r.labels) > 0) as is_told
      from payment_intents i
  )`;

const brokenRules = `${money}
  select 'the refunded amount is not that of the confirmed transfers' as what from money
   where coalesce(amount_refunded_units, 0) <> refunded
  union all
  select 'more was returned than received, and no event says so' from money where returned > received and not is_told
  union all
  select 'the sequence of events has a gap' from refunds r
   where array(select e.sequence from events e where e.refund = r.id order by 1)
         <> array(select generate_series(1, r.event_count))
  union all
  select 'a transfer of a refund is a payment' from transfers
   where payment_intent is not null and (is_refund or refund is not null)
  union all
  select 'a transfer is of two refunds, or of a refund and an intent' from transfers where state <> 'reorged'
   group by merchant_id, chain_id, transaction_hash, log_index
  having count(distinct refund) > 1 or (count(refund) > 0 and count(payment_intent) > 0)`;

const storedRefunds = `
  select r.id, r.status, array(select unnest(r.labels) order by 1) as labels,
         array(select replace(type, 'refund.', '') from events e where e.refund = r.id order by e.sequence) as events,
         (select coalesce(json_agg(json_build_object('hash', '0x' || encode(t.transaction_hash, 'hex'),
                                                     'units', t.amount_units, 'state', t.state, 'counts', t.counts,
                                                     'labels', array(select unnest(t.labels) order by 1))
                                   order by t.transaction_hash), '[]')
            from transfers t where t.refund = r.id) as transfers
    from refunds r`;
