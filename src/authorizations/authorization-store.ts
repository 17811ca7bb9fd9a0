// The signed authorizations of intents. One is stored before anybody else is given it, and from then on only the chain
// releases it (`settlement/release-authorizations.ts`): a facilitator may say anything. Storing is one statement, because
// the round trips of a transaction take longer than its work.

import type { EntityManager } from '@mikro-orm/postgresql';
import { uuidInNonce } from '../contract/eip-3009.ts';
import type { SignedPayment } from '../contract/x402.ts';
import { AuthorizationEntity, type AuthorizationRow } from '../database/entities/authorization.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { newUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { byteaOf } from '../requests/filters.ts';
import { type PaymentRefusal, refused } from './offer.ts';

/** Of one intent, whatever has become of them. */
const maxAuthorizations = 20;

/** What has become of a payment that was to be stored; `undefined` if the intent has changed since it was read. */
export type Stored = { row: AuthorizationRow } | { refusal: PaymentRefusal } | undefined;

export interface AuthorizationStore {
  /** By the UUIDs of their intents, those that can still be used, or else the newest. */
  currentOf(
    intents: readonly Pick<PaymentIntentRow, 'id' | 'authorizationsCount'>[],
  ): Promise<ReadonlyMap<string, AuthorizationRow>>;
  /** The one with this nonce that the merchant was shown, for whichever intent. */
  known(intent: PaymentIntentRow, payment: SignedPayment): Promise<AuthorizationRow | undefined>;
  /** Stores a payment that was checked, under the intent's lock. */
  store(intent: PaymentIntentRow, payment: SignedPayment): Promise<Stored>;
  /** Notes what the facilitator says it has sent. */
  noteReported(id: string, transaction: string): Promise<void>;
  /** Notes that nobody was given it. */
  noteFailed(id: string): Promise<void>;
}

/** Refusal of a nonce that belongs to another intent. */
export const foreignNonce = refused(
  'invalid_exact_evm_nonce_already_used',
  'The nonce belongs to another payment intent. Sign a new one.',
);

const tooMany = refused(
  'too_many_authorizations',
  `The payment intent has had ${maxAuthorizations} signatures, which is the limit. Pay it by a transfer.`,
);

export function createAuthorizationStore(em: EntityManager): AuthorizationStore {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<AuthorizationRow>(em, AuthorizationEntity);
  const findCurrent = preparedStatement(
    'find_current_authorizations',
    `select ${columns.of('a')}
       from unnest($1::uuid[]) as wanted (id)
      cross join lateral
            (select * from authorizations a
              where a.payment_intent = wanted.id order by a.status = 'submitted' desc, a.id desc limit 1) a`,
  );
  const findByNonce = preparedStatement(
    'find_authorization',
    `select ${columns.of('a')} from authorizations a
      where a.from_address = $1 and a.nonce = $2 and a.merchant_id = $3 and a.mode = $4`,
  );
  // Locked, the intent has to be as it was read: whoever stores one counts it, and whoever pays in between changes the sum.
  const store = preparedStatement(
    'store_authorization',
    `with intent as (
       select i.id, coalesce(i.authorizations_count, 0) as count from payment_intents i
        where i.id = $4 and i.status = 'requires_payment' and i.amount_received_units = $12
          and i.authorizations_count is not distinct from $13::int
          for update
     ), about as (
       select i.id, i.count >= $14 as is_full,
              exists (select from authorizations a where a.payment_intent = i.id and a.status = 'submitted') as is_occupied,
              $15::uuid <> i.id and exists (select from payment_intents n where n.id = $15) as is_foreign
         from intent i
     ), a as (
       insert into authorizations (id, merchant_id, mode, payment_intent, network, from_address, nonce, wallet,
                                   amount_units, valid_before, status, created_at)
       select $1, $2, $3, about.id, $5, $6, $7, $8, $9, $10, 'submitted', $11 from about
        where not is_full and not is_occupied and is_foreign is not true
       on conflict do nothing returning *
     ), counted as (
       update payment_intents i set authorizations_count = coalesce(i.authorizations_count, 0) + 1
         from a where i.id = a.payment_intent
     )
     select about.is_full, about.is_occupied, ${columns.of('a')} from about left join a on true`,
  );

  return {
    async currentOf(intents) {
      const ids = intents
        .filter(({ authorizationsCount }) => authorizationsCount != null)
        .map(({ id }) => id);
      const { rows } = ids.length === 0 ? { rows: [] } : await run(findCurrent, [ids]);
      return new Map(rows.map(columns.read).map((row) => [row.paymentIntent, row]));
    },
    async known({ merchantId, mode }, { from, nonce }) {
      const [row] = (await run(findByNonce, [byteaOf(from), byteaOf(nonce), merchantId, mode])).rows;
      return row && columns.read(row);
    },
    async store(intent, payment) {
      const values = valuesOf(intent, payment, new Date());
      const [stored] = (await run(store, [...values, maxAuthorizations, uuidInNonce(payment.nonce)])).rows;
      if (stored === undefined || stored.is_occupied) return undefined;
      if (stored.id !== null) return { row: columns.read(stored) };
      // Else its nonce names another intent, or another was shown it meanwhile.
      return { refusal: stored.is_full ? tooMany : foreignNonce };
    },
    noteReported: async (id, hash) => void (await run(noteReported, [id, byteaOf(hash)])),
    noteFailed: async (id) => void (await run(noteFailed, [id])),
  };
}

function valuesOf(
  {
    merchantId,
    mode,
    id,
    network,
    expectedWallet,
    amountReceivedUnits,
    authorizationsCount,
  }: PaymentIntentRow,
  { from, nonce, value, validBefore }: SignedPayment,
  at: Date,
): unknown[] {
  return [
    newUuid(at.getTime()),
    ...[merchantId, mode, id, network],
    ...[byteaOf(from), byteaOf(nonce), byteaOf(expectedWallet)],
    String(value),
    new Date(Number(validBefore) * 1_000).toISOString(),
    at.toISOString(),
    String(amountReceivedUnits),
    authorizationsCount,
  ];
}

const noteReported = preparedStatement(
  'note_reported_transaction',
  'update authorizations set reported_hash = $2 where id = $1',
);
const noteFailed = preparedStatement(
  'fail_authorization',
  `update authorizations set status = 'failed' where id = $1 and status = 'submitted'`,
);
