// The state of the chains: how far they are read, and where a transaction is.

import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Hash } from 'viem';
import type { Gasless } from '../authorizations/gasless.ts';
import type { ChainNodes } from '../config/config.ts';
import { blocksIn, type ChainSettings, chains } from '../contract/chains.ts';
import {
  AttentionKind,
  ChainState,
  TransactionFinding,
} from '../contract/gen/console/v1/console_service_pb.ts';
import type { ModeName } from '../contract/words.ts';
import { PayoutWalletEntity } from '../database/entities/merchant.ts';
import { networkChains } from '../database/entities/network.ts';
import { WatchedChainEntity, type WatchedChainRow } from '../database/entities/settlement.ts';
import { formatIdentifier, idViolations, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { readClockAheadMs } from '../database/replication.ts';
import { byteaOf } from '../requests/filters.ts';
import { createMinuteLimit } from '../requests/minute-limit.ts';
import { clockAllowanceMs } from '../settlement/ledger/known-transfers.ts';
import { Node } from '../settlement/node.ts';
import { type PlainLog, type Receipt, transferTopic } from '../settlement/node-answers.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

const silentMs = 60_000;
const behindMs = 200_000;

/** Whether payments on a chain are seen now, by the database's clock, which is `aheadMs` behind this one. */
function stateOf(row: WatchedChainRow | undefined, settings: ChainSettings, aheadMs: number): ChainState {
  if (row === undefined) return ChainState.UNWATCHED;
  const nowMs = Date.now() - aheadMs;
  if ((row.leaseUntil?.getTime() ?? 0) < nowMs) return ChainState.IDLE;
  if (nowMs - row.seenAt.getTime() > silentMs) return ChainState.SILENT;
  const isBehind = Number(row.headNumber) - Number(row.cursorNumber) > blocksIn(settings, behindMs);
  return isBehind ? ChainState.BEHIND : ChainState.WATCHED;
}

/** Reads the state of all chains, with the rows of those that are or were watched. */
async function readChains(em: EntityManager) {
  const [rows, aheadMs] = await Promise.all([em.fork().findAll(WatchedChainEntity), readClockAheadMs(em)]);
  return chains.map((settings) => {
    const row = rows.find(({ chainId }) => chainId === settings.chainId);
    return { settings, row, state: stateOf(row, settings, aheadMs) };
  });
}

/** `ListChains`: all chains, watched or not. */
export function listChains(
  em: EntityManager,
  chainNodes: readonly ChainNodes[],
  gasless: Pick<Gasless, 'on'>,
): ConsoleMethod<'listChains'> {
  return {
    ratePolicy: 'reads',
    async run() {
      const found = await readChains(em);
      return {
        chains: found.map(({ settings: { chainId, rpcVariable, networks }, row, state }) => ({
          chainId: BigInt(chainId),
          rpcVariable,
          nodesCount: chainNodes.find((nodes) => nodes.chainId === chainId)?.urls.length ?? 0,
          hasFacilitator: networks.some(({ id }) => gasless.on(id)),
          state,
          ...(row && {
            readNumber: BigInt(row.cursorNumber),
            readTime: timestampFromDate(row.cursorTime),
            headNumber: BigInt(row.headNumber),
            finalizedNumber: BigInt(row.finalizedNumber),
            seenAt: timestampFromDate(row.seenAt),
          }),
        })),
      };
    },
  };
}

/**
 * The chains of a mode whose payments are not seen. On testnet a chain may be unwatched. A merchant gets only
 * chains of its wallets, and no unwatched ones: these take no new intents.
 */
export async function chainItems(em: EntityManager, mode: ModeName, merchantId: string | undefined) {
  const found = await readChains(em);
  const wallets =
    merchantId && (await em.fork().findAll(PayoutWalletEntity, { where: { merchantId, mode } }));
  return found.flatMap(({ settings: chain, row, state }) => {
    const mayBeUnwatched = mode === 'testnet' || wallets;
    const isHealthy = state === ChainState.WATCHED || (state === ChainState.UNWATCHED && mayBeUnwatched);
    if (chain.mode !== mode || isHealthy) return [];
    if (wallets && !wallets.some((wallet) => wallet.chain === chain.chain)) return [];
    return {
      id: `chain:${chain.chainId}`,
      kind: AttentionKind.CHAIN,
      chainId: BigInt(chain.chainId),
      chainState: state,
      ...(row && { at: timestampFromDate(row.seenAt) }),
    };
  });
}

/** A transaction may move any token to anybody. Only this many of its wallets are looked up. */
const maxWallets = 1_000;
const timeoutMs = 5_000;

/** What a chain's nodes have answered. */
interface Answer {
  nodes: ChainNodes;
  isSilent: boolean;
  /** Undefined if no block has the transaction. */
  receipt?: Receipt | undefined;
}

/** `FindTransaction`: asks the nodes why a transaction is not among the transfers. `chainNodes` may grow. */
export function findTransaction(
  em: EntityManager,
  chainNodes: readonly ChainNodes[],
): ConsoleMethod<'findTransaction'> {
  const { read } = createPreparedStatements(em);
  const takeFromLimit = createMinuteLimit('Too many transactions were asked for within a minute.');
  const findingOf = async (
    { chainId, mode, tokens }: ChainNodes,
    receipt: Receipt,
    { merchantId, mode: wantedMode }: ReturnType<typeof merchantOf>,
  ) => {
    const row = await em.fork().findOne(WatchedChainEntity, { chainId });
    const transfers = receipt.logs.filter(isTransfer);
    const wallets = new Set(transfers.flatMap(({ topics }) => topics.slice(1).map(addressOf)));
    const asked = [[...wallets].slice(0, maxWallets).map(byteaOf), merchantId];
    const { rows } = await read(merchantId, findOwn, asked);
    const own = new Set(rows.map(({ wallet }) => wallet));
    const incoming = transfers.filter(({ topics }) => own.has(addressOf(topics[2])));
    const readNumber = Number(row?.cursorNumber ?? 0);
    const finding = () => {
      if (mode !== wantedMode) return TransactionFinding.OTHER_MODE;
      if (transfers.length === 0) return TransactionFinding.NO_TRANSFER;
      if (incoming.length === 0)
        return own.size > 0 ? TransactionFinding.OUTGOING : TransactionFinding.OTHER_WALLET;
      if (!incoming.some(({ address }) => tokens.includes(address))) return TransactionFinding.OTHER_TOKEN;
      return receipt.blockNumber > readNumber ? TransactionFinding.NOT_READ : TransactionFinding.TOO_LITTLE;
    };
    return {
      finding: finding(),
      chainId: BigInt(chainId),
      blockNumber: BigInt(receipt.blockNumber),
      readNumber: BigInt(readNumber),
    };
  };

  return {
    ratePolicy: 'reads',
    violations: ({ transactionHash }) =>
      /^0x[0-9a-f]{64}$/i.test(transactionHash)
        ? []
        : [{ field: 'transaction_hash', message: 'must be 0x and 64 hexadecimal digits' }],
    async run(request, caller) {
      const merchant = merchantOf(caller);
      const hash = request.transactionHash.toLowerCase() as Hash;
      const { merchantId, mode } = merchant;
      const [refunded] = (await read(merchantId, findRefunded, [byteaOf(hash), merchantId, mode])).rows;
      if (refunded !== undefined) {
        const paymentIntent = formatIdentifier('pi', refunded.intent);
        return { finding: TransactionFinding.OUTGOING, paymentIntent };
      }
      takeFromLimit(caller.session.typeId);
      const answers = await Promise.all(chainNodes.map((nodes) => ask(nodes, hash)));
      const idsOf = (some: readonly Answer[]) => some.map(({ nodes }) => BigInt(nodes.chainId));
      const found = answers.find(({ receipt }) => receipt !== undefined);
      return {
        askedChainIds: idsOf(answers.filter(({ isSilent }) => !isSilent)),
        silentChainIds: idsOf(answers.filter(({ isSilent }) => isSilent)),
        ...(found?.receipt === undefined
          ? { finding: TransactionFinding.NOT_FOUND }
          : await findingOf(found.nodes, found.receipt, merchant)),
      };
    },
  };
}

/** Asks a chain's nodes, one after the other until one answers. */
async function ask(nodes: ChainNodes, hash: Hash): Promise<Answer> {
  const { chainId, tokens, urls } = nodes;
  for (const url of urls) {
    const node = new Node({ url, chainId, tokens, timeoutMs });
    try {
      return { nodes, isSilent: false, receipt: await node.receiptOf(hash) };
    } catch {
      // The next one may answer.
    }
  }
  return { nodes, isSilent: true };
}

const isTransfer = ({ topics }: PlainLog) => topics.length === 3 && topics[0] === transferTopic;
const addressOf = (topic = '') => `0x${topic.slice(-40)}`;

/** Those of the wallets that the merchant is paid at, or that one of its intents names. */
const findOwn = preparedStatement(
  'find_own_wallets',
  `select '0x' || encode(w.wallet, 'hex') as wallet
     from unnest($1::bytea[]) as w (wallet)
    where (select true from payment_intents i where i.expected_wallet = w.wallet and i.merchant_id = $2 limit 1)
       or (select true from payout_wallets p
            where p.merchant_id = $2 and lower(p.address) = '0x' || encode(w.wallet, 'hex') limit 1)`,
);

/** `FindRefundTransfers`: at most ten, newest first. */
export function findRefundTransfers(em: EntityManager): ConsoleMethod<'findRefundTransfers'> {
  const { read } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    violations: ({ refund }) => idViolations({ refund: [refund, 'rf'] }),
    async run(request, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const values = [parseIdentifier('rf', request.refund), merchantId, mode];
      const { rows } = await read(merchantId, findOfRefund, values);
      return { transactionHashes: rows.map(({ hash }) => hash) };
    },
  };
}

