// The console's words for what the contract calls otherwise.

import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentStatus } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';
import { WebhookDeliveryStatus } from '../../src/contract/gen/payments/v1/webhook_endpoint_pb.ts';

/** How a state looks: done, on its way, in need of attention, or over. */
export type Tone = 'good' | 'busy' | 'bad' | 'over';

interface State {
  label: string;
  tone: Tone;
}

export const intentStates: Readonly<Record<PaymentIntentStatus, State>> = {
  [PaymentIntentStatus.UNSPECIFIED]: { label: 'Unknown', tone: 'over' },
  [PaymentIntentStatus.REQUIRES_PAYMENT]: { label: 'Waiting', tone: 'busy' },
  [PaymentIntentStatus.PROCESSING]: { label: 'Confirming', tone: 'busy' },
  [PaymentIntentStatus.SUCCEEDED]: { label: 'Paid', tone: 'good' },
  [PaymentIntentStatus.EXPIRED]: { label: 'Expired', tone: 'over' },
  [PaymentIntentStatus.CANCELED]: { label: 'Canceled', tone: 'over' },
};

/** How an intent stands. */
export function stateOf(intent: Pick<PaymentIntent, 'status' | 'amountReceivedUnits'>): State {
  const { status, amountReceivedUnits = 0n } = intent;
  const isPart = status === PaymentIntentStatus.REQUIRES_PAYMENT && amountReceivedUnits > 0n;
  return isPart
    ? { label: 'Part paid', tone: 'busy' }
    : (intentStates[status] ?? intentStates[PaymentIntentStatus.UNSPECIFIED]);
}

export const paymentStates: Readonly<Record<PaymentStatus, State>> = {
  [PaymentStatus.UNSPECIFIED]: { label: 'Unknown', tone: 'over' },
  [PaymentStatus.PENDING]: { label: 'Confirming', tone: 'busy' },
  [PaymentStatus.CONFIRMED]: { label: 'Confirmed', tone: 'good' },
  [PaymentStatus.REORGED]: { label: 'Reorganised', tone: 'bad' },
};

export const refundStates: Readonly<Record<RefundStatus, State>> = {
  [RefundStatus.UNSPECIFIED]: { label: 'Unknown', tone: 'over' },
  [RefundStatus.REQUIRES_TRANSFER]: { label: 'To be signed', tone: 'busy' },
  [RefundStatus.PROCESSING]: { label: 'Confirming', tone: 'busy' },
  [RefundStatus.SUCCEEDED]: { label: 'Returned', tone: 'good' },
  [RefundStatus.CANCELED]: { label: 'Canceled', tone: 'over' },
  [RefundStatus.EXPIRED]: { label: 'Expired', tone: 'over' },
};

export const deliveryStates: Readonly<Record<WebhookDeliveryStatus, State>> = {
  [WebhookDeliveryStatus.UNSPECIFIED]: { label: 'Unknown', tone: 'over' },
  [WebhookDeliveryStatus.PENDING]: { label: 'Waiting to be sent', tone: 'busy' },
  [WebhookDeliveryStatus.DELIVERED]: { label: 'Delivered', tone: 'good' },
  [WebhookDeliveryStatus.FAILED]: { label: 'Failed', tone: 'bad' },
};

const labels: Readonly<Record<string, string>> = {
  late: 'Late',
  found_late: 'Seen late',
  after_cancel: 'After cancellation',
  overpaid: 'Overpaid',
  underpaid: 'Underpaid',
  wrong_token: 'Another token',
  reorged: 'Reorganised',
  other_amount: 'Another amount',
  other_destination: 'Another destination',
  twice: 'Sent twice',
  payment_reorged: 'Payment reorganised',
};

/** A label in words. An unknown one is shown with spaces for its underscores. */
export const labelWords = (label: string): string => labels[label] ?? label.replaceAll('_', ' ');

const events: Readonly<Record<string, string>> = {
  'payment_intent.partially_paid': 'A part was paid',
  'payment_intent.processing': 'Paid in full, waiting for confirmations',
  'payment_intent.succeeded': 'Succeeded: the money is there',
  'payment_intent.overpaid': 'More was paid than asked for',
  'payment_intent.late_payment': 'Money came when the payment was over',
  'payment_intent.wrong_token': 'Another token was sent',
  'payment_intent.reorged': 'The chain was reorganised, and payments with it',
  'payment_intent.payment_detached': 'A transfer was detached',
  'payment_intent.expired': 'Expired',
  'payment_intent.canceled': 'Canceled',
  'refund.processing': 'The refund is on the chain, waiting for confirmations',
  'refund.succeeded': 'The money was returned',
  'refund.canceled': 'The refund was canceled',
  'refund.expired': 'The refund expired: no transfer was seen',
  'refund.reorged': 'The chain was reorganised, and the refund with it',
  'refund.unexpected': 'The refund differs from what was prepared',
};

export const eventWords = (type: string): string => events[type] ?? type;

const methods: Readonly<Record<string, string>> = {
  CancelPaymentIntent: 'canceled the payment',
  CreateRefund: 'prepared a refund',
  CancelRefund: 'canceled a refund',
  ConfirmRefund: 'named the transaction of a refund',
  AttributeTransfer: 'attributed a transfer',
  DetachTransfer: 'detached a transfer',
  RedeliverEvent: 'sent it to the shop again',
  CreateWebhookEndpoint: 'created the endpoint',
  UpdateWebhookEndpoint: 'changed the endpoint',
  DeleteWebhookEndpoint: 'deleted the endpoint',
  RotateWebhookSecret: 'replaced its secret',
  PingWebhookEndpoint: 'sent a test',
  RedeliverWebhookEndpoint: 'resent all failed deliveries',
  ResolveAttention: 'said that it is done',
};

/** What somebody did by calling the method. */
export function deedOf(method: string): string {
  if (method.startsWith('admin ')) return `ran “${method}”`;
  const name = method.slice(method.indexOf('/') + 1);
  return methods[name] ?? `called ${name}`;
}
