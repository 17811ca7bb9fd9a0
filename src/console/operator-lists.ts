// What only an operator's session may list.

import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type ChainSettings, chains } from '../contract/chains.ts';
import {
  ApiKeySchema,
  ChainSchema,
  type ListApiKeysRequest,
  type ListApiKeysResponse,
  ListApiKeysResponseSchema,
  type ListChainsRequest,
  type ListChainsResponse,
  ListChainsResponseSchema,
} from '../contract/gen/console/v1/console_service_pb.ts';
import { WatchedChainEntity } from '../database/entities/settlement.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { listApiKeys } from '../merchants/administration.ts';
import type { Method } from '../requests/method.ts';
import { type ConsoleCaller, merchantOf } from './rights.ts';

/** What this process is configured with for a chain. */
export type DescribeChain = (chain: ChainSettings) => { nodesCount: number; hasFacilitator: boolean };

/** `ListChains`: all of them, whether somebody watches them or not. */
export function listChains(
  em: EntityManager,
  describe: DescribeChain,
): Method<ListChainsRequest, ListChainsResponse, ConsoleCaller> {
  return {
    ratePolicy: 'reads',
    async run() {
      const rows = await orUnavailable(() => em.fork().findAll(WatchedChainEntity));
      const byId = new Map(rows.map((row) => [row.chainId, row]));
      return create(ListChainsResponseSchema, {
        chains: chains.map((settings) => {
          const row = byId.get(settings.chainId);
          const about = { chainId: BigInt(settings.chainId), rpcVariable: settings.rpcVariable };
          const known = { ...about, ...describe(settings), isWatched: row !== undefined };
          if (row === undefined) return create(ChainSchema, known);
          return create(ChainSchema, {
            ...known,
            readNumber: BigInt(row.cursorNumber),
            readTime: timestampFromDate(row.cursorTime),
            headNumber: BigInt(row.headNumber),
            finalizedNumber: BigInt(row.finalizedNumber),
            seenAt: timestampFromDate(row.seenAt),
            isIdle: row.leaseUntil == null || row.leaseUntil.getTime() < Date.now(),
          });
        }),
      });
    },
  };
}

/** `ListApiKeys`: of the merchant that is looked at, in both modes. */
export function listKeys(em: EntityManager): Method<ListApiKeysRequest, ListApiKeysResponse, ConsoleCaller> {
  return {
    ratePolicy: 'reads',
    async run(_, caller) {
      const { merchantTypeId } = merchantOf(caller);
      const keys = await orUnavailable(() => listApiKeys(em, merchantTypeId));
      return create(ListApiKeysResponseSchema, {
        apiKeys: keys.map(({ keyId, mode, hint, status, createdAt }) =>
          create(ApiKeySchema, { id: keyId, mode, hint, status, createdAt: timestampFromDate(createdAt) }),
        ),
      });
    },
  };
}
