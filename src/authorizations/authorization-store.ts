// The signed authorizations of intents, and the transfers that use them. An authorization is stored before
// anybody else gets it. From then on only the chain releases it (`settlement/release-authorizations.ts`),
// whatever a facilitator says. Storing is one statement, because the round trips of a transaction take longer
// than its work. Payments that arrive meanwhile share the next statement.

import { setTimeout as sleep } from 'node:timers/promises';
import type { EntityManager } from '@mikro-orm/postgresql';
import { uuidInNonce } from '../contract/eip-3009.ts';
import type { SignedPayment } from '../contract/x402.ts';
import { Batcher } from '../database/batcher.ts';
import { AuthorizationEntity, type AuthorizationRow } from '../database/entities/authorization.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { type EntityColumns, entityColumns } from '../database/entity-columns.ts';
import { newUuid } from '../database/identifiers.ts';
import type { RunPrepared } from '../database/prepared.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { byteaOf } from '../requests/filters.ts';
import { isServerGone, mayHaveRun } from '../requests/unavailable.ts';
import { hashOf, idsOf } from '../settlement/ledger/values.ts';
import { type PaymentRefusal, refused } from './offer.ts';

/** For each intent, counted in any status. */
const maxAuthorizations = 20;

const slots = 2;
const maxBatchSize = 64;

/** How long a payment is held while the database is away: a failover takes seconds. */
const maxHeldMs = 20_000;

/** How often a waiting request looks for its transfer. All that wait in this process share a statement. */
const lookEveryMs = 200;
const gatherMs = 100;
const maxWaitingTogether = 1_024;

/** The outcome of storing a payment; undefined if the intent or its authorizations have changed meanwhile. */
type Stored = { row: AuthorizationRow } | { refusal: PaymentRefusal } | undefined;

/** Refusal of a nonce that belongs to another intent. */
export const foreignNonce = refused(
  'invalid_exact_evm_nonce_already_used',
  'The nonce belongs to another payment intent. Sign a new one.',
);

const tooMany = refused(
  'too_many_authorizations',
  `The payment intent has had ${maxAuthorizations} signatures, which is the limit. Pay it by a transfer.`,
);

export function createAuthorizationStore(em: EntityManager) {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<AuthorizationRow>(em, AuthorizationEntity);
  const finding = createFinding(run, columns);
  const storing = createStoring(run, columns);
  const landings = createLandings(run);
  return {
    /** Returns why an intent takes no more authorizations, if so. */
    refusalOf: ({ authorizationsCount }: PaymentIntentRow): PaymentRefusal | undefined =>
      (authorizationsCount ?? 0) >= maxAuthorizations ? tooMany : undefined,
    /** The authorization with this payer and nonce that the merchant was shown, for any of its intents. */
    known: (intent: PaymentIntentRow, payment: SignedPayment) => finding.add({ intent, payment }),
    /** Stores a payment that was checked, under the intent's lock. */
    store: (intent: PaymentIntentRow, payment: SignedPayment) =>
      storing.add({ intent, payment, id: newUuid() }),
    /** Notes the transaction that the facilitator claims to have sent. */
    noteReported: (id: string, hash: string) => run(noteReported, [id, byteaOf(hash)]),
    /** Notes that nobody was given the authorization. */
    noteFailed: (id: string) => run(noteFailed, [id]),
    /** The hash of the transaction that has used the authorization, as recorded by the watcher. */
    landingOf: (id: string) => landings.add(id),
    /** Waits for that hash. Resolves with undefined once the signal aborts. */
    async waitForLanding(id: string, signal: AbortSignal): Promise<string | undefined> {
      const ignore = () => undefined;
      for (;;) {
        // Sleeps first: the transfer is not on the chain yet. An abort ends the wait at once.
        await sleep(lookEveryMs, undefined, { signal }).catch(ignore);
        if (signal.aborted) return undefined;
        // A failed look-up is repeated: the signal limits the wait.
        const hash = await landings.add(id, signal).catch(ignore);
        if (hash !== undefined) return hash;
      }
    },
  };
}

