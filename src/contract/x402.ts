// x402, version 2, over HTTP, with the scheme `exact` and EIP-3009: the request for a payment, and the
// client's answer. Source: specs/x402-specification-v2.md, transports-v2/http.md and
// schemes/exact/scheme_exact_evm.md of github.com/x402-foundation/x402.

import type { FieldViolation } from './error-catalogue.ts';

export const x402Version = 2;

export const maxTimeoutSeconds = 300;
/** How long a payment may be valid: it ends a minute before its intent. */
export const timeoutSeconds = (expiresAtMs: number, nowMs: number): number =>
  Math.min(maxTimeoutSeconds, Math.floor((expiresAtMs - nowMs) / 1_000) - 60);
/** An intent that expires sooner is no longer offered: signing, sending and landing would take too long. */
export const lastOfferMs = 120_000;

/** A way to pay. */
export interface PaymentRequirements {
  scheme: string;
  /** CAIP-2, such as `eip155:8453`. */
  network: string;
  /** In the token's smallest unit. */
  amount: string;
  asset: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Readonly<Record<string, unknown>>;
}

/** A signed EIP-3009 authorization and the way to pay it accepts. Its addresses and nonce are lower case. */
export interface SignedPayment {
  readonly accepted: PaymentRequirements;
  readonly signature: `0x${string}`;
  readonly from: `0x${string}`;
  readonly to: `0x${string}`;
  readonly value: bigint;
  /** In seconds since 1970. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: `0x${string}`;
}

/** The answer with status 402, in its header and its body. */
export interface PaymentRequired {
  x402Version: number;
  error: string;
  resource: { url: string; description: string; mimeType: string };
  accepts: readonly PaymentRequirements[];
}

/** Why a payment is refused: x402's words, and ours if it has none. */
export const refusalReasons = [
  ...(['invalid_scheme', 'invalid_network', 'invalid_payment_requirements'] as const),
  ...(['invalid_exact_evm_recipient_mismatch', 'invalid_exact_evm_token_name_mismatch'] as const),
  ...(['invalid_exact_evm_payload_authorization_value_mismatch', 'invalid_exact_evm_signature'] as const),
  ...(['invalid_exact_evm_authorization_value', 'invalid_exact_evm_insufficient_balance'] as const),
  ...(['invalid_exact_evm_payload_authorization_valid_after', 'invalid_exact_evm_account_blocked'] as const),
  ...(['invalid_exact_evm_payload_authorization_valid_before', 'invalid_exact_evm_token_paused'] as const),
  ...(['invalid_exact_evm_nonce_already_used', 'invalid_exact_evm_transaction_simulation_failed'] as const),
  ...(['invalid_exact_evm_payload_undeployed_smart_wallet'] as const),
  ...(['too_many_authorizations', 'facilitator_unreachable', 'authorization_released'] as const),
] as const;
export type RefusalReason = (typeof refusalReasons)[number];

/** The result of a payment, from a facilitator or a server. */
export interface SettleResponse {
  success: boolean;
  errorReason?: string;
  errorMessage?: string;
  payer?: string;
  transaction: string;
  network: string;
  /** What was paid, in the token's smallest unit. */
  amount?: string;
}

export function networkName(chainId: number): string {
  return `eip155:${chainId}`;
}

/** Returns the text of a header. */
export function encodeHeader(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

const address = /^0x[0-9a-fA-F]{40}$/;
const digits = /^\d{1,78}$/;
const text = /^.{1,256}$/s;
/** The form of each field, and how a refusal names it. */
const forms: readonly [path: string, form: RegExp, rule: string][] = [
  ['accepted.scheme', text, 'a text'],
  ['accepted.network', text, 'a text'],
  ['accepted.amount', digits, 'an amount in digits'],
  ['accepted.asset', address, 'an address'],
  ['accepted.payTo', address, 'an address'],
  ['payload.signature', /^0x(?:[0-9a-fA-F]{2}){1,4096}$/, 'at most 4 KiB in hexadecimal digits'],
  ['payload.authorization.from', address, 'an address'],
  ['payload.authorization.to', address, 'an address'],
  ['payload.authorization.value', digits, 'an amount in digits'],
  ['payload.authorization.validAfter', digits, 'seconds in digits'],
  ['payload.authorization.validBefore', digits, 'seconds in digits'],
  ['payload.authorization.nonce', /^0x[0-9a-fA-F]{64}$/, '32 bytes in hexadecimal digits'],
];

/** Reads the header `PAYMENT-SIGNATURE`, or returns what is wrong with its form. */
export function readPayment(header: string): SignedPayment | { violations: FieldViolation[] } {
  const payload = objectIn(Buffer.from(header, 'base64').toString());
  if (payload === undefined) {
    return { violations: [{ field: 'PAYMENT-SIGNATURE', message: 'must be a JSON object in base64' }] };
  }
  const at = (path: string): unknown =>
    path.split('.').reduce<unknown>((value, name) => (isObject(value) ? value[name] : undefined), payload);
  const violations = forms.flatMap(([path, form, rule]) => {
    const value = at(path);
    if (typeof value === 'string' && form.test(value)) return [];
    return [{ field: `PAYMENT-SIGNATURE.${path}`, message: `must be ${rule}` }];
  });
  if (payload.x402Version !== x402Version) {
    violations.unshift({ field: 'PAYMENT-SIGNATURE.x402Version', message: `must be ${x402Version}` });
  }
  if (violations.length > 0) return { violations };
  const hex = (path: string) => String(at(path)).toLowerCase() as `0x${string}`;
  const number = (name: string) => BigInt(String(at(`payload.authorization.${name}`)));
  const extra = at('accepted.extra');
  return {
    accepted: { ...(payload.accepted as PaymentRequirements), extra: isObject(extra) ? extra : {} },
    signature: hex('payload.signature'),
    from: hex('payload.authorization.from'),
    to: hex('payload.authorization.to'),
    value: number('value'),
    validAfter: number('validAfter'),
    validBefore: number('validBefore'),
    nonce: hex('payload.authorization.nonce'),
  };
}

/** Returns the JSON object that a text contains, or undefined. */
export function objectIn(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
