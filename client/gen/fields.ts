// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.

import * as words from '../../src/contract/gen/words.ts';
import * as input from '../request-fields.ts';
import * as kind from '../resource-fields.ts';

export const paymentFields: kind.Fields = {
  transactionHash: kind.text,
  logIndex: kind.integer,
  blockNumber: kind.smallInteger,
  blockHash: kind.text,
  blockTime: kind.present(kind.moment),
  fromAddress: kind.text,
  toAddress: kind.text,
  tokenAddress: kind.text,
  amountUnits: kind.units,
  confirmations: kind.integer,
  status: kind.word(words.paymentStatusWords),
  labels: kind.list(kind.text),
  counts: kind.optional(kind.flag),
};

export const paymentIntentFields: kind.Fields = {
  id: kind.filledText,
  status: kind.word(words.paymentIntentStatusWords),
  clientSecret: kind.filledText,
  mode: kind.word(words.modeWords),
  chain: kind.word(words.chainWords),
  chainId: kind.smallInteger,
  confirmationsRequired: kind.integer,
  amountUnits: kind.units,
  decimals: kind.integer,
  tokenSymbol: kind.text,
  tokenAddress: kind.text,
  expectedWallet: kind.text,
  expiresAt: kind.present(kind.moment),
  expiresInMinutes: kind.integer,
  lane: kind.word(words.laneWords),
  metadata: kind.metadata,
};

export const paymentIntentStateFields: kind.Fields = {
  id: kind.filledText,
  status: kind.word(words.paymentIntentStatusWords),
  mode: kind.word(words.modeWords),
  chain: kind.word(words.chainWords),
  chainId: kind.smallInteger,
  confirmationsRequired: kind.integer,
  amountUnits: kind.units,
  decimals: kind.integer,
  tokenSymbol: kind.text,
  tokenAddress: kind.text,
  expectedWallet: kind.text,
  expiresAt: kind.present(kind.moment),
  expiresInMinutes: kind.integer,
  lane: kind.word(words.laneWords),
  metadata: kind.metadata,
  createdAt: kind.present(kind.moment),
  amountReceivedUnits: kind.present(kind.units),
  payments: kind.list(kind.resource(paymentFields)),
  paymentsCount: kind.present(kind.integer),
  labels: kind.list(kind.text),
  succeededAt: kind.optional(kind.moment),
  canceledAt: kind.optional(kind.moment),
  expiredAt: kind.optional(kind.moment),
  amountRefundedUnits: kind.optional(kind.units),
};

export const retrievedPaymentIntentFields: kind.Fields = {
  id: kind.filledText,
  status: kind.word(words.paymentIntentStatusWords),
  clientSecret: kind.filledText,
  mode: kind.word(words.modeWords),
  chain: kind.word(words.chainWords),
  chainId: kind.smallInteger,
  confirmationsRequired: kind.integer,
  amountUnits: kind.units,
  decimals: kind.integer,
  tokenSymbol: kind.text,
  tokenAddress: kind.text,
  expectedWallet: kind.text,
  expiresAt: kind.present(kind.moment),
  expiresInMinutes: kind.integer,
  lane: kind.word(words.laneWords),
  metadata: kind.metadata,
  createdAt: kind.present(kind.moment),
  amountReceivedUnits: kind.present(kind.units),
  payments: kind.list(kind.resource(paymentFields)),
  paymentsCount: kind.present(kind.integer),
  labels: kind.list(kind.text),
  succeededAt: kind.optional(kind.moment),
  canceledAt: kind.optional(kind.moment),
  expiredAt: kind.optional(kind.moment),
  amountRefundedUnits: kind.optional(kind.units),
};

export const webhookEndpointFields: kind.Fields = {
  id: kind.filledText,
  url: kind.text,
  eventTypes: kind.list(kind.text),
  enabled: kind.flag,
  disabledReason: kind.optional(kind.text),
  description: kind.optional(kind.text),
  mode: kind.word(words.modeWords),
  createdAt: kind.present(kind.moment),
};

export const webhookEndpointWithSecretFields: kind.Fields = {
  id: kind.filledText,
  url: kind.text,
  eventTypes: kind.list(kind.text),
  enabled: kind.flag,
  disabledReason: kind.optional(kind.text),
  description: kind.optional(kind.text),
  mode: kind.word(words.modeWords),
  createdAt: kind.present(kind.moment),
  secret: kind.filledText,
};

export const transferCandidateFields: kind.Fields = {
  id: kind.filledText,
  amountUnits: kind.units,
  status: kind.word(words.paymentIntentStatusWords),
  createdAt: kind.present(kind.moment),
};

export const transferFields: kind.Fields = {
  id: kind.filledText,
  chain: kind.word(words.chainWords),
  status: kind.word(words.transferStatusWords),
  paymentIntent: kind.textOrNone,
  transactionHash: kind.text,
  logIndex: kind.integer,
  blockNumber: kind.smallInteger,
  blockHash: kind.text,
  blockTime: kind.present(kind.moment),
  fromAddress: kind.text,
  toAddress: kind.text,
  tokenAddress: kind.text,
  amountUnits: kind.units,
  confirmations: kind.integer,
  labels: kind.list(kind.text),
  candidates: kind.list(kind.resource(transferCandidateFields)),
};

export const refundTransactionFields: kind.Fields = {
  chainId: kind.smallInteger,
  to: kind.text,
  value: kind.text,
  data: kind.text,
};

