// EIP-3009, as in Circle's contract of USDC (FiatTokenV2_2, github.com/circlefin/stablecoin-evm): a payer
// signs a transfer, and anybody may send it.

/** `AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)`: the log before the transfer's. */
export const authorizationUsedTopic = '0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5';

/** `transferWithAuthorization`, `receiveWithAuthorization`, each in its `v, r, s` and its `bytes` form. */
export const authorizationSelectors = ['e3ee160e', 'cf092995', 'ef55bec6', '88b7ab63'];

/** `transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)`. */
export const transferWithAuthorization = '0xcf092995';
/** `authorizationState(address,bytes32)`. */
export const authorizationState = '0xe94a0102';

/** `name()` and `version()`, of the domain of its signatures. */
export const nameSelector = '0x06fdde03';
export const versionSelector = '0x54fd4d50';

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

/** The 16 bytes of an intent's UUIDv7, then 16 others. */
const nonceOfIntent = /^0x(.{8})(.{4})(7.{3})([89ab].{3})(.{12})/i;

/** Returns the UUID at the start of a nonce, where the checkout puts the intent's; undefined without one. */
export function uuidInNonce(nonce: string): string | undefined {
  const parts = nonceOfIntent.exec(nonce);
  return parts === null ? undefined : parts.slice(1).join('-').toLowerCase();
}
