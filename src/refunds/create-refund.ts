import { hash } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { checksum } from 'ox/Address';
import { canonicalize } from 'ox/Json';
import { chainNamed, networkOf } from '../contract/chains.ts';
import type { Refund } from '../contract/gen/payments/v1/refund_pb.ts';
import type { CreateRefundRequest } from '../contract/gen/payments/v1/refund_service_pb.ts';
import { parseWalletAddress } from '../contract/wallet-address.ts';
import { type ChainName, throwNewer } from '../contract/words.ts';
import { maxAmountUnits, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createIntentLock } from '../payment-intents/change-payment-intents.ts';
import {
  findMetadataProblem,
  findStringProblem,
  withoutNegativeZero,
} from '../payment-intents/create-payment-intent-request.ts';
import type { WatchedChains } from '../payment-intents/watched-chains.ts';
import { invalidField, invalidState, ServiceError, violationsIn } from '../requests/errors.ts';
import { byteaOf } from '../requests/filters.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { Method } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { mayHaveRun } from '../requests/unavailable.ts';
import { toRefund } from './refund.ts';
import { asPrepared } from './refunding.ts';
import { readReturnedMoney } from './returned-money.ts';

const maxReasonLength = 500;
/** Of one intent, whatever their status. */
const maxRefunds = 100;
const expiresInMs = 30 * 86_400_000;

/** `CreateRefund`: stores a refund of at most what can be returned, or replays its idempotency key. */
export function createRefund(
  em: EntityManager,
  watchedChains: WatchedChains,
): Method<CreateRefundRequest, Refund> {
  const { change } = createPreparedStatements(em);
  const columns = entityColumns<RefundRow>(em, RefundEntity);
  const lockIntent = createIntentLock(em);
  const findByKey = preparedStatement(
    'find_refund_by_key',
    `select ${columns.of('r')} from refunds r where r.merchant_id = $1 and r.mode = $2 and r.idempotency_key = $3`,
  );
  const insert = preparedStatement('insert_refund', `${columns.insert} on conflict do nothing`);

  return {
    ratePolicy: 'creates',
    violations,
    async run(request, identity, { context, header }) {
      const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
      const { merchantId, mode } = identity;
      const { row, isReplayed } = await change(merchantId, async (inside) => {
        const intent = await lockIntent(inside, parseIdentifier('pi', request.paymentIntent), identity);
        if (idempotencyKey !== undefined) {
          const [first] = (await inside(findByKey, [merchantId, mode, idempotencyKey])).rows;
          if (first !== undefined) return { row: replay(columns.read(first), request), isReplayed: true };
        }
        if (intent === undefined) throw notYours();
        const row = await build(inside, watchedChains, request, intent, identity, idempotencyKey ?? null);
        const { rowCount } = await inside(insert, [columns.json([row])]);
        // A refund of another intent has taken the key meanwhile.
        if (rowCount !== 1) throw new ServiceError('idempotency_key_reused');
        return { row, isReplayed: false };
      }).catch((reason) => {
        if (idempotencyKey !== undefined || !mayHaveRun(reason)) throw reason;
        throw new ServiceError('unavailable', { message: mayBeCreated, cause: reason });
      });
      context.paymentIntent = formatIdentifier('pi', row.paymentIntent);
      if (isReplayed) context.replayed = true;
      return toRefund(row, []);
    },
  };
}

const mayBeCreated =
  'The service cannot answer right now. The refund may have been created: list the refunds of the payment intent before you create it again.';

function violations(request: CreateRefundRequest) {
  const { paymentIntent, amountUnits = 1n, destination, reason, metadata = {} } = request;
  const parsed = parseWalletAddress(destination);
  const isAmount = amountUnits >= 1n && amountUnits <= maxAmountUnits;
  const wanted = `must be an integer from 1 to ${maxAmountUnits}, in the token's smallest unit`;
  const isLong = reason.length > maxReasonLength && [...reason].length > maxReasonLength;
  return violationsIn(
    ['payment_intent', paymentIntent === '' && 'must be the id of an intent'],
    ['amount_units', !isAmount && wanted],
    ['destination', 'problem' in parsed && parsed.problem],
    ['reason', isLong ? `must have at most ${maxReasonLength} characters` : findStringProblem(reason)],
    ['metadata', findMetadataProblem(metadata)],
  );
}

