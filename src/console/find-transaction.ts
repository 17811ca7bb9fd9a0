// Why the merchant has no transfer of a transaction, by what the nodes of the watched chains say now.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Hash } from 'viem';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { TransactionFinding } from '../contract/gen/console/v1/console_service_pb.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { byteaOf } from '../requests/filters.ts';
import { createMinuteLimit } from '../requests/minute-limit.ts';
import { Node } from '../settlement/node.ts';
import { type PlainLog, type Receipt, transferTopic } from '../settlement/node-answers.ts';
import { readWatchedChains } from './operator-lists.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

/** A transaction may move anything to anybody: of the first so many wallets it is asked whose they are. */
const maxWallets = 1_000;
const timeoutMs = 5_000;

/** What a chain's nodes have answered. */
interface Answer {
  nodes: ChainNodes;
  isSilent: boolean;
  /** Undefined if no block has the transaction. */
  receipt?: Receipt | undefined;
}

/** `FindTransaction`. `chainNodes` may grow. */
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
    const row = (await readWatchedChains(em)).get(chainId);
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
      takeFromLimit(caller.session.typeId);
      const hash = request.transactionHash.toLowerCase() as Hash;
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
      // The next one may.
    }
  }
  return { nodes, isSilent: true };
}

const isTransfer = ({ topics }: PlainLog) => topics.length === 3 && topics[0] === transferTopic;
const addressOf = (topic = '') => `0x${topic.slice(-40)}`;

/** Those of the wallets that the merchant is paid at, or was asked to be paid at. */
const findOwn = preparedStatement(
  'find_own_wallets',
  `select '0x' || encode(w.wallet, 'hex') as wallet
     from unnest($1::bytea[]) as w (wallet)
    where (select true from payment_intents i where i.expected_wallet = w.wallet and i.merchant_id = $2 limit 1)
       or (select true from payout_wallets p
            where p.merchant_id = $2 and lower(p.address) = '0x' || encode(w.wallet, 'hex') limit 1)`,
);
