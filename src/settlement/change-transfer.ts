// `AttributeTransfer` makes an unattributed transfer a payment of an intent, and `DetachTransfer` undoes it.

import type { EntityManager } from '@mikro-orm/postgresql';
import { chains, isRightToken, networkOf } from '../contract/chains.ts';
import type { Transfer } from '../contract/gen/payments/v1/transfer_pb.ts';
import type {
  AttributeTransferRequest,
  DetachTransferRequest,
} from '../contract/gen/payments/v1/transfer_service_pb.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createApplySteps, createIntentLock, holdChain } from '../payment-intents/change-payment-intents.ts';
import { readPaymentSums } from '../payment-intents/payment-sums.ts';
import { readReturnedMoney } from '../refunds/returned-money.ts';
import { invalidField, invalidState, ServiceError } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { traceparentOf } from '../requests/trace.ts';
import { arrive, confirm, detach, isOpen, judge } from './judgement.ts';
import { toTransfer } from './transfer.ts';

/** Returns a finder of a merchant's transfers. `head`: the last block read. Throws `resource_missing`. */
export function createFindTransfer(em: EntityManager, lock = '') {
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  const find = preparedStatement(
    'find_transfer',
    `select ${transfers.of('t')}, coalesce(c.cursor_number, t.block_number) as head
       from transfers t left join watched_chains c on c.chain_id = t.chain_id
      where t.id = $1 and t.merchant_id = $2 and t.mode = $3 and not t.is_refund ${lock}`,
  );
  return async (run: RunPrepared, publicId: string, { merchantId, mode }: Identity) => {
    const id = parseIdentifier('tr', publicId);
    const [found] = id === undefined ? [] : (await run(find, [id, merchantId, mode])).rows;
    if (found === undefined) throw new ServiceError('resource_missing');
    return { row: transfers.read(found), head: Number(found.head) };
  };
}

/**
 * Returns a function that runs the work in a transaction that locks the transfer, and the chain against
 * reverts and confirmations. `intentIdOf` names the intent to lock too. `isDone` returns true if there is
 * nothing to do, or throws. It is first called without a lock, so that frequent requests do not block the
 * chain. The work returns the changed row. Calls `onEvent` after the commit of a change. Throws ServiceError.
 */
function createTransferChange(em: EntityManager, onEvent: () => void) {
  const { change } = createPreparedStatements(em);
  const lockIntent = createIntentLock(em);
  const find = createFindTransfer(em);
  const findLocked = createFindTransfer(em, 'for update of t');
  return async (
    publicId: string,
    identity: Identity,
    intentIdOf: (transfer: TransferRow) => string | null | undefined,
    isDone: (transfer: TransferRow) => boolean,
    work: (
      inside: RunPrepared,
      row: TransferRow,
      intent: PaymentIntentRow | undefined,
    ) => Promise<TransferRow>,
  ): Promise<Transfer> => {
    const { row, after, head } = await change(identity.merchantId, async (inside) => {
      // The lock order is the same everywhere: chain, intent, transfer.
      const before = await find(inside, publicId, identity);
      const { row } = before;
      if (isDone(row)) return { ...before, after: undefined };
      await inside(holdChain, [row.chainId]);
      const intent = await lockIntent(inside, intentIdOf(row), identity);
      const found = await findLocked(inside, publicId, identity);
      return { ...found, after: isDone(found.row) ? undefined : await work(inside, found.row, intent) };
    });
    if (after !== undefined) onEvent();
    return toTransfer(after ?? row, head);
  };
}

/** `AttributeTransfer`: updates the intent, too. Calls `onEvent` after the commit. */
export function attributeTransfer(
  em: EntityManager,
  onEvent: () => void,
): Method<AttributeTransferRequest, Transfer> {
  const change = createTransferChange(em, onEvent);
  const { apply } = createApplySteps(em);
  return {
    ratePolicy: 'changes',
    violations: ({ paymentIntent }) =>
      paymentIntent === '' ? [{ field: 'payment_intent', message: 'must be the id of an intent' }] : [],
    async run(request, identity, { context }) {
      const intentId = parseIdentifier('pi', request.paymentIntent);
      return change(
        request.id,
        identity,
        () => intentId,
        ({ paymentIntent }) => {
          if (paymentIntent == null) return false;
          if (paymentIntent === intentId) return true;
          throw invalidState(
            `The transfer is already attributed to ${formatIdentifier('pi', paymentIntent)}.`,
          );
        },
        async (inside, row, intent) => {
          assertPossible(row, intent, request.allowEnded);
          const at = new Date();
          const network = networkOf(intent.network);
          const arrival = {
            amountUnits: BigInt(row.amountUnits),
            blockTime: row.blockTime,
            isRightToken: network !== undefined && isRightToken(network, row.tokenAddress),
            isReturned: false,
          };
          const judged = judge(intent, arrival);
          const labels = judged.labels.length > 0 ? judged.labels : null;
          await inside(setIntent, [row.id, intent.id, judged.counts, labels?.join(' ') ?? null]);
          const steps = arrive(intent, [{ ...arrival, judged }]);
          const arrived = Object.assign({ ...intent }, ...steps.map(({ fields }) => fields));
          const sums = await readPaymentSums(inside, [intent.id]);
          const succeeds = confirm(arrived, sums(intent.id).confirmedUnits, at);
          if (succeeds !== undefined) steps.push(succeeds);
          await apply(inside, new Map([[intent, steps]]), at, traceparentOf(context.trace));
          return { ...row, paymentIntent: intent.id, labels };
        },
      );
    },
  };
}

