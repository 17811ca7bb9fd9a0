import type { ApiResource } from './api-resource.ts';
import type { Chain, Label, TransferStatus, Unknown } from './enums.ts';

/** What is known of a transfer on the chain, whether or not it is the payment of an intent. */
export interface AnyTransfer extends ApiResource {
  /** The transaction that holds the transfer. */
  transactionHash: string;
  /** Place of the transfer among the logs of its block. */
  logIndex: number;
  /** The block that holds the transaction. */
  blockNumber: number;
  /** Hash of that block. */
  blockHash: string;
  /** Time of that block. */
  blockTime: Date;
  /** The wallet that the money came from, as an EIP-55 checksummed address. */
  fromAddress: string;
  /** The wallet that the money went to. */
  toAddress: string;
  /** Contract of the token that was transferred. */
  tokenAddress: string;
  /** Amount of the transfer, in the token's smallest unit. */
  amountUnits: bigint;
  /** Blocks since the transfer, its own being the first. Counting stops at those that its chain requires. */
  confirmations: number;
  /** Facts about the transfer, such as `late`: the words of an intent's labels. */
  labels: Label[];
}

/** A transfer to a wallet of yours on a chain that is watched. */
export interface Transfer extends AnyTransfer {
  /** Identifier of the transfer, such as `tr_01m7z1r8vdfm4t2x6h9k3c5e7g`. It stays if the chain reorganises. */
  id: string;
  /** Chain of the transfer. Chains will be added: see {@link Unknown}. */
  chain: Chain | Unknown;
  /** Whether the transfer belongs to an intent. A value newer than this client is an {@link Unknown}. */
  status: TransferStatus | Unknown;
  /** Id of the intent that it belongs to. Undefined for an unattributed transfer. */
  paymentIntent: string | undefined;
}

/** Which transfers to list. Without a filter: all of them. */
export interface ListTransfers {
  /** Only transfers with this status. */
  status?: TransferStatus | undefined;
  /** Transfers in one answer, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
}

/** Whose payment a transfer is. */
export interface AttributeTransfer {
  /** Id of the intent: one of the same mode, chain and wallet. */
  paymentIntent: string;
  /** Attribute it although the intent has ended or has its amount already. Default: false. */
  allowEnded?: boolean | undefined;
}
