import type { EntityManager } from '@mikro-orm/postgresql';
import { isRightToken, networkOf } from '../contract/chains.ts';
import type { TransferService } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createApplySteps } from '../payment-intents/apply-steps.ts';
import { invalidBody, ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import { traceparentOf } from '../requests/trace.ts';
import { createTransferChanges, type FoundTransferRow } from './change-transfer.ts';
import { confirmedUnits } from './confirmed-units.ts';
import { arrive, confirm, isOpen, judge } from './judgement.ts';
import { toTransfer } from './transfer.ts';

/**
 * `AttributeTransfer`: makes an unattributed transfer a payment of an intent and updates the intent. Calls `onEvent`
 * after the commit.
 */
export function attributeTransfer(
  em: EntityManager,
  onEvent: () => void,
): MethodsOf<typeof TransferService>['attributeTransfer'] {
  const { change } = createTransferChanges(em);
  const { apply } = createApplySteps(em);

  const attribute = async (
    inside: RunPrepared,
    { row }: FoundTransferRow,
    intent: PaymentIntentRow,
    traceparent: string | null,
  ): Promise<TransferRow> => {
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
    const arrived = Object.assign({ ...intent }, ...steps.map(({ fields }) => fields));
    const sums = await confirmedUnits(inside, [intent.id]);
    const succeeds = confirm(arrived, sums.get(intent.id) ?? 0n, at);
    await apply(inside, new Map([[intent, [...steps, ...(succeeds ? [succeeds] : [])]]]), at, traceparent);
    return { ...row, paymentIntent: intent.id, labels: judged.labels.length > 0 ? judged.labels : null };
  };

  return {
    ratePolicy: 'changes',
    violations: ({ paymentIntent }) =>
      paymentIntent === '' ? [{ field: 'payment_intent', message: 'must be the id of an intent' }] : [],
    async run(request, identity, { context }) {
      const traceparent = traceparentOf(context.trace);
      const intentId = parseIdentifier('pi', request.paymentIntent);
      const { row, head, isNew } = await change(
        request.id,
        identity,
        () => intentId,
        async (inside, found, intent) => {
          if (intentId !== undefined && found.row.paymentIntent === intentId) {
            return { ...found, isNew: false };
          }
          assertPossible(found.row, intent, request.allowEnded);
          return { ...found, row: await attribute(inside, found, intent, traceparent), isNew: true };
        },
      );
      if (isNew) onEvent();
      return toTransfer(row, head);
    },
  };
}

/** Throws ServiceError with the reason if the transfer cannot become a payment of the intent. */
function assertPossible(
  transfer: TransferRow,
  intent: PaymentIntentRow | undefined,
  allowEnded: boolean,
): asserts intent is PaymentIntentRow {
  if (transfer.paymentIntent != null) {
    const other = formatIdentifier('pi', transfer.paymentIntent);
    throw new ServiceError('invalid_state', { message: `The transfer is already attributed to ${other}.` });
  }
  const problem = problemOf(transfer, intent);
  if (intent === undefined || problem !== undefined) {
    throw invalidBody([{ field: 'payment_intent', message: problem ?? 'is not an intent of yours' }]);
  }
  if (transfer.state === 'reorged') {
    throw new ServiceError('invalid_state', {
      message: 'The transfer was reorged and is no longer on the chain. It is listed again if it returns.',
    });
  }
  const state = endOf(intent);
  if (state !== undefined && !allowEnded) {
    throw new ServiceError('invalid_state', {
      message: `The intent ${state} and needs no further payment. Send allow_ended as true to attribute the transfer anyway.`,
    });
  }
}

/** Returns why the intent needs no further payment, as the end of a sentence. */
function endOf(intent: PaymentIntentRow): string | undefined {
  if (!isOpen(intent)) return `is ${intent.status}`;
  return BigInt(intent.amountReceivedUnits) >= BigInt(intent.amountUnits) ? 'is fully paid' : undefined;
}

/** Returns why the transfer cannot be a payment of the intent, as the end of a sentence. */
function problemOf(transfer: TransferRow, intent: PaymentIntentRow | undefined): string | undefined {
  if (intent === undefined) return 'is not an intent of yours in the mode of this API key';
  if (networkOf(intent.network)?.chainId !== transfer.chainId) return 'is an intent of another chain';
  if (intent.expectedWallet !== transfer.toAddress) return 'expects another wallet than the transfer went to';
  return undefined;
}

const setIntent = preparedStatement(
  'attribute_transfer',
  `update transfers set payment_intent = $2, counts = $3, labels = string_to_array($4, ' '), attributed_by_hand = true
    where id = $1`,
);
