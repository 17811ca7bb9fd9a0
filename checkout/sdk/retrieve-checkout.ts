import { readBaseUrl, readClientSecret } from './arguments.ts';
import type { Checkout } from './gen/checkout.ts';

/** Why a checkout could not be retrieved. It holds no secret. */
export class CheckoutError extends Error {
  /**
   * - A code of the service, such as `client_secret_invalid` or `rate_limited`. Codes may be added;
   * - `network`: no answer came;
   * - `unexpected_answer`: a proxy answered instead of the service, or a server at a wrong `baseUrl`.
   */
  readonly code: string;
  /** Finds the request in the service's logs; undefined if the service did not answer. */
  readonly requestId: string | undefined;
  /** HTTP status of the answer; undefined if none came. */
  readonly httpStatus: number | undefined;

  constructor(
    code: string,
    message: string,
    options: { requestId?: string | undefined; httpStatus?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'CheckoutError';
    this.code = code;
    this.requestId = options.requestId;
    this.httpStatus = options.httpStatus;
  }
}

export interface RetrieveCheckoutOptions {
  /** The `client_secret` of the intent, from your backend. */
  clientSecret: string;
  /** The address of the payment service, such as `https://pay.example`. */
  baseUrl: string;
  /** Aborts the request. */
  signal?: AbortSignal | undefined;
}

/**
 * Returns what a payer may know about the intent, for a page that shows the payment. One request per call.
 *
 * For display only: ship goods when your backend has received the webhook.
 *
 * Throws a {@link CheckoutError} if the service refuses or does not answer, the reason of `signal` once that
 * is aborted, and a TypeError for a wrong argument.
 */
export async function retrieveCheckout(options: RetrieveCheckoutOptions): Promise<Checkout> {
  const { clientSecret, baseUrl, signal } = options;
  const url = `${readBaseUrl(baseUrl)}/v1/checkout`;
  const headers = { Authorization: `Bearer ${readClientSecret(clientSecret)}` };
  let answer: Response | undefined;
  let text: string;
  try {
    // A server's framework may keep answers otherwise. Older workerd knows no `cache`, and refuses it.
    const hasCache = typeof Request === 'function' && 'cache' in Request.prototype;
    const fresh = hasCache ? ({ cache: 'no-store' } as const) : {};
    answer = await fetch(url, { headers, signal: signal ?? null, ...fresh });
    text = await answer.text();
  } catch (cause) {
    if (signal?.aborted) throw signal.reason;
    throw new CheckoutError('network', 'No answer came from the payment service', { cause });
  }
  const body = parseJson(text);
  if (answer.ok && typeof body?.id === 'string') return body as Checkout;
  const { error } = (body ?? {}) as { error?: { code?: unknown; message?: unknown; request_id?: string } };
  const { status: httpStatus } = answer;
  if (typeof error?.code !== 'string') {
    const message = `${url} did not answer as the payment service does; is baseUrl right?`;
    throw new CheckoutError('unexpected_answer', message, { httpStatus });
  }
  throw new CheckoutError(error.code, String(error.message), { requestId: error.request_id, httpStatus });
}

function parseJson(text: string): Partial<Checkout> | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
