// @grpc/grpc-js with protobuf-es for the messages, and `pg` with a prepared insert.

import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import grpc from '@grpc/grpc-js';
import {
  Chain,
  Lane,
  Mode,
  type PaymentIntent,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import {
  type CreatePaymentIntentRequest,
  CreatePaymentIntentRequestSchema,
} from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { authenticate, createIntent, port } from './shared.ts';

/** Writes the row of a request, and returns the message of the intent. */
export async function createPaymentIntent(
  request: CreatePaymentIntentRequest,
  merchant: { merchantId: string; wallet: string },
): Promise<PaymentIntent> {
  const intent = await createIntent(
    {
      amountUnits: Number(request.amountUnits),
      chain: request.chain === Chain.POLYGON ? 'polygon' : 'base',
      lane: request.lane === Lane.MANUAL ? 'manual' : 'sdk',
      expiresInMinutes: request.expiresInMinutes ?? 30,
      metadata: request.metadata ?? {},
    },
    merchant,
  );
  return create(PaymentIntentSchema, {
    id: intent.id,
    status: PaymentIntentStatus.REQUIRES_PAYMENT,
    clientSecret: intent.client_secret,
    mode: Mode.TESTNET,
    chain: intent.chain === 'base' ? Chain.BASE : Chain.POLYGON,
    chainId: BigInt(intent.chain_id),
    confirmationsRequired: intent.confirmations_required,
    amountUnits: BigInt(intent.amount_units),
    decimals: intent.decimals,
    tokenSymbol: intent.token_symbol,
    tokenAddress: intent.token_address,
    expectedWallet: intent.expected_wallet,
    expiresAt: timestampFromDate(new Date(intent.expires_at)),
    expiresInMinutes: intent.expires_in_minutes,
    lane: intent.lane === 'sdk' ? Lane.SDK : Lane.MANUAL,
    metadata: request.metadata ?? {},
  });
}

const service = {
  createPaymentIntent: {
    path: '/payments.v1.PaymentIntentService/CreatePaymentIntent',
    requestStream: false,
    responseStream: false,
    requestSerialize: () => Buffer.alloc(0),
    requestDeserialize: (bytes: Buffer) => fromBinary(CreatePaymentIntentRequestSchema, bytes),
    responseSerialize: (intent: PaymentIntent) => Buffer.from(toBinary(PaymentIntentSchema, intent)),
    responseDeserialize: () => undefined as never,
  },
} as const;

const server = new grpc.Server();
server.addService(service as never, {
  createPaymentIntent(
    call: grpc.ServerUnaryCall<CreatePaymentIntentRequest, PaymentIntent>,
    done: grpc.sendUnaryData<PaymentIntent>,
  ) {
    const merchant = authenticate(call.metadata.get('authorization')[0]?.toString());
    if (merchant === undefined) return done({ code: grpc.status.UNAUTHENTICATED });
    if (call.request.amountUnits < 1n) return done({ code: grpc.status.INVALID_ARGUMENT });
    createPaymentIntent(call.request, merchant).then(
      (intent) => done(null, intent),
      () => done({ code: grpc.status.INTERNAL }),
    );
  },
});
server.bindAsync(`127.0.0.1:${port}`, grpc.ServerCredentials.createInsecure(), () => console.log('ready'));
