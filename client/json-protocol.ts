import { type HttpAnswer, readText, refusalOf, unexpectedAnswer } from './answer.ts';
import type { CreateRequest } from './create-request.ts';
import { chains, enumValueOf, lanes, modes, statuses } from './enums.ts';
import type { Target } from './options.ts';
import type { JsonObject, PaymentIntent } from './payment-intent.ts';
import type { Send } from './retrying-client.ts';
import { userAgent } from './version.ts';

/** The public port: JSON over HTTP. */
export function json({ baseUrl, apiKey }: Target): Send {
  return async (create, idempotencyKey, signal) => {
    const response = await fetch(`${baseUrl}/v1/payment_intents`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${apiKey}`,
        'Content-Type': 'application/json',
        'Idempotency-Key': idempotencyKey,
        'User-Agent': userAgent(),
      },
      body: bodyOf(create),
      // Following a redirect would turn the POST into a GET, or send the API key elsewhere.
      redirect: 'manual',
      signal,
    });
    const text = response.body === null ? '' : await readText(response.body);
    const answer = { status: response.status, headers: response.headers, text };
    if (answer.status !== 201) throw refusalOf(answer);
    return intentOf(answer);
  };
}

function bodyOf(create: CreateRequest): string {
  return JSON.stringify({
    amount_units: Number(create.amountUnits),
    chain: create.chain,
    wallet_address: create.walletAddress,
    expires_in_minutes: create.expiresInMinutes,
    lane: create.lane,
    metadata: create.metadata,
    token: create.token,
  });
}

function intentOf(answer: HttpAnswer): PaymentIntent {
  const intent = fieldsOf(answer);
  return {
    id: intent.id,
    status: enumValueOf(statuses, intent.status),
    clientSecret: intent.client_secret,
    mode: enumValueOf(modes, intent.mode),
    chain: enumValueOf(chains, intent.chain),
    chainId: intent.chain_id,
    confirmationsRequired: intent.confirmations_required,
    amountUnits: BigInt(intent.amount_units),
    decimals: intent.decimals,
    tokenSymbol: intent.token_symbol,
    tokenAddress: intent.token_address,
    expectedWallet: intent.expected_wallet,
    expiresAt: new Date(intent.expires_at),
    expiresInMinutes: intent.expires_in_minutes,
    lane: enumValueOf(lanes, intent.lane),
    metadata: intent.metadata,
    replayed: answer.headers.get('Idempotent-Replayed') === 'true',
  };
}

interface JsonPaymentIntent {
  id: string;
  status: string;
  client_secret: string;
  mode: string;
  chain: string;
  chain_id: number;
  confirmations_required: number;
  amount_units: number;
  decimals: number;
  token_symbol: string;
  token_address: string;
  expected_wallet: string;
  expires_at: string;
  expires_in_minutes: number;
  lane: string;
  metadata: JsonObject;
}

const isText = (value: unknown) => typeof value === 'string';
const isDate = (value: unknown) => typeof value === 'string' && !Number.isNaN(Date.parse(value));
const isInteger = (value: unknown) => Number.isSafeInteger(value);
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const checks: Record<keyof JsonPaymentIntent, (value: unknown) => boolean> = {
  id: isText,
  status: isText,
  client_secret: isText,
  mode: isText,
  chain: isText,
  chain_id: isInteger,
  confirmations_required: isInteger,
  amount_units: isInteger,
  decimals: isInteger,
  token_symbol: isText,
  token_address: isText,
  expected_wallet: isText,
  expires_at: isDate,
  expires_in_minutes: isInteger,
  lane: isText,
  metadata: isObject,
};

/** Returns the intent's fields. Throws `unexpected_answer` for a body that is not a payment intent. */
function fieldsOf(answer: HttpAnswer): JsonPaymentIntent {
  let body: unknown;
  try {
    body = JSON.parse(answer.text);
  } catch {
    throw unexpectedAnswer(answer, 'the body is not JSON');
  }
  assertPaymentIntent(body, answer);
  return body;
}

function assertPaymentIntent(body: unknown, answer: HttpAnswer): asserts body is JsonPaymentIntent {
  if (!isObject(body)) throw unexpectedAnswer(answer, 'the body is not an object');
  for (const [name, isValid] of Object.entries(checks)) {
    // The value itself is not shown: it could be the client secret.
    if (!isValid(body[name]))
      throw unexpectedAnswer({ ...answer, text: '' }, `its ${name} is missing or of another type`);
  }
}
