// EIP-3009: a transfer that the owner of the money signs and anybody may submit.

import { randomBytes } from 'node:crypto';
import {
  type Address,
  bytesToHex,
  encodeFunctionData,
  type Hex,
  maxUint256,
  parseAbi,
  parseSignature,
} from 'viem';
import type { LocalAccount } from 'viem/accounts';

export interface Authorization {
  from: LocalAccount;
  to: Address;
  amountUnits: bigint;
  token: Address;
  /** Of the token, as its EIP-712 domain has it. */
  tokenName: string;
  chainId: number;
}

const transferAuthorizationAbi = parseAbi([
  'function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)',
]);

/** Returns the calldata of `transferWithAuthorization`, signed by the owner of the money. */
export async function transferWithAuthorizationCalldata(authorization: Authorization): Promise<Hex> {
  const { from, to, amountUnits: value, token: verifyingContract, tokenName: name, chainId } = authorization;
  const message = {
    from: from.address,
    to,
    value,
    validAfter: 0n,
    validBefore: maxUint256,
    nonce: bytesToHex(randomBytes(32)),
  };
  const signature = await from.signTypedData({
    domain: { name, version: '2', chainId, verifyingContract },
    types: {
      TransferWithAuthorization: [
        { name: 'from', type: 'address' },
        { name: 'to', type: 'address' },
        { name: 'value', type: 'uint256' },
        { name: 'validAfter', type: 'uint256' },
        { name: 'validBefore', type: 'uint256' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'TransferWithAuthorization',
    message,
  });
  const { r, s, yParity } = parseSignature(signature);
  return encodeFunctionData({
    abi: transferAuthorizationAbi,
    functionName: 'transferWithAuthorization',
    args: [message.from, to, value, 0n, maxUint256, message.nonce, 27 + yParity, r, s],
  });
}
