// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.

import * as words from '../../src/contract/gen/words.ts';
import type { Fields } from '../resource-fields.ts';

export const paymentFields: Fields = {
  transactionHash: { type: 'text' },
  logIndex: { type: 'integer' },
  blockNumber: { type: 'integer' },
  blockHash: { type: 'text' },
  blockTime: { type: 'moment', presence: 'required' },
  fromAddress: { type: 'text' },
  toAddress: { type: 'text' },
  tokenAddress: { type: 'text' },
  amountUnits: { type: 'units' },
  confirmations: { type: 'integer' },
  status: { type: 'word', words: words.paymentStatusWords },
  labels: { type: 'text', presence: 'list' },
  counts: { type: 'flag', presence: 'optional' },
};

export const paymentIntentFields: Fields = {
  id: { type: 'filledText' },
  status: { type: 'word', words: words.paymentIntentStatusWords },
  clientSecret: { type: 'filledText' },
  mode: { type: 'word', words: words.modeWords },
  chain: { type: 'word', words: words.chainWords },
  chainId: { type: 'integer' },
  confirmationsRequired: { type: 'integer' },
  amountUnits: { type: 'units' },
  decimals: { type: 'integer' },
  tokenSymbol: { type: 'text' },
  tokenAddress: { type: 'text' },
  expectedWallet: { type: 'text' },
  expiresAt: { type: 'moment', presence: 'required' },
  expiresInMinutes: { type: 'integer' },
  lane: { type: 'word', words: words.laneWords },
  metadata: { type: 'metadata' },
};

export const paymentIntentStateFields: Fields = {
  id: { type: 'filledText' },
  status: { type: 'word', words: words.paymentIntentStatusWords },
  mode: { type: 'word', words: words.modeWords },
  chain: { type: 'word', words: words.chainWords },
  chainId: { type: 'integer' },
  confirmationsRequired: { type: 'integer' },
  amountUnits: { type: 'units' },
  decimals: { type: 'integer' },
  tokenSymbol: { type: 'text' },
  tokenAddress: { type: 'text' },
  expectedWallet: { type: 'text' },
  expiresAt: { type: 'moment', presence: 'required' },
  expiresInMinutes: { type: 'integer' },
  lane: { type: 'word', words: words.laneWords },
  metadata: { type: 'metadata' },
  createdAt: { type: 'moment', presence: 'required' },
  amountReceivedUnits: { type: 'units', presence: 'required' },
  payments: { type: 'resource', fields: paymentFields, presence: 'list' },
  paymentsCount: { type: 'integer', presence: 'required' },
  labels: { type: 'text', presence: 'list' },
  succeededAt: { type: 'moment', presence: 'optional' },
  canceledAt: { type: 'moment', presence: 'optional' },
  expiredAt: { type: 'moment', presence: 'optional' },
  amountRefundedUnits: { type: 'units', presence: 'optional' },
};

export const retrievedPaymentIntentFields: Fields = {
  id: { type: 'filledText' },
  status: { type: 'word', words: words.paymentIntentStatusWords },
  clientSecret: { type: 'filledText' },
  mode: { type: 'word', words: words.modeWords },
  chain: { type: 'word', words: words.chainWords },
  chainId: { type: 'integer' },
  confirmationsRequired: { type: 'integer' },
  amountUnits: { type: 'units' },
  decimals: { type: 'integer' },
  tokenSymbol: { type: 'text' },
  tokenAddress: { type: 'text' },
  expectedWallet: { type: 'text' },
  expiresAt: { type: 'moment', presence: 'required' },
  expiresInMinutes: { type: 'integer' },
  lane: { type: 'word', words: words.laneWords },
  metadata: { type: 'metadata' },
  createdAt: { type: 'moment', presence: 'required' },
  amountReceivedUnits: { type: 'units', presence: 'required' },
  payments: { type: 'resource', fields: paymentFields, presence: 'list' },
  paymentsCount: { type: 'integer', presence: 'required' },
  labels: { type: 'text', presence: 'list' },
  succeededAt: { type: 'moment', presence: 'optional' },
  canceledAt: { type: 'moment', presence: 'optional' },
  expiredAt: { type: 'moment', presence: 'optional' },
  amountRefundedUnits: { type: 'units', presence: 'optional' },
};

export const webhookEndpointFields: Fields = {
  id: { type: 'filledText' },
  url: { type: 'text' },
  eventTypes: { type: 'text', presence: 'keptList' },
  enabled: { type: 'flag' },
  disabledReason: { type: 'text', presence: 'optional' },
  description: { type: 'text', presence: 'optional' },
  mode: { type: 'word', words: words.modeWords },
  createdAt: { type: 'moment', presence: 'required' },
};

