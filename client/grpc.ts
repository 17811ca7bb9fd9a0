import { create, toBinary } from '@bufbuild/protobuf';
import { timestampDate } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../src/gen/google/rpc/error_details_pb.ts';
import { Chain, Lane, Mode, Token } from '../src/gen/payments/v1/payment_intent_pb.ts';
import {
  type CreatePaymentIntentRequest,
  CreatePaymentIntentRequestSchema,
  PaymentIntentService,
} from '../src/gen/payments/v1/payment_intent_service_pb.ts';
import { exactUnits, invalid, numberOf } from './checked.ts';
import { PaymentIntentsError, type PaymentIntentsErrorCode } from './error.ts';
import type { CreatePaymentIntent, PaymentIntentsClientOptions, Send } from './index.ts';

/** The internal port: gRPC over HTTP/2. */
export function grpc({ baseUrl, apiKey }: PaymentIntentsClientOptions): Send {
  const client = createClient(PaymentIntentService, createGrpcTransport({ baseUrl }));
  return async (asked, idempotencyKey, signal) => {
    const message = messageOf(asked);
    let replayed = false;
    try {
      const intent = await client.createPaymentIntent(message, {
        headers: { Authorization: `Bearer ${apiKey}`, 'Idempotency-Key': idempotencyKey },
        signal,
        onHeader: (headers) => {
          replayed = headers.get('Idempotent-Replayed') === 'true';
        },
      });
      return {
        id: intent.id,
        status: 'requires_payment',
        clientSecret: intent.clientSecret,
        mode: intent.mode === Mode.MAINNET ? 'mainnet' : 'testnet',
        chain: intent.chain === Chain.POLYGON ? 'polygon' : 'base',
        chainId: Number(intent.chainId),
        confirmationsRequired: intent.confirmationsRequired,
        amountUnits: intent.amountUnits,
        decimals: intent.decimals,
        tokenSymbol: intent.tokenSymbol,
        tokenAddress: intent.tokenAddress,
        expectedWallet: intent.expectedWallet,
        expiresAt: intent.expiresAt ? timestampDate(intent.expiresAt) : new Date(Number.NaN),
        expiresInMinutes: intent.expiresInMinutes,
        lane: intent.lane === Lane.MANUAL ? 'manual' : 'sdk',
        metadata: intent.metadata ?? {},
        replayed,
      };
    } catch (reason) {
      throw refusalOf(ConnectError.from(reason));
    }
  };
}

/** The message; throws `invalid_body` for what it cannot hold, which no retry would mend. */
function messageOf(asked: CreatePaymentIntent): CreatePaymentIntentRequest {
  const message = create(CreatePaymentIntentRequestSchema, {
    amountUnits: exactUnits(asked.amountUnits),
    chain: numberOf('chain', chains, asked.chain),
    walletAddress: asked.walletAddress,
    expiresInMinutes: asked.expiresInMinutes,
    lane: numberOf('lane', lanes, asked.lane),
    metadata: asked.metadata,
    token: numberOf('token', tokens, asked.token),
  } as object);
  try {
    toBinary(CreatePaymentIntentRequestSchema, message);
  } catch (cause) {
    throw invalid('body', `cannot be sent: ${cause instanceof Error ? cause.message : cause}`, cause);
  }
  return message;
}

const chains = { base: Chain.BASE, polygon: Chain.POLYGON } as const;
const lanes = { sdk: Lane.SDK, manual: Lane.MANUAL } as const;
const tokens = { USDC: Token.USDC } as const;

function refusalOf(error: ConnectError): PaymentIntentsError {
  const [info] = error.findDetails(ErrorInfoSchema);
  const message = error.rawMessage;
  // Without the service's own words nobody has answered, or not the service.
  if (info === undefined || error.code === Code.Canceled) {
    return new PaymentIntentsError('network', `No answer came: ${message}`, { cause: error });
  }
  const [badRequest] = error.findDetails(BadRequestSchema);
  const [retry] = error.findDetails(RetryInfoSchema);
  return new PaymentIntentsError(info.reason.toLowerCase() as PaymentIntentsErrorCode, message, {
    requestId: error.findDetails(RequestInfoSchema)[0]?.requestId,
    details: (badRequest?.fieldViolations ?? []).map(({ field, description }) => ({
      field,
      message: description,
    })),
    retryAfterMs: retry?.retryDelay ? Number(retry.retryDelay.seconds) * 1_000 : 0,
    cause: error,
  });
}
