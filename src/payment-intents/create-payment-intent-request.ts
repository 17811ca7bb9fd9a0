import { hash } from 'node:crypto';
import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { canonicalize } from 'ox/Json';
import { type Network, networkIn } from '../contract/chains.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import type { CreatePaymentIntentRequest } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { chainWords, laneWords, tokenWords } from '../contract/gen/words.ts';
import { parseWalletAddress, type WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName, LaneName } from '../contract/words.ts';
import { mustBe, nameOf } from '../contract/words.ts';
import type { NewPaymentIntentRow } from '../database/entities/payment-intent.ts';
import { maxAmountUnits, maxExpiryMinutes, minExpiryMinutes } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
import { unknownFieldViolations } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';

const defaultExpiryMinutes = 30;
const maxMetadataKeys = 50;
const maxMetadataKeyLength = 64;
const maxMetadataBytes = 16 * 1024;
/** Maximum nesting of objects and arrays, counting the metadata itself. One less than in a JSON body. */
const maxMetadataNesting = 15;

/** A valid create request with all defaults. */
interface NewPaymentIntent {
  amountUnits: bigint;
  chain: ChainName;
  /** Of the chain and the token. */
  network: Network;
  lane: LaneName;
  /** After clamping. */
  expiresInMinutes: number;
  walletOverride: WalletAddress | undefined;
  /** The wallet to pay: the given one, or the merchant's. */
  expectedWallet: WalletAddress;
  metadata: JsonObject;
}

type ParsedCreateRequest = { value: NewPaymentIntent } | { violations: FieldViolation[] };

/** The word that a request gives, or the default if it gives none; undefined for an unknown number. */
function givenOr<Word extends string>(
  words: Readonly<Record<Word, number>>,
  number: number,
  byDefault: Word,
) {
  return number === 0 ? byDefault : nameOf(words, number);
}

/** Parses a create request for the merchant, or returns all violations by the request's field names. */
export function parseCreatePaymentIntentRequest(
  request: CreatePaymentIntentRequest,
  identity: Identity,
): ParsedCreateRequest {
  const violations = unknownFieldViolations(request);
  const violate = (field: string, message: string) => void violations.push({ field, message });

  const { amountUnits } = request;
  if (amountUnits < 1n || amountUnits > maxAmountUnits) {
    violate('amount_units', `must be an integer from 1 to ${maxAmountUnits}, in the token's smallest unit`);
  }

  const chain = givenOr(chainWords, request.chain, 'base');
  if (chain === undefined) violate('chain', mustBe(chainWords));

  const lane = givenOr(laneWords, request.lane, 'sdk');
  if (lane === undefined) violate('lane', mustBe(laneWords));

  const token = givenOr(tokenWords, request.token, 'USDC');
  if (token === undefined) violate('token', mustBe(tokenWords));
  const network = chain && token && networkIn(identity.mode, chain, token);
  if (chain && token && network === undefined) violate('token', `cannot be "${token}" on ${chain}`);

  let walletOverride: WalletAddress | undefined;
  if (request.walletAddress !== undefined) {
    const parsed = parseWalletAddress(request.walletAddress);
    if ('problem' in parsed) violate('wallet_address', parsed.problem);
    else walletOverride = parsed.address;
  } else if (chain !== undefined && identity.payoutWallets[chain] === undefined) {
    violate(
      'wallet_address',
      `is required: you have no payout wallet on ${chain} for ${identity.mode}, so there is no default`,
    );
  }

  const { metadata = {} } = request;
  const metadataProblem = findMetadataProblem(metadata);
  if (metadataProblem !== undefined) violate('metadata', metadataProblem);

  const expectedWallet = walletOverride ?? (chain && identity.payoutWallets[chain]);
  if (!chain || !network || !lane || !expectedWallet || violations.length > 0) return { violations };
  const minutes = request.expiresInMinutes ?? defaultExpiryMinutes;
  return {
    value: {
      amountUnits,
      chain,
      network,
      lane,
      expiresInMinutes: Math.min(Math.max(minutes, minExpiryMinutes), maxExpiryMinutes),
      walletOverride,
      expectedWallet,
      metadata: withoutNegativeZero(metadata),
    },
  };
}

