import { exactUnits } from './checked.ts';
import { PaymentIntentsError, type PaymentIntentsErrorCode } from './error.ts';
import type { PaymentIntent, PaymentIntentsClientOptions, Send } from './index.ts';

/** The public port: JSON over HTTP. */
export function json({ baseUrl, apiKey }: PaymentIntentsClientOptions): Send {
  const url = new URL('/v1/payment_intents', baseUrl);
  return async (create, idempotencyKey, signal) => {
    const answer = await fetch(url, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${apiKey}`,
        'Content-Type': 'application/json',
        'Idempotency-Key': idempotencyKey,
      },
      body: JSON.stringify({
        amount_units: Number(exactUnits(create.amountUnits)),
        chain: create.chain,
        wallet_address: create.walletAddress,
        expires_in_minutes: create.expiresInMinutes,
        lane: create.lane,
        metadata: create.metadata,
        token: create.token,
      }),
      signal,
    });
    const text = await answer.text();
    if (answer.status !== 201) throw refusalOf(answer, text);
    const intent = JSON.parse(text) as JsonPaymentIntent;
    return {
      id: intent.id,
      status: intent.status,
      clientSecret: intent.client_secret,
      mode: intent.mode,
      chain: intent.chain,
      chainId: intent.chain_id,
      confirmationsRequired: intent.confirmations_required,
      amountUnits: BigInt(intent.amount_units),
      decimals: intent.decimals,
      tokenSymbol: intent.token_symbol,
      tokenAddress: intent.token_address,
      expectedWallet: intent.expected_wallet,
      expiresAt: new Date(intent.expires_at),
      expiresInMinutes: intent.expires_in_minutes,
      lane: intent.lane,
      metadata: intent.metadata,
      replayed: answer.headers.get('Idempotent-Replayed') === 'true',
    };
  };
}

function refusalOf(answer: Response, text: string): PaymentIntentsError {
  const retryAfterMs = retryAfterMsOf(answer.headers.get('Retry-After'));
  const error = errorIn(text);
  if (typeof error?.code === 'string') {
    const { code, message, request_id: requestId, details = [] } = error;
    return new PaymentIntentsError(code, message, { requestId, details, retryAfterMs });
  }
  // Something between us and the service has answered.
  const code = answer.status >= 500 ? 'unavailable' : answer.status === 429 ? 'rate_limited' : 'invalid_body';
  return new PaymentIntentsError(code, `HTTP ${answer.status}: ${text.slice(0, 200)}`, { retryAfterMs });
}

function errorIn(text: string): JsonError | undefined {
  try {
    return (JSON.parse(text) as { error?: JsonError } | null)?.error;
  } catch {
    return undefined;
  }
}

/** Seconds, or the date of RFC 9110 that something in between may send. */
function retryAfterMsOf(header: string | null): number {
  const ms = Number.isFinite(Number(header)) ? Number(header) * 1_000 : Date.parse(header ?? '') - Date.now();
  return Number.isNaN(ms) ? 0 : Math.max(0, ms);
}

interface JsonError {
  code: PaymentIntentsErrorCode;
  message: string;
  request_id: string;
  details?: { field: string; message: string }[];
}

interface JsonPaymentIntent {
  id: string;
  status: PaymentIntent['status'];
  client_secret: string;
  mode: PaymentIntent['mode'];
  chain: PaymentIntent['chain'];
  chain_id: number;
  confirmations_required: number;
  amount_units: number;
  decimals: number;
  token_symbol: string;
  token_address: string;
  expected_wallet: string;
  expires_at: string;
  expires_in_minutes: number;
  lane: PaymentIntent['lane'];
  metadata: PaymentIntent['metadata'];
}
