// The signed authorizations of intents. One is stored before anybody else is given it, and from then on only the chain
// releases it (`settlement/release-authorizations.ts`): a facilitator may say anything.

import type { EntityManager } from '@mikro-orm/postgresql';
import { uuidInNonce } from '../contract/eip-3009.ts';
import type { SignedPayment } from '../contract/x402.ts';
import { AuthorizationEntity, type AuthorizationRow } from '../database/entities/authorization.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { newUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createIntentLock } from '../payment-intents/apply-steps.ts';
import { byteaOf } from '../requests/filters.ts';
import { missingUnits, type PaymentRefusal, refused } from './offer.ts';

/** Of one intent, whatever has become of them. */
const maxAuthorizations = 20;

/** What has become of a payment that was to be stored; `undefined` if the intent has changed since it was read. */
export type Stored = { row: AuthorizationRow } | { refusal: PaymentRefusal } | undefined;

export interface AuthorizationStore {
  /** The one that can still be used, or else the newest. */
  currentOf(
    intent: Pick<PaymentIntentRow, 'id' | 'authorizationsCount'>,
  ): Promise<AuthorizationRow | undefined>;
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
  const { run, transaction } = createPreparedStatements(em);
  const columns = entityColumns<AuthorizationRow>(em, AuthorizationEntity);
  const lock = createIntentLock(em);
  const findCurrent = preparedStatement(
    'find_current_authorization',
    `select ${columns.of('a')} from authorizations a
      where a.payment_intent = $1 order by a.status = 'submitted' desc, a.id desc limit 1`,
  );
  const findByNonce = preparedStatement(
    'find_authorization',
    `select ${columns.of('a')} from authorizations a
      where a.from_address = $1 and a.nonce = $2 and a.merchant_id = $3 and a.mode = $4`,
  );
  // The intent's row changes too, so that who has read it before notices.
  const insert = preparedStatement(
    'insert_authorization',
    `with stored as (
       insert into authorizations (id, merchant_id, mode, payment_intent, network, from_address, nonce, wallet,
                                   amount_units, valid_before, status, created_at)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'submitted', $11)
       on conflict do nothing returning *
     )
     update payment_intents i set authorizations_count = coalesce(i.authorizations_count, 0) + 1
       from stored a where i.id = a.payment_intent returning ${columns.of('a')}`,
  );

  const store = async (
    inside: RunPrepared,
    seen: PaymentIntentRow,
    payment: SignedPayment,
  ): Promise<Stored> => {
    const intent = await lock(inside, seen.id, seen);
    // Whoever stores one counts it, and whoever pays in between changes the sum.
    const isSame =
      intent?.status === 'requires_payment' &&
      missingUnits(intent) === missingUnits(seen) &&
      intent.authorizationsCount === seen.authorizationsCount;
    if (!isSame) return undefined;
    const named = uuidInNonce(payment.nonce);
    const [about] = (await inside(findObstacles, [intent.id, named ?? null])).rows;
    if (about?.is_occupied) return undefined;
    if (about?.is_named && named !== intent.id) return { refusal: foreignNonce };
    if ((intent.authorizationsCount ?? 0) >= maxAuthorizations) return { refusal: tooMany };
    const [row] = (await inside(insert, valuesOf(intent, payment, new Date()))).rows;
    // Without one, another intent was shown it meanwhile.
    return row === undefined ? { refusal: foreignNonce } : { row: columns.read(row) };
  };

  return {
    async currentOf({ id, authorizationsCount }) {
      const [row] = authorizationsCount == null ? [] : (await run(findCurrent, [id])).rows;
      return row && columns.read(row);
    },
    async known({ merchantId, mode }, { from, nonce }) {
      const [row] = (await run(findByNonce, [byteaOf(from), byteaOf(nonce), merchantId, mode])).rows;
      return row && columns.read(row);
    },
    store: (intent, payment) => transaction((inside) => store(inside, intent, payment)),
    noteReported: async (id, hash) => void (await run(noteReported, [id, byteaOf(hash)])),
    noteFailed: async (id) => void (await run(noteFailed, [id])),
  };
}

function valuesOf(
  { merchantId, mode, id, network, expectedWallet }: PaymentIntentRow,
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
  ];
}

const findObstacles = preparedStatement(
  'find_obstacles_to_authorization',
  `select exists (select from authorizations where payment_intent = $1 and status = 'submitted') as is_occupied,
          exists (select from payment_intents where id = $2) as is_named`,
);
const noteReported = preparedStatement(
  'note_reported_transaction',
  'update authorizations set reported_hash = $2 where id = $1',
);
const noteFailed = preparedStatement(
  'fail_authorization',
  `update authorizations set status = 'failed' where id = $1 and status = 'submitted'`,
);