export const refundFields: kind.Fields = {
  id: kind.filledText,
  paymentIntent: kind.text,
  mode: kind.word(words.modeWords),
  chain: kind.word(words.chainWords),
  chainId: kind.smallInteger,
  amountUnits: kind.units,
  tokenAddress: kind.text,
  destination: kind.text,
  status: kind.word(words.refundStatusWords),
  reason: kind.textOrNone,
  metadata: kind.metadata,
  createdAt: kind.present(kind.moment),
  expiresAt: kind.present(kind.moment),
  succeededAt: kind.optional(kind.moment),
  canceledAt: kind.optional(kind.moment),
  expiredAt: kind.optional(kind.moment),
  transaction: kind.present(kind.resource(refundTransactionFields)),
  transfers: kind.list(kind.resource(paymentFields)),
  labels: kind.list(kind.text),
};

export const eventDataFields: kind.Fields = {
  paymentIntent: kind.optional(kind.resource(paymentIntentStateFields)),
  webhookEndpoint: kind.optional(kind.resource(webhookEndpointFields)),
  transfer: kind.optional(kind.resource(transferFields)),
  transfersCount: kind.optional(kind.integer),
  refund: kind.optional(kind.resource(refundFields)),
};

export const eventFields: kind.Fields = {
  id: kind.filledText,
  type: kind.filledText,
  createdAt: kind.present(kind.moment),
  mode: kind.word(words.modeWords),
  sequence: kind.optional(kind.integer),
  data: kind.present(kind.resource(eventDataFields)),
};

export const webhookAttemptFields: kind.Fields = {
  at: kind.present(kind.moment),
  statusCode: kind.optional(kind.integer),
  durationMs: kind.integer,
  error: kind.optional(kind.text),
  response: kind.optional(kind.text),
};

export const webhookDeliveryFields: kind.Fields = {
  id: kind.filledText,
  event: kind.text,
  webhookEndpoint: kind.text,
  status: kind.word(words.webhookDeliveryStatusWords),
  attempts: kind.list(kind.resource(webhookAttemptFields)),
  nextAttemptAt: kind.optional(kind.moment),
  createdAt: kind.present(kind.moment),
  eventType: kind.text,
  paymentIntent: kind.textOrNone,
};

export const watchEventsResponseFields: kind.Fields = {
  event: kind.optional(kind.resource(eventFields)),
  position: kind.filledText,
};

export const listEventsFields: input.RequestFields = {
  pageSize: input.integerFrom(1),
  after: input.filledText,
  type: input.filledText,
  paymentIntent: input.filledText,
  refund: input.filledText,
};

export const createPaymentIntentFields: input.RequestFields = {
  amountUnits: input.required(input.amount),
  chain: input.word(words.chainWords),
  walletAddress: input.text,
  expiresInMinutes: input.clampedInteger,
  lane: input.word(words.laneWords),
  metadata: input.metadata,
  token: input.word(words.tokenWords),
};

export const listPaymentIntentsFields: input.RequestFields = {
  pageSize: input.integerFrom(1),
  status: input.word(words.paymentIntentStatusWords),
  chain: input.word(words.chainWords),
  lane: input.word(words.laneWords),
  idempotencyKey: input.filledText,
  createdFrom: input.moment,
  createdBefore: input.moment,
  label: input.filledText,
  expectedWallet: input.filledText,
  succeededFrom: input.moment,
  succeededBefore: input.moment,
  metadataKey: input.filledText,
  metadataValue: input.filledText,
};

export const createRefundFields: input.RequestFields = {
  paymentIntent: input.required(input.filledText),
  amountUnits: input.amount,
  destination: input.required(input.filledText),
  reason: input.filledText,
  metadata: input.metadata,
};

export const listRefundsFields: input.RequestFields = {
  pageSize: input.integerFrom(1),
  paymentIntent: input.filledText,
  status: input.word(words.refundStatusWords),
};

export const confirmRefundFields: input.RequestFields = {
  transactionHash: input.required(input.filledText),
};

export const listTransfersFields: input.RequestFields = {
  pageSize: input.integerFrom(1),
  status: input.word(words.transferStatusWords),
  transactionHash: input.filledText,
  paymentIntent: input.filledText,
  fromAddress: input.filledText,
  toAddress: input.filledText,
  chain: input.word(words.chainWords),
  blockTimeFrom: input.moment,
  blockTimeBefore: input.moment,
};

export const attributeTransferFields: input.RequestFields = {
  paymentIntent: input.required(input.filledText),
  allowEnded: input.flag,
};

export const createWebhookEndpointFields: input.RequestFields = {
  url: input.required(input.filledText),
  eventTypes: input.filledTexts,
  enabled: input.flag,
  description: input.text,
};

export const listWebhookEndpointsFields: input.RequestFields = {
  pageSize: input.integerFrom(1),
};

export const updateWebhookEndpointFields: input.RequestFields = {
  url: input.text,
  eventTypes: input.filledTexts,
  enabled: input.flag,
  description: input.text,
};

export const rotateWebhookSecretFields: input.RequestFields = {
  overlapHours: input.integerFrom(0),
};

export const listWebhookDeliveriesFields: input.RequestFields = {
  pageSize: input.integerFrom(1),
  status: input.word(words.webhookDeliveryStatusWords),
};

export const redeliverWebhookEndpointFields: input.RequestFields = {
  status: input.word({ pending: 1, failed: 3 }),
  createdFrom: input.moment,
  createdBefore: input.moment,
};

export const redeliverEventFields: input.RequestFields = {
  webhookEndpoint: input.filledText,
};

