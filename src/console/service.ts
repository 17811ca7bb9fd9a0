import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Gasless } from '../authorizations/gasless.ts';
import type { KeyRing } from '../config/key-ring.ts';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { ConsoleService } from '../contract/gen/console/v1/console_service_pb.ts';
import { MerchantEntity } from '../database/entities/merchant.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { listApiKeys } from '../merchants/administration.ts';
import { type ImplementedService, implementService, type MethodsOf } from '../requests/method.ts';
import { listAttention, resolveAttention } from './attention.ts';
import { findTransaction, listChains } from './console-chains.ts';
import { createExport } from './export-payments.ts';
import { getTimeline } from './get-timeline.ts';
import { findRefundTransfers } from './plain-refunds.ts';
import { getSummary } from './reports.ts';
import { type ConsoleCaller, type ConsoleMethod, merchantOf } from './rights.ts';
import { revokeSession } from './sessions.ts';

/** `console.v1.ConsoleService`: what the console shows besides what the API has. `chainNodes` may grow. */
export function createConsoleService(
  em: EntityManager,
  chainNodes: readonly ChainNodes[],
  gasless: Pick<Gasless, 'on'>,
  peppers: KeyRing,
): ImplementedService<ConsoleCaller> {
  const methods = {
    getSummary: getSummary(em),
    createExport: createExport(em, peppers),
    listAttention: listAttention(em),
    resolveAttention: resolveAttention(em),
    getTimeline: getTimeline(em),
    listChains: listChains(em, chainNodes, gasless),
    listApiKeys: listKeys(em),
    listMerchants: listMerchants(em),
    findTransaction: findTransaction(em, chainNodes),
    findRefundTransfers: findRefundTransfers(em),
    endSession: endSession(em),
  } satisfies { [Name in keyof (typeof ConsoleService)['method']]: ConsoleMethod<Name> };
  return implementService(ConsoleService, methods as MethodsOf<typeof ConsoleService, ConsoleCaller>);
}

const maxMerchants = 1_000;

function listMerchants(em: EntityManager): ConsoleMethod<'listMerchants'> {
  return {
    ratePolicy: 'reads',
    async run(_, { session: { merchant } }) {
      const merchants = await em.fork().find(MerchantEntity, merchant ? { id: merchant.id } : {}, {
        orderBy: { id: 'desc' },
        limit: maxMerchants,
      });
      return { merchants: merchants.map(({ id, name }) => ({ id: formatIdentifier('mer', id), name })) };
    },
  };
}

/** `EndSession`: as `revokeSession` does for an operator. */
function endSession(em: EntityManager): ConsoleMethod<'endSession'> {
  return {
    ratePolicy: 'changes',
    async run(_, { session: { typeId } }) {
      await revokeSession(em, typeId);
      return {};
    },
  };
}

/** `ListApiKeys`: of the merchant that is looked at, in both modes. */
function listKeys(em: EntityManager): ConsoleMethod<'listApiKeys'> {
  return {
    ratePolicy: 'reads',
    async run(_, caller) {
      const { merchantTypeId } = merchantOf(caller);
      const keys = await listApiKeys(em, merchantTypeId);
      return {
        apiKeys: keys.map((key) => ({ ...key, id: key.keyId, createdAt: timestampFromDate(key.createdAt) })),
      };
    },
  };
}
