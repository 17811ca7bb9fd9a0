import type { EntityManager } from '@mikro-orm/postgresql';
import { networkOf } from '../contract/chains.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import type { Transfer } from '../contract/gen/payments/v1/transfer_pb.ts';
import type { AttributeTransferRequest } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { changeOf, storeChanges } from '../payment-intents/change-payment-intents.ts';
import { createPaymentsReader } from '../payment-intents/payments.ts';
import { invalidBody, plainRefusal, refuseInvalid, ServiceError } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import type { Method } from '../requests/method.ts';
import { type Identity, identityOf, requestContextOf } from '../requests/request-context.ts';
import { traceparentOf } from '../requests/trace.ts';
import { confirmedUnits } from './confirmed-units.ts';
import { arrive, confirm, judge } from './judgement.ts';
import { toTransfer } from './transfer.ts';
import { isRightToken } from './watched-chain.ts';

/**
 * `AttributeTransfer`: makes an unattributed transfer the payment of an intent, with all that follows for the intent.
 * Calls `onEvent` when the change is durable.
 */
export function attributeTransfer(
  em: EntityManager,
  onEvent: () => void,
): Method<AttributeTransferRequest, Transfer> {
  const { transaction } = createPreparedStatements(em);
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  const intents = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createPaymentsReader(em);
  const ofMerchant = `from transfers t left join watched_chains c on c.chain_id = t.chain_id
                     where t.id = $1 and t.merchant_id = $2 and t.mode = $3`;
  const selected = `select ${transfers.of('t')}, coalesce(c.cursor_number, t.block_number) as head`;
  const findTransfer = preparedStatement('find_transfer', `${selected} ${ofMerchant}`);
  const lockTransfer = preparedStatement('lock_transfer', `${selected} ${ofMerchant} for update of t`);
  const lockIntent = preparedStatement(
    'lock_payment_intent',
    `select ${intents.of('i')} from payment_intents i
      where i.id = $1 and i.merchant_id = $2 and i.mode = $3 for update`,
  );

  interface Found {
    row: TransferRow;
    /** The newest block that was read. */
    head: number;
  }

  const find = async (
    inside: RunPrepared,
    statement: typeof findTransfer,
    id: string | undefined,
    { merchantId, mode }: Identity,
  ): Promise<Found> => {
    const { rows } = id === undefined ? { rows: [] } : await inside(statement, [id, merchantId, mode]);
    const [row] = rows;
    if (row === undefined) throw plainRefusal('resource_missing');
    return { row: transfers.read(row), head: Number(row.head) };
  };

  const attribute = (
    { id, paymentIntent }: AttributeTransferRequest,
    identity: Identity,
    traceparent: string | null,
  ): Promise<{ found: Found; isNew: boolean }> =>
    transaction(async (inside) => {
      const transferId = parseIdentifier('tr', id);
      // In the order in which everybody locks: what holds the chain still, the intent, the transfer.
      const first = await find(inside, findTransfer, transferId, identity);
      await inside(holdChain, [first.row.chainId]);
      const intentId = parseIdentifier('pi', paymentIntent);
      const { rows } =
        intentId === undefined
          ? { rows: [] }
          : await inside(lockIntent, [intentId, identity.merchantId, identity.mode]);
      const intent = rows[0] && intents.read(rows[0]);
      const found = await find(inside, lockTransfer, transferId, identity);
      const { row } = found;
      if (row.paymentIntent != null && row.paymentIntent === intentId) return { found, isNew: false };
      if (row.paymentIntent != null) throw attributedElsewhere(row.paymentIntent);
      const problem = problemOf(row, intent);
      if (intent === undefined || problem !== undefined) {
        throw invalidBody([{ field: 'payment_intent', message: problem ?? 'is not an intent of yours' }]);
      }
      if (row.state === 'reorged') throw noLongerThere();

      const at = new Date();
      const network = networkOf(intent.network);
      const arrival = {
        amountUnits: BigInt(row.amountUnits),
        blockTime: row.blockTime,
        isRightToken: network !== undefined && isRightToken(network, row.tokenAddress),
        isReturned: false,
      };
      const judged = judge(intent, arrival);
      await inside(setIntent, [row.id, intent.id, judged.counts, judged.labels.join(' ') || null]);
      const steps = arrive(intent, [{ ...arrival, judged }]);
      const arrived = { ...intent, ...steps.at(-1)?.fields };
      const sums = await confirmedUnits(inside, [intent.id]);
      const succeeds = confirm(arrived, sums.get(intent.id) ?? 0n, at);
      if (succeeds !== undefined) steps.push(succeeds);
      const payments = await readPayments(inside, [arrived]);
      const change = changeOf(intent, steps, payments.get(intent.id) ?? [], at, traceparent);
      const stored = await storeChanges(inside, [change]);
      if (stored.size !== 1) throw new Error('an intent was changed while it was locked');
      const labels = judged.labels.length > 0 ? judged.labels : null;
      return { found: { ...found, row: { ...row, paymentIntent: intent.id, labels } }, isNew: true };
    });

  return {
    ratePolicy: 'changes',
    violations,
    async run(request, { values }) {
      refuseInvalid(violations(request));
      const traceparent = traceparentOf(requestContextOf(values).trace);
      const { found, isNew } = await orUnavailable(() => attribute(request, identityOf(values), traceparent));
      if (isNew) onEvent();
      return toTransfer(found.row, found.head);
    },
  };
}

function violations(request: AttributeTransferRequest): FieldViolation[] {
  const isMissing = request.paymentIntent === '';
  return [
    ...unknownFieldViolations(request),
    ...(isMissing ? [{ field: 'payment_intent', message: 'must be the id of an intent' }] : []),
  ];
}

/** Why the transfer cannot be a payment of the intent, as the end of a sentence. */
function problemOf(transfer: TransferRow, intent: PaymentIntentRow | undefined): string | undefined {
  if (intent === undefined) return 'is not an intent of yours in the mode of this API key';
  if (networkOf(intent.network)?.chainId !== transfer.chainId) return 'is an intent of another chain';
  if (intent.expectedWallet !== transfer.toAddress) return 'expects another wallet than the transfer went to';
  return undefined;
}

function attributedElsewhere(intentId: string): ServiceError {
  return new ServiceError('invalid_state', {
    message: `The transfer is attributed to ${formatIdentifier('pi', intentId)} already.`,
  });
}

function noLongerThere(): ServiceError {
  return new ServiceError('invalid_state', {
    message:
      'The transfer is no longer on the chain, which has reorganised. It is in the list again if it returns.',
  });
}

/** Its watcher neither takes the transfer back nor confirms it meanwhile. */
const holdChain = preparedStatement('hold_chain', 'select from watched_chains where chain_id = $1 for share');
const setIntent = preparedStatement(
  'attribute_transfer',
  `update transfers set payment_intent = $2, counts = $3, labels = string_to_array($4, ' '), attributed_by_hand = true
    where id = $1`,
);
