import { type Address, concatHex, encodeFunctionData, erc20Abi, type Hex, parseAbi } from 'viem';
import type { Network } from '../contract/chains.ts';
import type { ChainClient } from './chain-client.ts';

// Anvil's default accounts. Their keys are public, and anvil holds them. Each account has 10,000 ETH.
/** Holds the money to pay with. */
export const payerAddress: Address = '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266';
/** Has Circle's roles on this chain, and pays the fees of signed payments. */
export const issuerAddress: Address = '0x70997970C51812dc3A010C7d01b50e0d17dc79C8';
/** Deploys the contracts. */
export const deployerAddress: Address = '0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC';

interface Payment {
  to: Address;
  amountUnits: bigint;
  /** Bytes after the arguments of `transfer`, such as an intent's id. */
  suffix?: Hex | undefined;
}

/** An account with test money. Both methods return the hash of a transaction that waits for a block. */
export function createPayer(client: ChainClient, { tokenAddress: to }: Network) {
  async function send(account: Address, data: Hex): Promise<Hex> {
    const gas = await client.estimateGas({ account, to, data });
    return client.sendTransaction({ account, to, data, gas, chain: null });
  }
  return {
    address: payerAddress,
    /** Throws, with the token's reason, if the token refuses the transfer. */
    pay({ to: wallet, amountUnits, suffix = '0x' }: Payment) {
      const args = [wallet, amountUnits] as const;
      const call = encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args });
      return send(payerAddress, concatHex([call, suffix]));
    },
    /** Mints USDC for an address. */
    mint: (to: Address, amountUnits: bigint) => send(issuerAddress, mintCall(to, amountUnits)),
  };
}

export function mintCall(to: Address, amountUnits: bigint): Hex {
  const abi = parseAbi(['function mint(address to, uint256 amount) returns (bool)']);
  return encodeFunctionData({ abi, functionName: 'mint', args: [to, amountUnits] });
}
