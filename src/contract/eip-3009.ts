// EIP-3009, as Circle's contract of USDC (FiatTokenV2_2, github.com/circlefin/stablecoin-evm) has it: a payer signs a
// transfer, and anybody may send it.

/** `AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)`: the log before that of its transfer. */
export const authorizationUsedTopic = '0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5';

/** `transferWithAuthorization` and `receiveWithAuthorization`, each with `v, r, s` and with the bytes of a signature. */
export const authorizationSelectors = ['e3ee160e', 'cf092995', 'ef55bec6', '88b7ab63'];

/** `transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)`. */
export const transferWithAuthorization = '0xcf092995';
/** `authorizationState(address,bytes32)`. */
export const authorizationState = '0xe94a0102';

export const authorizationTypes = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const;

/** The 16 bytes of an intent's UUID, which is of version 7, and 16 others. */
const nonceOfIntent = /^0x(.{8})(.{4})(7.{3})([89ab].{3})(.{12})/i;

/** The UUID that a nonce begins with, where the checkout puts that of the intent; undefined if there is none. */
export function uuidInNonce(nonce: string): string | undefined {
  const parts = nonceOfIntent.exec(nonce);
  return parts === null ? undefined : parts.slice(1).join('-').toLowerCase();
}