/** The row of a new intent, as of now. */
export function buildPaymentIntent(
  intent: NewPaymentIntent,
  identity: Identity,
  idempotencyKey: string | undefined,
  clientSecretVersion: number,
): NewPaymentIntentRow {
  const createdAtMs = Date.now();
  return {
    id: newUuid(createdAtMs),
    merchantId: identity.merchantId,
    mode: identity.mode,
    status: 'requires_payment',
    network: intent.network.id,
    amountUnits: intent.amountUnits,
    expectedWallet: intent.expectedWallet,
    lane: intent.lane,
    metadata: intent.metadata,
    createdAt: new Date(createdAtMs),
    expiresAt: new Date(createdAtMs + intent.expiresInMinutes * 60_000),
    clientSecretVersion,
    idempotencyKey: idempotencyKey ?? null,
    requestFingerprint: idempotencyKey === undefined ? null : fingerprintOf(intent),
  };
}

/**
 * SHA-256, in hexadecimal, of the request after defaults and clamping: equal for equivalent requests. The
 * merchant's own wallet is left out, so that a retry still matches after the merchant has changed it.
 */
function fingerprintOf(intent: NewPaymentIntent): string {
  const canonical = canonicalize([
    'CreatePaymentIntent/1',
    String(intent.amountUnits),
    intent.chain,
    intent.network.tokenSymbol,
    intent.lane,
    intent.expiresInMinutes,
    intent.walletOverride ?? null,
    intent.metadata,
  ]);
  return hash('sha256', canonical, 'hex');
}

/** Returns why metadata is refused, as the end of a sentence. */
export function findMetadataProblem(metadata: JsonObject): string | undefined {
  const keys = Object.keys(metadata);
  if (keys.length > maxMetadataKeys) return `must have at most ${maxMetadataKeys} keys, not ${keys.length}`;
  for (const key of keys) {
    // Characters, not UTF-16 units: an emoji is one.
    if (key.length > maxMetadataKeyLength && [...key].length > maxMetadataKeyLength) {
      return `must have keys of at most ${maxMetadataKeyLength} characters`;
    }
  }
  const problem = findValueProblem(metadata, 1);
  if (problem !== undefined) return problem;
  const bytes = Buffer.byteLength(JSON.stringify(metadata));
  if (bytes > maxMetadataBytes) return `must be at most ${maxMetadataBytes} bytes as JSON, not ${bytes}`;
  return undefined;
}

/** Replaces -0 in valid metadata: the database would return 0, so a replay would differ. */
export function withoutNegativeZero(metadata: JsonObject): JsonObject {
  return JSON.parse(JSON.stringify(metadata));
}

function findValueProblem(value: JsonValue, nesting: number): string | undefined {
  if (typeof value === 'string') return findStringProblem(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return 'must not contain NaN or an infinity, which JSON cannot write';
    if (!Number.isInteger(value) || Number.isSafeInteger(value)) return undefined;
    return 'must not contain integers beyond 9007199254740991, which lose precision; send them as strings';
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if (nesting > maxMetadataNesting) return `must not be nested deeper than ${maxMetadataNesting} levels`;
  const isArray = Array.isArray(value);
  for (const name of Object.keys(value)) {
    const problem =
      (isArray ? undefined : findStringProblem(name)) ??
      findValueProblem((value as Record<string, JsonValue>)[name] as JsonValue, nesting + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Returns why a text cannot be stored, as the end of a sentence. */
export function findStringProblem(text: string): string | undefined {
  if (text.includes('\0')) return 'must not contain NUL characters';
  if (!text.isWellFormed()) return 'must not contain lone surrogates, which are not text';
  return undefined;
}