/** Throws ServiceError with the reason if the transfer cannot become a payment of the intent. */
function assertPossible(
  transfer: TransferRow,
  intent: PaymentIntentRow | undefined,
  allowEnded: boolean,
): asserts intent is PaymentIntentRow {
  const refuse = (message: string) => invalidField('payment_intent', message);
  if (intent === undefined) throw refuse('is not an intent of yours in the mode of this API key');
  if (networkOf(intent.network)?.chainId !== transfer.chainId) throw refuse('is an intent of another chain');
  if (intent.expectedWallet !== transfer.toAddress) {
    throw refuse('expects another wallet than the transfer went to');
  }
  if (transfer.state === 'reorged') {
    throw invalidState(
      'The transfer was reorged and is no longer on the chain. It is listed again if it returns.',
    );
  }
  const state = endOf(intent);
  if (state !== undefined && !allowEnded) {
    throw invalidState(`The intent ${state}. To attribute the transfer anyway, set allow_ended to true.`);
  }
}

/** Returns why the intent needs no further payment, as the end of a sentence. */
function endOf(intent: PaymentIntentRow): string | undefined {
  if (!isOpen(intent)) return intent.status === 'canceled' ? 'was canceled' : `has ${intent.status}`;
  return BigInt(intent.amountReceivedUnits) >= BigInt(intent.amountUnits) ? 'is fully paid' : undefined;
}

const setIntent = preparedStatement(
  'attribute_transfer',
  `with changed as (
     update transfers set payment_intent = $2, counts = $3, labels = string_to_array($4, ' '), attributed_by_hand = true
      where id = $1 returning authorized_by
   )
   update authorizations a set status = 'landed' from changed
    where a.id = changed.authorized_by and a.payment_intent = $2`,
);

/** `DetachTransfer`: undoes a manual attribution and updates the intent. Calls `onEvent` after the commit. */
export function detachTransfer(
  em: EntityManager,
  onEvent: () => void,
): Method<DetachTransferRequest, Transfer> {
  const change = createTransferChange(em, onEvent);
  const { apply } = createApplySteps(em);
  return {
    ratePolicy: 'changes',
    async run(request, identity, { context }) {
      return change(
        request.id,
        identity,
        ({ paymentIntent }) => paymentIntent,
        ({ paymentIntent, attributedByHand }) => {
          if (paymentIntent != null && !attributedByHand) {
            throw invalidState(
              'The transfer was attributed automatically. Only a manual attribution can be detached.',
            );
          }
          return paymentIntent == null;
        },
        async (inside, row, intent) => {
          // The transfer was attributed between the look-up and the lock: the client retries.
          if (intent === undefined || intent.id !== row.paymentIntent) throw new ServiceError('unavailable');
          // An unattributed transfer keeps only the label for its token.
          const settings = chains.find(({ chainId }) => chainId === row.chainId);
          const isUsdc = settings?.networks.some((network) => isRightToken(network, row.tokenAddress));
          const labels = isUsdc === true ? null : ['wrong_token'];
          await inside(clearIntent, [row.id, labels?.join(' ') ?? null]);
          const left = (await readPaymentSums(inside, [intent.id]))(intent.id);
          if (
            intent.status === 'succeeded' &&
            row.counts &&
            left.confirmedUnits < BigInt(intent.amountUnits)
          ) {
            throw invalidState('The intent has succeeded with this payment, so it cannot be detached.');
          }
          if (row.state === 'confirmed' && isUsdc === true) {
            const money = (await readReturnedMoney(inside, [intent.id])).get(intent.id);
            if (money !== undefined && money.refundableUnits < 0n) {
              throw invalidState(
                'The refunds of the intent need this payment: without it they return more than was received.',
              );
            }
          }
          const steps = new Map([[intent, [detach(intent, left)]]]);
          await apply(inside, steps, new Date(), traceparentOf(context.trace));
          return { ...row, paymentIntent: null, attributedByHand: false, counts: false, labels };
        },
      );
    },
  };
}

const clearIntent = preparedStatement(
  'detach_transfer',
  `with changed as (
     update transfers
        set payment_intent = null, counts = false, labels = string_to_array($2, ' '), attributed_by_hand = false,
            is_detached = true
      where id = $1 returning authorized_by
   )
   update authorizations a set status = 'submitted' from changed where a.id = changed.authorized_by`,
);