/** Builds the row of a refund of a locked intent. Throws ServiceError if it cannot be made. */
async function build(
  inside: RunPrepared,
  watchedChains: WatchedChains,
  request: CreateRefundRequest,
  intent: PaymentIntentRow,
  identity: Identity,
  idempotencyKey: string | null,
): Promise<RefundRow> {
  const network = networkOf(intent.network) ?? throwNewer(`network ${intent.network}`);
  if (!watchedChains.allows(identity.mode, network.chain)) throw unwatched(network.chain);
  const destination = checksum(request.destination);
  const { networkIds } = chainNamed(network.mode, network.chain);
  const { rows } = await inside(findOwnWallet, [
    byteaOf(destination),
    identity.merchantId,
    networkIds,
    destination,
    identity.mode,
    network.chain,
  ]);
  if (rows.length > 0) {
    throw invalidField('destination', 'must be a wallet of the payer: this is one of your own');
  }
  const [made] = (await inside(countRefunds, [intent.id])).rows;
  if (made?.count >= maxRefunds) {
    throw invalidState(`The payment intent has ${maxRefunds} refunds, and can have no more.`);
  }
  const money = (await readReturnedMoney(inside, [intent.id])).get(intent.id);
  const rest = money?.refundableUnits ?? 0n;
  const amountUnits = request.amountUnits ?? rest;
  if (rest <= 0n || amountUnits > rest) throw tooMuch(rest);
  const createdAtMs = Date.now();
  return {
    ...asPrepared,
    id: newUuid(createdAtMs),
    merchantId: identity.merchantId,
    mode: identity.mode,
    paymentIntent: intent.id,
    network: intent.network,
    amountUnits,
    destination,
    wallet: intent.expectedWallet,
    reason: request.reason === '' ? null : request.reason,
    metadata: withoutNegativeZero(request.metadata ?? {}),
    createdAt: new Date(createdAtMs),
    expiresAt: new Date(createdAtMs + expiresInMs),
    idempotencyKey,
    requestFingerprint: idempotencyKey === null ? null : fingerprintOf(request),
  };
}

/** Returns the first refund as it was created. Throws if its request was different. */
function replay(first: RefundRow, request: CreateRefundRequest): RefundRow {
  if (first.requestFingerprint !== fingerprintOf(request)) throw new ServiceError('idempotency_key_reused');
  return { ...first, ...asPrepared };
}

/** SHA-256, in hexadecimal, of the request. Equivalent requests have the same fingerprint. */
function fingerprintOf(request: CreateRefundRequest): string {
  const canonical = canonicalize([
    'CreateRefund/1',
    request.paymentIntent,
    request.amountUnits === undefined ? null : String(request.amountUnits),
    checksum(request.destination),
    request.reason,
    withoutNegativeZero(request.metadata ?? {}),
  ]);
  return hash('sha256', canonical, 'hex');
}

function notYours(): ServiceError {
  return invalidField('payment_intent', 'is not an intent of yours in the mode of this API key');
}

/** The money would be sent, but the refund would wait until somebody sends it again. */
function unwatched(chain: ChainName): ServiceError {
  return invalidState(
    `The service is not watching ${chain} at the moment and would not see the refund's transfer. Try again later, or send us the request id.`,
  );
}

function tooMuch(rest: bigint): ServiceError {
  return invalidState(
    rest <= 0n
      ? 'Nothing can be refunded: this payment intent has no confirmed payment, or its refunds already cover all of it. List its refunds; open ones count too.'
      : `At most ${rest} units of this payment intent can be returned now.`,
  );
}

const countRefunds = preparedStatement(
  'count_refunds',
  'select count(*)::int as count from refunds where payment_intent = $1',
);

/** A wallet that the merchant is or was paid at, or has named for an intent. */
const findOwnWallet = preparedStatement(
  'find_own_wallet',
  `select 1 where exists (
     select from payment_intents i
      where i.expected_wallet = $1 and i.merchant_id = $2 and i.network = any ($3::smallint[]))
   union all
   select 1 where exists (
     select from payout_wallets p
      where p.merchant_id = $2 and p.mode = $5 and p.chain = $6 and $4 = any (p.address || p.former_addresses))`,
);