/** What is shown of an intent's authorization. */
export type CurrentAuthorization = Pick<AuthorizationRow, 'status' | 'validBefore' | 'reportedHash'>;

/**
 * Parts of a statement that reads intents `i`, each with its authorization that can still be used, or else the
 * newest. A second statement could find that it has landed, for an intent read as still unpaid: the payer would
 * be asked to pay again.
 */
export function currentAuthorization(em: EntityManager) {
  const shown = ['status', 'validBefore', 'reportedHash'] as const;
  const now = entityColumns<AuthorizationRow>(em, AuthorizationEntity, shown, 'signed');
  return {
    columns: `, ${now.of('a')}`,
    join: `left join lateral
            (select * from authorizations a where a.payment_intent = i.id and i.authorizations_count is not null
              order by a.status = 'submitted' desc, a.id desc limit 1) a on true`,
    read: (found: Readonly<Record<string, unknown>>): CurrentAuthorization | undefined =>
      found.signed_status == null ? undefined : now.read(found),
  };
}

type Columns = EntityColumns<AuthorizationRow>;

/** A payment of an intent as it was read. */
type Shown = { intent: PaymentIntentRow; payment: SignedPayment };

function createFinding(run: RunPrepared, columns: Columns): Batcher<Shown, AuthorizationRow | undefined> {
  const find = preparedStatement(
    'find_authorizations',
    `select wanted.place, ${columns.of('a')}
       from unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::payment_mode[])
              with ordinality as wanted (from_address, nonce, merchant_id, mode, place)
      cross join lateral
            (select * from authorizations a
              where a.from_address = wanted.from_address and a.nonce = wanted.nonce
                and a.merchant_id = wanted.merchant_id and a.mode = wanted.mode limit 1) a`,
  );
  return new Batcher({
    slots,
    maxBatchSize,
    async run(batch) {
      const { rows } = await run(find, [
        batch.map(({ payment }) => byteaOf(payment.from)),
        batch.map(({ payment }) => byteaOf(payment.nonce)),
        batch.map(({ intent }) => intent.merchantId),
        batch.map(({ intent }) => intent.mode),
      ]);
      const byPlace = new Map(rows.map((row) => [Number(row.place), columns.read(row)]));
      return batch.map((_, i) => byPlace.get(i + 1));
    },
  });
}

/** A payment that was checked, and the UUID to store it under. */
interface Checked extends Shown {
  id: string;
}

