// A gRPC client in TypeScript: creates the intent of an order, repeats the call safely, and reads a refusal.
//
//   PAYMENTS_API_KEY=sk_testnet_… node create-payment-intent.ts http://127.0.0.1:50051
//
// examples/grpc/README.md explains how to generate the code. The package in client/ does all of this for you.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { enumToJson } from '@bufbuild/protobuf';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from './gen/google/rpc/error_details_pb.ts';
import { type PaymentIntent, PaymentIntentStatusSchema } from './gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentService } from './gen/payments/v1/payment_intent_service_pb.ts';

const [, , baseUrl = 'http://127.0.0.1:50051'] = process.argv;
const { PAYMENTS_API_KEY } = process.env;
if (PAYMENTS_API_KEY === undefined) throw new Error('set PAYMENTS_API_KEY to your secret API key');

const client = createClient(PaymentIntentService, createGrpcTransport({ baseUrl, defaultTimeoutMs: 10_000 }));
const maxTries = 8;

/**
 * Creates the intent of an order, or finds the existing one. The order is the idempotency key, so every
 * retry, by this process or by another one, gets the same intent.
 */
async function createPaymentIntent(order: string, amountUnits: bigint): Promise<PaymentIntent> {
  const headers = { authorization: `Bearer ${PAYMENTS_API_KEY}`, 'idempotency-key': order };
  for (let attempt = 1; ; attempt++) {
    try {
      return await client.createPaymentIntent({ amountUnits, metadata: { order_id: order } }, { headers });
    } catch (reason) {
      const error = ConnectError.from(reason);
      if (!isRetryable(error) || attempt === maxTries) throw error;
      const backoffMs = 50 * 2 ** attempt * (0.5 + Math.random() / 2);
      const waitMs = Math.max(backoffMs, retryDelayMs(error));
      console.error(`attempt ${attempt}: ${error.message}; again in ${Math.round(waitMs)} ms`);
      await sleep(waitMs);
    }
  }
}

/**
 * Returns whether the same call may succeed later. After `unavailable`, `deadline_exceeded` or `internal` the
 * intent may exist: the next attempt finds it or creates it. `canceled` and `aborted` are how connect-node
 * reports a connection that broke during a call: the service never answers them, and this program cancels no
 * calls. A body that is too large has the same code as the rate limit, `resource_exhausted`, and stays refused.
 */
function isRetryable(error: ConnectError): boolean {
  const [info] = error.findDetails(ErrorInfoSchema);
  return (
    [Code.Unavailable, Code.DeadlineExceeded, Code.Internal].includes(error.code) ||
    [Code.Canceled, Code.Aborted].includes(error.code) ||
    info?.reason === 'RATE_LIMITED'
  );
}

/** Returns how long the server asks the client to wait, at least. */
function retryDelayMs(error: ConnectError): number {
  const [info] = error.findDetails(RetryInfoSchema);
  return Number(info?.retryDelay?.seconds ?? 0) * 1_000 + (info?.retryDelay?.nanos ?? 0) / 1e6;
}

/** The parts of a refusal. Decide by the reason, and log the rest: our support needs the request id. */
function describe(error: ConnectError) {
  const [info] = error.findDetails(ErrorInfoSchema);
  const [badRequest] = error.findDetails(BadRequestSchema);
  const [request] = error.findDetails(RequestInfoSchema);
  return {
    code: Code[error.code],
    message: error.rawMessage,
    reason: info?.reason,
    fields: Object.fromEntries(
      (badRequest?.fieldViolations ?? []).map(({ field, description }) => [field, description]),
    ),
    request_id: request?.requestId,
  };
}

const order = `order-${randomUUID()}`;
const intent = await createPaymentIntent(order, 12_500_000n);
const again = await createPaymentIntent(order, 12_500_000n);
const refusal = await createPaymentIntent(`${order}-free`, 0n).then(() => undefined, ConnectError.from);
console.log(
  JSON.stringify(
    {
      id: intent.id,
      status: enumToJson(PaymentIntentStatusSchema, intent.status),
      amount_units: Number(intent.amountUnits),
      metadata: intent.metadata,
      same_again: intent.id === again.id && intent.clientSecret === again.clientSecret,
      refusal: refusal && describe(refusal),
    },
    null,
    2,
  ),
);
