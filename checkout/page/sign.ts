// A payment by signature (EIP-3009, x402): the wallet signs it, and the service has it sent. The signature is
// remembered until the service has answered: sent again, it still pays only once.

import { fromString, toUUIDBytes } from 'typeid-js';
import { bytesToHex, hexToNumber, hexToString, isHex } from 'viem/utils';
import { authorizationTypes } from '../../src/contract/eip-3009.ts';
import type { PaymentRequirements, RefusalReason } from '../../src/contract/x402.ts';
import { type Checkout, missingUnits } from './checkout.ts';
import type { Failure } from './state.ts';
import { inTime, type Wallet } from './wallets.ts';

/** Longer than the service lets a request wait for the chain. */
const timeoutMs = 35_000;
export const retryMs = 3_000;

/** What was signed. It can only pay this intent. */
export interface Signature {
  /** The header `PAYMENT-SIGNATURE`. */
  header: string;
  /** Milliseconds since 1970. */
  validUntilMs: number;
}

const path = '/v1/checkout/pay';
const keyOf = (intentId: string) => `payment-intents-signature:${intentId}`;

export function rememberedSignature(intentId: string): Signature | undefined {
  try {
    const found = JSON.parse(localStorage.getItem(keyOf(intentId)) ?? 'null');
    return typeof found?.header === 'string' && typeof found.validUntilMs === 'number' ? found : undefined;
  } catch {
    return undefined;
  }
}

/** Throws if this browser stores nothing. */
export function rememberSignature(intentId: string, signature: Signature | undefined): void {
  if (signature === undefined) localStorage.removeItem(keyOf(intentId));
  else localStorage.setItem(keyOf(intentId), JSON.stringify(signature));
}

const post = (secret: string, signature: string) =>
  fetch(path, {
    method: 'POST',
    headers: { Authorization: `Bearer ${secret}`, 'PAYMENT-SIGNATURE': signature },
    cache: 'no-store',
    credentials: 'omit',
    // A payer may close the page at once.
    keepalive: true,
    signal: AbortSignal.timeout(timeoutMs),
  });

/** The service's limits: how long an authorization may be valid, and how long before the intent it ends. */
const maxTimeoutSeconds = 300;
const marginSeconds = 60;

/** x402's payment terms, built here: a browser would log the 402 answer with them as an error. */
async function offerOf(wallet: Wallet, checkout: Checkout, nowMs: number): Promise<PaymentRequirements> {
  const secondsLeft = Math.floor((Date.parse(checkout.expires_at) - nowMs) / 1_000);
  const [name, version] = await Promise.all([
    textOf(wallet, checkout.token_address, nameSelector),
    textOf(wallet, checkout.token_address, versionSelector),
  ]);
  return {
    scheme: 'exact',
    network: `eip155:${checkout.chain_id}`,
    amount: String(missingUnits(checkout)),
    asset: checkout.token_address,
    payTo: checkout.expected_wallet,
    maxTimeoutSeconds: Math.min(maxTimeoutSeconds, secondsLeft - marginSeconds),
    extra: { name, version, assetTransferMethod: 'eip3009' },
  };
}

/** Reads a text from a token by a call without arguments. */
async function textOf(wallet: Wallet, to: string, data: string): Promise<string> {
  const answer = await inTime(wallet.request({ method: 'eth_call', params: [{ to, data }, 'latest'] }));
  if (!isHex(answer)) throw new Error('no text');
  const length = hexToNumber(`0x${answer.slice(2 + 64, 2 + 128)}`);
  return hexToString(`0x${answer.slice(2 + 128, 2 + 128 + 2 * length)}`);
}

/** `name()` and `version()`. */
const nameSelector = '0x06fdde03';
const versionSelector = '0x54fd4d50';

export async function askToSign(wallet: Wallet, account: `0x${string}`, checkout: Checkout, nowMs: number) {
  const offer = await offerOf(wallet, checkout, nowMs);
  const validBefore = Math.floor(nowMs / 1_000) + offer.maxTimeoutSeconds;
  const authorization = {
    from: account,
    to: offer.payTo,
    value: offer.amount,
    validAfter: '0',
    validBefore: String(validBefore),
    nonce: nonceFor(checkout.id),
  };
  const { name, version } = offer.extra;
  const typedData = {
    domain: { name, version, chainId: checkout.chain_id, verifyingContract: offer.asset },
    types: { EIP712Domain: domainType, ...authorizationTypes },
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  };
  const params = [account, JSON.stringify(typedData)];
  const signature = await wallet.request({ method: 'eth_signTypedData_v4', params });
  if (!isHex(signature)) throw new Error('no signature');
  // Some wallets, such as Ledger's, use 0 or 1 as the recovery id; the token's contract takes 27 and 28.
  const normalized = signature.replace(/^(0x.{128})0([01])$/, (_, rs, v) => `${rs}1${v === '0' ? 'b' : 'c'}`);
  const payment = { x402Version: 2, accepted: offer, payload: { signature: normalized, authorization } };
  return { header: btoa(JSON.stringify(payment)), validUntilMs: validBefore * 1_000 };
}

const domainType = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
];

/** The intent's UUID and 16 random bytes, so that the chain shows which intent is paid. */
function nonceFor(intentId: string): string {
  const bytes = new Uint8Array(32);
  bytes.set(toUUIDBytes(fromString(intentId)));
  crypto.getRandomValues(bytes.subarray(16));
  return bytesToHex(bytes);
}

/**
 * Sends a signature until the service gives a final answer. Returns why it cannot pay, or undefined if the
 * checkout shows the outcome: it may have paid, or no facilitator was given it.
 */
export async function sendSignature(
  secret: string,
  { header, validUntilMs }: Signature,
  serverNowMs: () => number,
): Promise<Failure | undefined> {
  for (;;) {
    const response = await post(secret, header).catch(() => undefined);
    const status = response?.status ?? 0;
    if (status === 402) return failureOf(await response?.json().catch(() => undefined));
    // Another payment is on its way, or the intent has ended: the checkout says which.
    if ([200, 202, 409].includes(status)) return undefined;
    if (status >= 400 && status < 500 && status !== 429) return 'sign-refused';
    if (serverNowMs() > validUntilMs) return 'sign-lapsed';
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}

function failureOf(response: { errorReason?: RefusalReason } | undefined): Failure | undefined {
  switch (response?.errorReason) {
    case 'invalid_exact_evm_insufficient_balance':
      return 'sign-too-little';
    case 'invalid_exact_evm_signature':
    case 'invalid_exact_evm_payload_undeployed_smart_wallet':
      return 'sign-contract';
    // Part of the amount has arrived since.
    case 'invalid_exact_evm_authorization_value':
      return 'changed';
    // The wallet took too long.
    case 'invalid_exact_evm_payload_authorization_valid_before':
    case 'authorization_released':
      return 'sign-lapsed';
    // No facilitator was given it: the checkout says so, and offers another try.
    case 'facilitator_unreachable':
      return undefined;
    default:
      return 'sign-refused';
  }
}
