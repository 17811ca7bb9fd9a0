// connect-node and MikroORM's unit of work: the obvious first implementation.

import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import http2 from 'node:http2';
import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { defineEntity, MikroORM, p } from '@mikro-orm/postgresql';
import { networkFor } from '../../src/contract/chains.ts';
import {
  Chain,
  Lane,
  Mode,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentService } from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { authenticate, port } from './shared.ts';

const PaymentIntentEntity = defineEntity({
  name: 'PaymentIntent',
  tableName: 'payment_intents',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: p.text(),
    status: p.text(),
    chain: p.text(),
    chainId: p.integer(),
    confirmationsRequired: p.smallint(),
    amountUnits: p.bigint(),
    decimals: p.smallint(),
    tokenSymbol: p.text(),
    tokenAddress: p.text(),
    expectedWallet: p.text(),
    lane: p.text(),
    metadata: p.json<object>(),
    expiresInMinutes: p.smallint(),
    createdAt: p.datetime(),
    expiresAt: p.datetime(),
    clientSecretVersion: p.smallint(),
  },
});

const orm = new MikroORM({
  entities: [PaymentIntentEntity],
  host: process.env.PGHOST ?? '',
  user: process.env.PGUSER ?? '',
  dbName: process.env.PGDATABASE ?? '',
  pool: { min: 0, max: 16 },
  ensureDatabase: false,
  forceUtcTimezone: true,
});
const secretKey = createSecretKey(randomBytes(32));

const handler = connectNodeAdapter({
  routes: (router) =>
    router.service(PaymentIntentService, {
      async createPaymentIntent(request, context) {
        const merchant = authenticate(context.requestHeader.get('authorization') ?? undefined);
        if (merchant === undefined) throw new ConnectError('unauthenticated', Code.Unauthenticated);
        if (request.amountUnits < 1n) throw new ConnectError('amount_units', Code.InvalidArgument);
        const em = orm.em.fork();
        const createdAt = new Date();
        const chain = request.chain === Chain.POLYGON ? 'polygon' : 'base';
        const { chainId, confirmationsRequired, tokenAddress } = networkFor('testnet', chain);
        const intent = em.create(PaymentIntentEntity, {
          id: newUuid(),
          merchantId: merchant.merchantId,
          mode: 'testnet',
          status: 'requires_payment',
          chain,
          chainId,
          confirmationsRequired,
          amountUnits: request.amountUnits,
          decimals: 6,
          tokenSymbol: 'USDC',
          tokenAddress: tokenAddress,
          expectedWallet: merchant.wallet,
          lane: request.lane === Lane.MANUAL ? 'manual' : 'sdk',
          metadata: request.metadata ?? {},
          expiresInMinutes: 30,
          createdAt,
          expiresAt: new Date(createdAt.getTime() + 1_800_000),
          clientSecretVersion: 1,
        });
        await em.flush();
        const id = formatIdentifier('pi', intent.id);
        return create(PaymentIntentSchema, {
          id,
          status: PaymentIntentStatus.REQUIRES_PAYMENT,
          clientSecret: `${id}_secret_${createHmac('sha256', secretKey).update(id).digest('base64url')}`,
          mode: Mode.TESTNET,
          chain: request.chain,
          chainId: BigInt(intent.chainId),
          confirmationsRequired: intent.confirmationsRequired,
          amountUnits: request.amountUnits,
          decimals: intent.decimals,
          tokenSymbol: intent.tokenSymbol,
          tokenAddress: intent.tokenAddress,
          expectedWallet: intent.expectedWallet,
          expiresAt: timestampFromDate(intent.expiresAt),
          expiresInMinutes: intent.expiresInMinutes,
          lane: request.lane,
          metadata: request.metadata ?? {},
        });
      },
    }),
});
http2.createServer(handler).listen(port, '127.0.0.1', () => console.log('ready'));