export const webhookEndpointWithSecretFields: Fields = {
  id: { type: 'filledText' },
  url: { type: 'text' },
  eventTypes: { type: 'text', presence: 'keptList' },
  enabled: { type: 'flag' },
  disabledReason: { type: 'text', presence: 'optional' },
  description: { type: 'text', presence: 'optional' },
  mode: { type: 'word', words: words.modeWords },
  createdAt: { type: 'moment', presence: 'required' },
  secret: { type: 'filledText' },
};

export const transferCandidateFields: Fields = {
  id: { type: 'filledText' },
  amountUnits: { type: 'units' },
  status: { type: 'word', words: words.paymentIntentStatusWords },
  createdAt: { type: 'moment', presence: 'required' },
};

export const transferFields: Fields = {
  id: { type: 'filledText' },
  chain: { type: 'word', words: words.chainWords },
  status: { type: 'word', words: words.transferStatusWords },
  paymentIntent: { type: 'text', presence: 'omitted' },
  transactionHash: { type: 'text' },
  logIndex: { type: 'integer' },
  blockNumber: { type: 'integer' },
  blockHash: { type: 'text' },
  blockTime: { type: 'moment', presence: 'required' },
  fromAddress: { type: 'text' },
  toAddress: { type: 'text' },
  tokenAddress: { type: 'text' },
  amountUnits: { type: 'units' },
  confirmations: { type: 'integer' },
  labels: { type: 'text', presence: 'list' },
  candidates: { type: 'resource', fields: transferCandidateFields, presence: 'list' },
};

export const refundTransactionFields: Fields = {
  chainId: { type: 'integer' },
  to: { type: 'text' },
  value: { type: 'text' },
  data: { type: 'text' },
};

export const refundFields: Fields = {
  id: { type: 'filledText' },
  paymentIntent: { type: 'text' },
  mode: { type: 'word', words: words.modeWords },
  chain: { type: 'word', words: words.chainWords },
  chainId: { type: 'integer' },
  amountUnits: { type: 'units' },
  tokenAddress: { type: 'text' },
  destination: { type: 'text' },
  status: { type: 'word', words: words.refundStatusWords },
  reason: { type: 'text', presence: 'omitted' },
  metadata: { type: 'metadata' },
  createdAt: { type: 'moment', presence: 'required' },
  expiresAt: { type: 'moment', presence: 'required' },
  succeededAt: { type: 'moment', presence: 'optional' },
  canceledAt: { type: 'moment', presence: 'optional' },
  expiredAt: { type: 'moment', presence: 'optional' },
  transaction: { type: 'resource', fields: refundTransactionFields, presence: 'required' },
  transfers: { type: 'resource', fields: paymentFields, presence: 'list' },
  labels: { type: 'text', presence: 'list' },
};

export const eventDataFields: Fields = {
  paymentIntent: { type: 'resource', fields: paymentIntentStateFields, presence: 'optional' },
  webhookEndpoint: { type: 'resource', fields: webhookEndpointFields, presence: 'optional' },
  transfer: { type: 'resource', fields: transferFields, presence: 'optional' },
  transfersCount: { type: 'integer', presence: 'optional' },
  refund: { type: 'resource', fields: refundFields, presence: 'optional' },
};

export const eventFields: Fields = {
  id: { type: 'filledText' },
  type: { type: 'filledText' },
  createdAt: { type: 'moment', presence: 'required' },
  mode: { type: 'word', words: words.modeWords },
  sequence: { type: 'integer', presence: 'optional' },
  data: { type: 'resource', fields: eventDataFields, presence: 'required' },
};

export const listEventsResponseFields: Fields = {
  events: { type: 'resource', fields: eventFields, presence: 'keptList' },
  nextPageToken: { type: 'text', presence: 'omitted' },
};

export const listPaymentIntentsResponseFields: Fields = {
  paymentIntents: { type: 'resource', fields: paymentIntentStateFields, presence: 'keptList' },
  nextPageToken: { type: 'text', presence: 'omitted' },
};

export const listRefundsResponseFields: Fields = {
  refunds: { type: 'resource', fields: refundFields, presence: 'keptList' },
  nextPageToken: { type: 'text', presence: 'omitted' },
};

export const listTransfersResponseFields: Fields = {
  transfers: { type: 'resource', fields: transferFields, presence: 'keptList' },
  nextPageToken: { type: 'text', presence: 'omitted' },
};

export const listWebhookEndpointsResponseFields: Fields = {
  webhookEndpoints: { type: 'resource', fields: webhookEndpointFields, presence: 'keptList' },
  nextPageToken: { type: 'text', presence: 'omitted' },
};

export const deleteWebhookEndpointResponseFields: Fields = {
};

export const webhookAttemptFields: Fields = {
  at: { type: 'moment', presence: 'required' },
  statusCode: { type: 'integer', presence: 'optional' },
  durationMs: { type: 'integer' },
  error: { type: 'text', presence: 'optional' },
  response: { type: 'text', presence: 'optional' },
};

