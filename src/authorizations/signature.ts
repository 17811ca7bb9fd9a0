// Whose signature it is, as far as keys can tell. WebAssembly, because the same in JavaScript takes 2 ms of a processor.
// Loaded only where payers can pay by a signature.

import { keccak256 } from 'ox/Hash';
import { getSignPayload } from 'ox/TypedData';
import { recover } from 'tiny-secp256k1';
import type { Network } from '../contract/chains.ts';
import { authorizationTypes } from '../contract/eip-3009.ts';
import type { SignedPayment } from '../contract/x402.ts';
import { type PaymentRefusal, refused, type TokenDomain } from './offer.ts';

/** Bytes of the signature of an account without code. */
const ownKeyBytes = 65;
/** ERC-6492 ends with this: the signature of an account that is not deployed yet. */
const erc6492Suffix = '6492'.repeat(16);

/** What a signature proves by itself: `owner` if the key of `from` made it; `unknown` if only code at `from` can tell. */
export type Proof = 'owner' | 'unknown' | PaymentRefusal;

export function proofOf(payment: SignedPayment, network: Network, domain: TokenDomain): Proof {
  const { signature, from, to, value, validAfter, validBefore, nonce } = payment;
  if (signature.endsWith(erc6492Suffix)) {
    return refused(
      'invalid_exact_evm_signature',
      'Signatures of accounts that are not deployed (ERC-6492) are not taken. Deploy the account first.',
    );
  }
  const bytes = Buffer.from(signature.slice(2), 'hex');
  if (bytes.length !== ownKeyBytes) return 'unknown';
  const payload = getSignPayload({
    domain: { ...domain, chainId: network.chainId, verifyingContract: network.tokenAddress },
    types: authorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message: { from, to, value, validAfter, validBefore, nonce },
  });
  return addressThatSigned(Buffer.from(payload.slice(2), 'hex'), bytes) === from ? 'owner' : 'unknown';
}

/** Undefined if it is no signature. */
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
