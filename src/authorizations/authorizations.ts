// The signed authorizations of intents. One is stored before anybody else is given it, and from then on only the chain
// releases it (`settlement/ledger/authorizations.ts`): a facilitator may say anything.

import type { EntityManager } from '@mikro-orm/postgresql';
import { checksum } from 'ox/Address';
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

/** What has become of a payment that was to be stored. */
export type Stored =
  | { kind: 'new'; row: AuthorizationRow }
  | { kind: 'refused'; refusal: PaymentRefusal }
  /** Something has changed since the intent was read: look again. */
  | { kind: 'changed' };

export interface Authorizations {
  /** The one that can still be used, or else the newest. */
  currentOf(
    intent: Pick<PaymentIntentRow, 'id' | 'authorizationsCount'>,
  ): Promise<AuthorizationRow | undefined>;
  /** The one with this nonce that the merchant was shown, for whichever intent. */
  known(intent: PaymentIntentRow, payment: SignedPayment): Promise<AuthorizationRow | undefined>;
  /** Stores a payment that was checked, under the intent's lock. */
  store(intent: PaymentIntentRow, payment: SignedPayment): Promise<Stored>;
  /** Notes what the facilitator says it has sent. */
  noteClaim(id: string, transaction: string): Promise<void>;
  /** Notes that nobody was given it. */
  noteFailed(id: string): Promise<void>;
}

export function createAuthorizations(em: EntityManager): Authorizations {
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
  const known = async (
    using: RunPrepared,
    { merchantId, mode }: PaymentIntentRow,
    { from, nonce }: SignedPayment,
  ) => {
    const [row] = (await using(findByNonce, [byteaOf(from), byteaOf(nonce), merchantId, mode])).rows;
    return row && columns.read(row);
  };

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
    if (!isSame) return { kind: 'changed' };
    const named = uuidInNonce(payment.nonce);
    const [about] = (await inside(findObstacles, [intent.id, named ?? null])).rows;
    if (about?.is_occupied) return { kind: 'changed' };
    if (about?.is_named && named !== intent.id) return { kind: 'refused', refusal: foreignNonce };
    if ((intent.authorizationsCount ?? 0) >= maxAuthorizations) {
      return {
        kind: 'refused',
        refusal: refused(
          'too_many_authorizations',
          `The intent has had ${maxAuthorizations}. Pay in another way.`,
        ),
      };
    }
    const row = rowOf(intent, payment);
    const { rowCount } = await inside(insertAuthorization, valuesOf(row));
    // Another intent was shown it meanwhile.
    if (rowCount !== 1) return { kind: 'refused', refusal: foreignNonce };
    return { kind: 'new', row };
  };

  return {
    async currentOf({ id, authorizationsCount }) {
      const [row] = authorizationsCount == null ? [] : (await run(findCurrent, [id])).rows;
      return row && columns.read(row);
    },
    known: (intent, payment) => known(run, intent, payment),
    store: (intent, payment) => transaction((inside) => store(inside, intent, payment)),
    noteClaim: async (id, hash) => void (await run(noteClaim, [id, byteaOf(hash)])),
    noteFailed: async (id) => void (await run(noteFailed, [id])),
  };
}

/** Refusal of a nonce that belongs to another intent. */
export const foreignNonce = refused(
  'invalid_exact_evm_nonce_already_used',
  'The nonce belongs to another payment intent. Sign a new one.',
);

function rowOf(
  intent: PaymentIntentRow,
  { from, nonce, value, validBefore }: SignedPayment,
): AuthorizationRow {
  const createdAt = new Date();
  return {
    id: newUuid(createdAt.getTime()),
    merchantId: intent.merchantId,
    mode: intent.mode,
    paymentIntent: intent.id,
    network: intent.network,
    fromAddress: checksum(from),
    nonce: nonce.slice(2),
    wallet: intent.expectedWallet,
    amountUnits: value,
    validBefore: new Date(Number(validBefore) * 1_000),
    status: 'submitted',
    claimedHash: null,
    createdAt,
  };
}

function valuesOf(row: AuthorizationRow): unknown[] {
  return [
    row.id,
    row.merchantId,
    row.mode,
    row.paymentIntent,
    row.network,
    byteaOf(row.fromAddress),
    `\\x${row.nonce}`,
    byteaOf(row.wallet),
    String(row.amountUnits),
    row.validBefore.toISOString(),
    row.createdAt.toISOString(),
  ];
}

const findObstacles = preparedStatement(
  'find_obstacles_to_authorization',
  `select exists (select from authorizations where payment_intent = $1 and status = 'submitted') as is_occupied,
          exists (select from payment_intents where id = $2) as is_named`,
);

/** The intent's row changes too, so that who has read it before notices. */
const insertAuthorization = preparedStatement(
  'insert_authorization',
  `with stored as (
     insert into authorizations (id, merchant_id, mode, payment_intent, network, from_address, nonce, wallet, amount_units,
                                 valid_before, status, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'submitted', $11)
     on conflict do nothing returning payment_intent
   )
   update payment_intents i set authorizations_count = coalesce(i.authorizations_count, 0) + 1
     from stored where i.id = stored.payment_intent`,
);
const noteClaim = preparedStatement(
  'note_claim_of_authorization',
  'update authorizations set claimed_hash = $2 where id = $1',
);
const noteFailed = preparedStatement(
  'fail_authorization',
  `update authorizations set status = 'failed' where id = $1 and status = 'submitted'`,
);