/**
 * Matches transfers since the first refund of this amount to this destination was prepared: it may have been
 * sent and then canceled. The clocks of two machines may differ.
 */
const looksLikeRefundTransfer = `t.merchant_id = r.merchant_id and t.is_refund and t.refund is null and t.state <> 'reorged'
    and t.to_address = r.destination and t.from_address = r.wallet and t.amount_units = r.amount_units
    and t.created_at >= (select min(o.created_at) - interval '${clockAllowanceMs} milliseconds' from refunds o where o.payment_intent = r.payment_intent
                            and o.destination = r.destination and o.amount_units = r.amount_units)
    and n.id = r.network and n.chain_id = t.chain_id`;
const findOfRefund = preparedStatement(
  'find_plain_transfers_of_refund',
  `select '0x' || encode(t.transaction_hash, 'hex') as hash
     from refunds r cross join transfers t join ${networkChains} on ${looksLikeRefundTransfer}
    where r.id = $1 and r.merchant_id = $2 and r.mode = $3 and r.status = 'requires_transfer'
    order by t.id desc limit 10`,
);
/** The intent whose refund a transaction has made, or seems to have made. */
const findRefunded = preparedStatement(
  'find_refunded_intent',
  `(select r.payment_intent as intent from transfers t join refunds r on r.id = t.refund
     where t.transaction_hash = $1 and r.merchant_id = $2 and r.mode = $3 limit 1)
   union all
   (select r.payment_intent
      from (select * from transfers where transaction_hash = $1 and merchant_id = $2 limit 100) t
     cross join lateral (
       select * from refunds r where r.merchant_id = $2 and r.mode = $3 and r.status = 'requires_transfer'
     ) r
     join ${networkChains} on ${looksLikeRefundTransfer}
     limit 1)
   limit 1`,
);
