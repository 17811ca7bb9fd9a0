import type { EntityManager } from '@mikro-orm/postgresql';
import { chains, isRightToken } from '../contract/chains.ts';
import type { TransferService } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createApplySteps } from '../payment-intents/apply-steps.ts';
import { readReturnedMoney } from '../refunds/returned-money.ts';
import { ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import { traceparentOf } from '../requests/trace.ts';
import { createTransferChanges } from './change-transfer.ts';
import { confirmedUnits } from './confirmed-units.ts';
import { detach } from './judgement.ts';
import { readRemaining } from './ledger/reverting.ts';
import { toTransfer } from './transfer.ts';

/** `DetachTransfer`: undoes a manual attribution and recalculates the intent. Calls `onEvent` after the commit. */
export function detachTransfer(
  em: EntityManager,
  onEvent: () => void,
): MethodsOf<typeof TransferService>['detachTransfer'] {
  const { change } = createTransferChanges(em);
  const { apply } = createApplySteps(em);

  const detachFrom = async (
    inside: RunPrepared,
    row: TransferRow,
    intent: PaymentIntentRow,
    traceparent: string | null,
  ): Promise<TransferRow> => {
    if (!row.attributedByHand) throw attributedAutomatically();
    // An unattributed transfer keeps only the label for its token.
    const settings = chains.find(({ chainId }) => chainId === row.chainId);
    const isUsdc = settings?.networks.some((network) => isRightToken(network, row.tokenAddress));
    const labels = isUsdc === true ? null : ['wrong_token'];
    await inside(clearIntent, [row.id, labels?.join(' ') ?? null]);
    if (intent.status === 'succeeded' && row.counts) {
      const left = await confirmedUnits(inside, [intent.id]);
      if ((left.get(intent.id) ?? 0n) < BigInt(intent.amountUnits)) throw hasSucceeded();
    }
    if (row.state === 'confirmed' && isUsdc === true) {
      const money = (await readReturnedMoney(inside, [intent.id])).get(intent.id);
      if (money !== undefined && money.committedUnits > money.confirmedUnits) throw isReturned();
    }
    const remaining = await readRemaining(inside, [intent.id]);
    await apply(inside, new Map([[intent, [detach(intent, remaining(intent.id))]]]), new Date(), traceparent);
    return { ...row, paymentIntent: null, attributedByHand: false, counts: false, labels };
  };

  return {
    ratePolicy: 'changes',
    async run(request, identity, { context }) {
      const traceparent = traceparentOf(context.trace);
      const { row, head, isNew } = await change(
        request.id,
        identity,
        ({ paymentIntent }) => paymentIntent,
        async (inside, found, intent) => {
          if (found.row.paymentIntent == null) return { ...found, isNew: false };
          if (intent?.id !== found.row.paymentIntent) throw attributionChanged();
          return { ...found, row: await detachFrom(inside, found.row, intent, traceparent), isNew: true };
        },
      );
      if (isNew) onEvent();
      return toTransfer(row, head);
    },
  };
}

function attributedAutomatically(): ServiceError {
  return new ServiceError('invalid_state', {
    message: 'The transfer was attributed automatically. Only a manual attribution can be detached.',
  });
}

function hasSucceeded(): ServiceError {
  return new ServiceError('invalid_state', {
    message: 'The intent has succeeded with this payment, so it cannot be detached.',
  });
}

function isReturned(): ServiceError {
  return new ServiceError('invalid_state', {
    message: 'The refunds of the intent need this payment: without it they return more than was received.',
  });
}

/** The transfer was attributed between the lookup and the lock. The client retries. */
function attributionChanged(): ServiceError {
  return new ServiceError('unavailable');
}

const clearIntent = preparedStatement(
  'detach_transfer',
  `update transfers
      set payment_intent = null, counts = false, labels = string_to_array($2, ' '), attributed_by_hand = false,
          is_detached = true
    where id = $1`,
);
