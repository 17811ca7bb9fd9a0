import { BaseError, type Hex, HttpRequestError, stringToHex } from 'viem';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName } from '../contract/words.ts';
import { findLocalChain } from './local-chain.ts';

interface TestPayment {
  chain: ChainName;
  wallet: WalletAddress;
  amountUnits: bigint;
  /** The public id of the intent or refund. Without it, the payment is like that of a payer who only knows the address. */
  id: string | undefined;
}

/** The token refused the transfer, for the reason in the message. */
export class TransferRefused extends Error {}

/**
 * Pays on the local chain that runs on this data folder. Returns the hash of a pending transaction, or undefined if no
 * such chain runs or answers. Throws TransferRefused.
 */
export async function payIntent(
  dataDir: string,
  { chain, wallet, amountUnits, id }: TestPayment,
): Promise<Hex | undefined> {
  const local = await findLocalChain(dataDir, chain);
  return local?.payer
    .pay({ to: wallet, amountUnits, suffix: id === undefined ? undefined : stringToHex(id) })
    .catch((cause) => {
      if (isUnanswered(cause)) return undefined;
      throw new TransferRefused(reasonOf(cause), { cause });
    });
}

/** True if the node could not be reached: it may be restarting. */
function isUnanswered(cause: unknown): boolean {
  return cause instanceof BaseError && cause.walk((error) => error instanceof HttpRequestError) !== null;
}

function reasonOf(cause: unknown): string {
  const { shortMessage, message } = cause as { shortMessage?: string; message?: string };
  return (shortMessage ?? message ?? String(cause)).split('\n')[0] ?? '';
}
