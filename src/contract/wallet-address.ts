import { checksum, validate } from 'ox/Address';
import { tokenContractAddresses } from './chains.ts';

/** A wallet's address with its EIP-55 checksum. */
export type WalletAddress = `0x${string}`;

/**
 * Addresses up to here are not wallets on any supported chain: the zero address, Ethereum's precompiled
 * contracts (from 0x01), P256VERIFY (0x100, RIP-7212) and Polygon's system contracts (0x1000 to 0x1010).
 */
const lastReservedAddress = 0xffffn;

/**
 * Parses a payout wallet: `0x` and 40 hexadecimal digits, all lower case, all upper case, or with a valid
 * EIP-55 checksum. Returns it with its checksum, or the problem in words that follow the field's name.
 */
export function parseWalletAddress(text: string): { address: WalletAddress } | { problem: string } {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text)) {
    return { problem: 'must be an address: 0x followed by 40 hexadecimal digits' };
  }
  const digits = text.slice(2);
  const lowerCase = `0x${digits.toLowerCase()}` as const;
  const isMixedCase = digits !== digits.toLowerCase() && digits !== digits.toUpperCase();
  // Check before checksumming, which silently corrects a wrong checksum.
  if (isMixedCase && !validate(text)) {
    return { problem: 'has a wrong EIP-55 checksum: a digit or a letter case was changed on the way' };
  }
  if (BigInt(lowerCase) <= lastReservedAddress) {
    return { problem: 'must be a wallet: this is the zero address or a contract built into the chain' };
  }
  if (tokenContractAddresses.has(lowerCase)) {
    return { problem: 'must be a wallet: this is a USDC token contract, and tokens sent to it are lost' };
  }
  return { address: checksum(lowerCase) };
}