export const webhookDeliveryFields: Fields = {
  id: { type: 'filledText' },
  event: { type: 'text' },
  webhookEndpoint: { type: 'text' },
  status: { type: 'word', words: words.webhookDeliveryStatusWords },
  attempts: { type: 'resource', fields: webhookAttemptFields, presence: 'keptList' },
  nextAttemptAt: { type: 'moment', presence: 'optional' },
  createdAt: { type: 'moment', presence: 'required' },
  eventType: { type: 'text' },
  paymentIntent: { type: 'text', presence: 'omitted' },
};

export const listWebhookDeliveriesResponseFields: Fields = {
  webhookDeliveries: { type: 'resource', fields: webhookDeliveryFields, presence: 'keptList' },
  nextPageToken: { type: 'text', presence: 'omitted' },
};

export const redeliverWebhookEndpointResponseFields: Fields = {
  deliveriesCount: { type: 'integer' },
};

export const redeliverEventResponseFields: Fields = {
  webhookDeliveries: { type: 'resource', fields: webhookDeliveryFields, presence: 'keptList' },
};

export const watchEventsResponseFields: Fields = {
  event: { type: 'resource', fields: eventFields, presence: 'optional' },
  position: { type: 'filledText' },
};

export const listEventsFields: Fields = {
  pageSize: { type: 'integer', min: 1 },
  after: { type: 'filledText' },
  type: { type: 'filledText' },
  paymentIntent: { type: 'filledText' },
  refund: { type: 'filledText' },
};

export const createPaymentIntentFields: Fields = {
  amountUnits: { type: 'units', presence: 'required' },
  chain: { type: 'word', words: words.chainWords },
  walletAddress: { type: 'text' },
  expiresInMinutes: { type: 'integer' },
  lane: { type: 'word', words: words.laneWords },
  metadata: { type: 'metadata' },
  token: { type: 'word', words: words.tokenWords },
};

export const listPaymentIntentsFields: Fields = {
  pageSize: { type: 'integer', min: 1 },
  status: { type: 'word', words: words.paymentIntentStatusWords },
  chain: { type: 'word', words: words.chainWords },
  lane: { type: 'word', words: words.laneWords },
  idempotencyKey: { type: 'filledText' },
  createdFrom: { type: 'moment' },
  createdBefore: { type: 'moment' },
  label: { type: 'filledText' },
  expectedWallet: { type: 'filledText' },
  succeededFrom: { type: 'moment' },
  succeededBefore: { type: 'moment' },
  metadataKey: { type: 'filledText' },
  metadataValue: { type: 'filledText' },
};

export const createRefundFields: Fields = {
  paymentIntent: { type: 'filledText', presence: 'required' },
  amountUnits: { type: 'units' },
  destination: { type: 'filledText', presence: 'required' },
  reason: { type: 'filledText' },
  metadata: { type: 'metadata' },
};

export const listRefundsFields: Fields = {
  pageSize: { type: 'integer', min: 1 },
  paymentIntent: { type: 'filledText' },
  status: { type: 'word', words: words.refundStatusWords },
};

export const confirmRefundFields: Fields = {
  transactionHash: { type: 'filledText', presence: 'required' },
};

export const listTransfersFields: Fields = {
  pageSize: { type: 'integer', min: 1 },
  status: { type: 'word', words: words.transferStatusWords },
  transactionHash: { type: 'filledText' },
  paymentIntent: { type: 'filledText' },
  fromAddress: { type: 'filledText' },
  toAddress: { type: 'filledText' },
  chain: { type: 'word', words: words.chainWords },
  blockTimeFrom: { type: 'moment' },
  blockTimeBefore: { type: 'moment' },
};

export const attributeTransferFields: Fields = {
  paymentIntent: { type: 'filledText', presence: 'required' },
  allowEnded: { type: 'flag' },
};

export const createWebhookEndpointFields: Fields = {
  url: { type: 'filledText', presence: 'required' },
  eventTypes: { type: 'text', presence: 'list' },
  enabled: { type: 'flag' },
  description: { type: 'text' },
};

export const listWebhookEndpointsFields: Fields = {
  pageSize: { type: 'integer', min: 1 },
};

export const updateWebhookEndpointFields: Fields = {
  url: { type: 'text' },
  eventTypes: { type: 'text', presence: 'list' },
  enabled: { type: 'flag' },
  description: { type: 'text' },
};

export const rotateWebhookSecretFields: Fields = {
  overlapHours: { type: 'integer', min: 0 },
};

export const listWebhookDeliveriesFields: Fields = {
  pageSize: { type: 'integer', min: 1 },
  status: { type: 'word', words: words.webhookDeliveryStatusWords },
};

export const redeliverWebhookEndpointFields: Fields = {
  status: { type: 'word', words: { pending: 1, failed: 3 } },
  createdFrom: { type: 'moment' },
  createdBefore: { type: 'moment' },
};

export const redeliverEventFields: Fields = {
  webhookEndpoint: { type: 'filledText' },
};

