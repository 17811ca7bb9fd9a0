// What only an operator's session may list.

import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Gasless } from '../authorizations/gasless.ts';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { chains } from '../contract/chains.ts';
import { ChainState } from '../contract/gen/console/v1/console_service_pb.ts';
import { WatchedChainEntity, type WatchedChainRow } from '../database/entities/settlement.ts';
import { listApiKeys } from '../merchants/administration.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

const silentMs = 60_000;
const behindBlocks = 100;

/** Whether payments on a chain are seen now. */
export function stateOf(row: WatchedChainRow | undefined): ChainState {
  if (row === undefined) return ChainState.UNWATCHED;
  if ((row.leaseUntil?.getTime() ?? 0) < Date.now()) return ChainState.IDLE;
  if (Date.now() - row.seenAt.getTime() > silentMs) return ChainState.SILENT;
  const isBehind = Number(row.headNumber) - Number(row.cursorNumber) > behindBlocks;
  return isBehind ? ChainState.BEHIND : ChainState.WATCHED;
}

/** What is known of each chain that anybody watches, or has. */
export async function readWatchedChains(em: EntityManager): Promise<ReadonlyMap<number, WatchedChainRow>> {
  const rows = await em.fork().findAll(WatchedChainEntity);
  return new Map(rows.map((row) => [row.chainId, row]));
}

/** `ListChains`: all of them, whether somebody watches them or not. */
export function listChains(
  em: EntityManager,
  chainNodes: readonly ChainNodes[],
  gasless: Pick<Gasless, 'on'>,
): ConsoleMethod<'listChains'> {
  return {
    ratePolicy: 'reads',
    async run() {
      const byId = await readWatchedChains(em);
      return {
        chains: chains.map(({ chainId, rpcVariable }) => {
          const row = byId.get(chainId);
          return {
            chainId: BigInt(chainId),
            rpcVariable,
            nodesCount: chainNodes.find((nodes) => nodes.chainId === chainId)?.urls.length ?? 0,
            hasFacilitator: gasless.on(chainId) !== undefined,
            state: stateOf(row),
            ...(row && {
              readNumber: BigInt(row.cursorNumber),
              readTime: timestampFromDate(row.cursorTime),
              headNumber: BigInt(row.headNumber),
              finalizedNumber: BigInt(row.finalizedNumber),
              seenAt: timestampFromDate(row.seenAt),
            }),
          };
        }),
      };
    },
  };
}

/** `ListApiKeys`: of the merchant that is looked at, in both modes. */
export function listKeys(em: EntityManager): ConsoleMethod<'listApiKeys'> {
  return {
    ratePolicy: 'reads',
    async run(_, caller) {
      const { merchantTypeId } = merchantOf(caller);
      const keys = await listApiKeys(em, merchantTypeId);
      return {
        apiKeys: keys.map(({ keyId: id, mode, hint, status, createdAt: at }) => {
          const createdAt = timestampFromDate(at);
          return { id, mode, hint, status, createdAt };
        }),
      };
    },
  };
}
