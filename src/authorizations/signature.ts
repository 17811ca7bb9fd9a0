// Finds out who signed, as far as keys can tell. In WebAssembly, because JavaScript needs 2 ms of CPU time.
// Loaded only if payers can pay by a signature.

import { keccak256 } from 'ox/Hash';
import { concat, type Hex } from 'ox/Hex';
import { domainSeparator, hashStruct } from 'ox/TypedData';
import { recover } from 'tiny-secp256k1';
import type { Network } from '../contract/chains.ts';
import { authorizationTypes } from '../contract/eip-3009.ts';
import type { SignedPayment } from '../contract/x402.ts';
import { type PaymentRefusal, refused, type TokenDomain } from './offer.ts';

/** Bytes of the signature of an account without code. */
const ownKeyBytes = 65;
/** An ERC-6492 signature ends with this. It is of an account that is not deployed yet. */
const erc6492Suffix = '6492'.repeat(16);

/** What a signature proves. `owner`: the key of `from` made it. `unknown`: only code at `from` can tell. */
type Proof = 'owner' | 'unknown' | PaymentRefusal;

/** Returns a function that checks a payment's signature. The token's part of the hash is computed once. */
export function createProof(
  { chainId, tokenAddress }: Network,
  domain: TokenDomain,
): (payment: SignedPayment) => Proof {
  const separator = domainSeparator({ ...domain, chainId, verifyingContract: tokenAddress });
  return (payment) => proofOf(payment, separator);
}

function proofOf(payment: SignedPayment, separator: Hex): Proof {
  const { signature, from, to, value, validAfter, validBefore, nonce } = payment;
  if (signature.endsWith(erc6492Suffix)) {
    return refused(
      'invalid_exact_evm_payload_undeployed_smart_wallet',
      'Wrapped signatures (ERC-6492) are not accepted. If the account is not deployed yet, deploy it first. Then sign without the wrapper.',
    );
  }
  const bytes = Buffer.from(signature.slice(2), 'hex');
  if (bytes.length !== ownKeyBytes) return 'unknown';
  const struct = hashStruct({
    types: authorizationTypes as never,
    primaryType: 'TransferWithAuthorization',
    data: { from, to, value, validAfter, validBefore, nonce },
  });
  const hash = keccak256(concat('0x1901', separator, struct), { as: 'Bytes' });
  return addressThatSigned(hash, bytes) === from ? 'owner' : 'unknown';
}

/** Undefined if the signature is invalid. */
function addressThatSigned(hash: Uint8Array, signature: Uint8Array): string | undefined {
  // Circle's contract takes 27 and 28 only.
  const recoveryId = (signature[ownKeyBytes - 1] ?? 0) - 27;
  if (recoveryId !== 0 && recoveryId !== 1) return undefined;
  try {
    const key = recover(hash, signature.subarray(0, ownKeyBytes - 1), recoveryId, false);
    return key === null ? undefined : `0x${keccak256(key.subarray(1), { as: 'Hex' }).slice(-40)}`;
  } catch {
    return undefined;
  }
}