function createStoring(run: RunPrepared, columns: Columns): Batcher<Checked, Stored> {
  // A locked intent must be as it was read: another store changes its count, and a payment its sum. All are
  // locked, in id order, before the first row is inserted, and rows are inserted in the order of their
  // nonces, so that two batches never deadlock. Rows are found by their ids alone: with more conditions, or
  // with `exists`, the plan of a new database reads every open one.
  const store = preparedStatement(
    'store_authorizations',
    `with given as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::bytea[], $5::bigint[], $6::timestamptz[],
                            $7::bigint[], $8::int[], $9::uuid[])
                     as given (id, intent, from_address, nonce, amount_units, valid_before, received, count, named)
        order by intent
     ), locked as materialized (
       select given.*, i.merchant_id, i.mode, i.network, i.expected_wallet,
              coalesce(i.authorizations_count, 0) >= $10 as is_full
         from given
        cross join lateral (select * from payment_intents i where i.id = given.intent limit 1 for update) i
        where i.status = 'requires_payment' and i.amount_received_units = given.received
          and i.authorizations_count is not distinct from given.count
     ), about as materialized (
       select locked.*,
              (select bool_or(a.status = 'submitted') from authorizations a where a.payment_intent = intent) as is_occupied,
              (select n.id <> intent from payment_intents n where n.id = named limit 1) as is_foreign
         from locked
     ), a as (
       insert into authorizations (id, merchant_id, mode, payment_intent, network, from_address, nonce, wallet,
                                   amount_units, valid_before, status, created_at)
       select id, merchant_id, mode, intent, network, from_address, nonce, expected_wallet,
              amount_units, valid_before, 'submitted', $11 from about
        where not is_full and is_occupied is not true and is_foreign is not true
        order by from_address, nonce
       on conflict do nothing returning *
     ), counted as (
       update payment_intents i set authorizations_count = coalesce(i.authorizations_count, 0) + 1
         from a where i.id = a.payment_intent
     )
     select about.id as given_id, about.is_full, about.is_occupied, ${columns.of('a')}
       from about left join a on a.id = about.id`,
  );
  const findStored = preparedStatement(
    'find_stored_authorizations',
    `select ${columns.of('a')} from authorizations a where a.id = any ($1::uuid[])`,
  );
  return new Batcher({
    slots,
    maxBatchSize,
    maxWaitMs: maxHeldMs,
    // What is stored has to be sent, which only this process does.
    isHeldAfter: (reason) => isServerGone(reason) || mayHaveRun(reason),
    async run(batch, isRepeated) {
      // Of two payments of one intent only the first is stored: the second reads the intent again.
      const first = new Map(batch.toReversed().map((checked) => [checked.intent.id, checked]));
      const all = [...first.values()];
      const { rows } = await run(store, [
        idsOf(all),
        all.map(({ intent }) => intent.id),
        all.map(({ payment }) => byteaOf(payment.from)),
        all.map(({ payment }) => byteaOf(payment.nonce)),
        all.map(({ payment }) => String(payment.value)),
        all.map(({ payment }) => new Date(Number(payment.validBefore) * 1_000).toISOString()),
        all.map(({ intent }) => String(intent.amountReceivedUnits)),
        all.map(({ intent }) => intent.authorizationsCount),
        all.map(({ payment }) => uuidInNonce(payment.nonce)),
        maxAuthorizations,
        new Date().toISOString(),
      ]);
      const byId = new Map(rows.map((row) => [row.given_id, row]));
      // An earlier run may have stored them, even while this one waited for it.
      const others = isRepeated ? idsOf(batch).filter((id) => !byId.has(id)) : [];
      const known = others.length === 0 ? [] : (await run(findStored, [others])).rows.map(columns.read);
      const stored = new Map(known.map((row) => [row.id, row]));
      return batch.map(({ id }) => {
        const row = stored.get(id);
        return row === undefined ? storedOf(byId.get(id)) : { row };
      });
    },
  });

  function storedOf(row: Awaited<ReturnType<RunPrepared>>['rows'][number] | undefined): Stored {
    if (row === undefined || row.is_occupied) return undefined;
    if (row.id !== null) return { row: columns.read(row) };
    // Its nonce names another intent, or was shown to another one meanwhile.
    return { refusal: row.is_full ? tooMany : foreignNonce };
  }
}

function createLandings(run: RunPrepared): Batcher<string, string | undefined> {
  return new Batcher({
    slots: 1,
    maxBatchSize: maxWaitingTogether,
    gatherMs,
    async run(ids) {
      const { rows } = await run(findLandings, [ids]);
      const hashes = new Map(rows.map(({ id, transaction_hash: hash }) => [id as string, hashOf(hash)]));
      return ids.map((id) => hashes.get(id));
    },
  });
}

const findLandings = preparedStatement(
  'find_landings',
  `select a.id, t.transaction_hash
     from authorizations a
     join transfers t on t.authorized_by = a.id and t.state <> 'reorged' and t.amount_units = a.amount_units
    where a.id = any ($1::uuid[]) and a.status = 'landed'`,
);
const noteReported = preparedStatement(
  'note_reported_transaction',
  'update authorizations set reported_hash = $2 where id = $1',
);
const noteFailed = preparedStatement(
  'fail_authorization',
  `update authorizations set status = 'failed' where id = $1 and status = 'submitted'`,
);
