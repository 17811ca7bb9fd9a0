// What a payer is asked to sign, and the checks of a signed payment that need no other service.

import { isRightToken, type Network } from '../contract/chains.ts';
import type { PaymentRequirements, RefusalReason, SignedPayment } from '../contract/x402.ts';
import { lastOfferMs, networkName, timeoutSeconds } from '../contract/x402.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';

/** How a token names itself for signatures (EIP-712). */
export type TokenDomain = { name: string; version: string };

/** Why a payment is refused: x402's reason, and a sentence for people. */
export type PaymentRefusal = { reason: RefusalReason; message: string };

/** How much longer an authorization must be valid, so that a block can take it. */
const minValidSeconds = 15;

const scheme = 'exact';

/** True while an intent is open for long enough to sign. */
export function isOffered({ expiresAt }: Pick<PaymentIntentRow, 'expiresAt'>, nowMs: number): boolean {
  return expiresAt.getTime() - nowMs > lastOfferMs;
}

/** What the intent still expects, in the token's smallest unit. */
function missingUnits(intent: PaymentIntentRow): bigint {
  return BigInt(intent.amountUnits) - BigInt(intent.amountReceivedUnits);
}

export function offerOf(
  intent: PaymentIntentRow,
  network: Network,
  domain: TokenDomain,
  nowMs: number,
): PaymentRequirements {
  return {
    scheme,
    network: networkName(network.chainId),
    amount: String(missingUnits(intent)),
    asset: network.tokenAddress,
    payTo: intent.expectedWallet,
    maxTimeoutSeconds: timeoutSeconds(intent.expiresAt.getTime(), nowMs),
    extra: { ...domain, assetTransferMethod: 'eip3009' },
  };
}

interface Expected {
  intent: PaymentIntentRow;
  network: Network;
  domain: TokenDomain;
  /** How much more than the missing amount may be signed: somebody may have paid a little in between. */
  toleranceUnits: bigint;
  /** The later of now and the time of the newest block that was read. */
  nowMs: number;
}

/** Returns why a payment does not fit this intent by its own contents, if so. */
export function refusalOf(payment: SignedPayment, expected: Expected): PaymentRefusal | undefined {
  return (
    refusalOfTerms(payment, expected) ??
    refusalOfAmount(payment, expected) ??
    refusalOfTime(payment, expected)
  );
}

function refusalOfTerms({ accepted, from, to }: SignedPayment, { intent, network, domain }: Expected) {
  const { name, version, assetTransferMethod = 'eip3009' } = accepted.extra;
  if (accepted.scheme !== scheme || assetTransferMethod !== 'eip3009') {
    return refused('invalid_scheme', `Pay by the scheme ${scheme} with EIP-3009.`);
  }
  if (accepted.network !== networkName(network.chainId)) {
    return refused('invalid_network', `Pay on ${networkName(network.chainId)}.`);
  }
  if (!isRightToken(network, accepted.asset)) {
    return refused('invalid_payment_requirements', `Pay in the token ${network.tokenAddress}.`);
  }
  const wallet = intent.expectedWallet.toLowerCase();
  if (accepted.payTo.toLowerCase() !== wallet || to !== wallet) {
    return refused('invalid_exact_evm_recipient_mismatch', `Pay to ${intent.expectedWallet}.`);
  }
  // A transfer to oneself uses up the nonce and pays nothing.
  if (from === wallet) {
    return refused('invalid_exact_evm_recipient_mismatch', 'The wallet that is paid cannot pay itself.');
  }
  if (name !== domain.name || version !== domain.version) {
    return refused(
      'invalid_exact_evm_token_name_mismatch',
      `The token's domain has the name ${domain.name} and the version ${domain.version}.`,
    );
  }
  return undefined;
}

function refusalOfAmount({ accepted, value }: SignedPayment, { intent, toleranceUnits }: Expected) {
  const missing = missingUnits(intent);
  if (value !== BigInt(accepted.amount)) {
    return refused(
      'invalid_exact_evm_payload_authorization_value_mismatch',
      'The value that is signed differs from `accepted.amount`.',
    );
  }
  return value >= missing && value <= missing + toleranceUnits
    ? undefined
    : refused(
        'invalid_exact_evm_authorization_value',
        `The payment intent needs ${missing} units. Request the offer again, and sign that amount.`,
      );
}

function refusalOfTime({ validAfter, validBefore }: SignedPayment, { intent, nowMs }: Expected) {
  const seconds = BigInt(Math.floor(nowMs / 1_000));
  if (validAfter >= seconds) {
    return refused(
      'invalid_exact_evm_payload_authorization_valid_after',
      'The authorization is not valid yet.',
    );
  }
  const until = BigInt(Math.floor(intent.expiresAt.getTime() / 1_000));
  if (validBefore > until) {
    return refused(
      'invalid_exact_evm_payload_authorization_valid_before',
      `validBefore must be ${until} or earlier, when the payment intent expires.`,
    );
  }
  return validBefore >= seconds + BigInt(minValidSeconds)
    ? undefined
    : refused(
        'invalid_exact_evm_payload_authorization_valid_before',
        `The authorization must be valid for at least ${minValidSeconds} more seconds.`,
      );
}

export function refused(reason: RefusalReason, message: string): PaymentRefusal {
  return { reason, message };
}
