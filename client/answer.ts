// Errors for HTTP answers other than the expected one, over either protocol.

import { secrets } from './describe.ts';
import { codeOf, PaymentIntentsError } from './error.ts';

export interface HttpAnswer {
  status: number;
  headers: Headers;
  /** The body, or its beginning. */
  text: string;
}

/** Far more than any refusal of the service. */
const maxRefusalBytes = 2 ** 20;
/** Far more than any answer of the service: a page holds 100 intents, each with metadata and 100 payments. */
export const maxAnswerBytes = 2 ** 26;

/** Returns a body as text. Stops after `maxBytes`: a server other than the service may never stop sending. */
export async function readText(body: AsyncIterable<Uint8Array>, maxBytes: number = maxRefusalBytes) {
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    bytes += chunk.length;
    if (bytes >= maxBytes) break;
  }
  return text + decoder.decode();
}

/** Returns the service's own refusal, or the error for another server's answer. */
export function refusalOf({ status, headers, text }: HttpAnswer): PaymentIntentsError {
  const error = errorIn(text);
  if (error === undefined) return unexpectedAnswer({ status, headers, text });
  const code = codeOf(error.code);
  return new PaymentIntentsError(code, error.message, {
    ...error,
    httpStatus: status,
    requestId: error.requestId ?? headers.get('X-Request-Id') ?? undefined,
    retryAfterMs: retryAfterMsOf(headers.get('Retry-After')),
    // For a code newer than this client, the status decides; and for a request that has not arrived in time.
    isRetryable: status === 408 || code.startsWith('unknown:') ? isTransient(status) : undefined,
  });
}

/** Returns the error for an answer that is not the service's. */
export function unexpectedAnswer({ status, headers, text }: HttpAnswer, why = ''): PaymentIntentsError {
  const contentType = headers.get('Content-Type')?.split(';')[0]?.trim();
  const location = headers.get('Location');
  const excerpt = readable(text);
  const message = [
    `HTTP ${status}${contentType ? ` (${contentType})` : ''}, which is not the payment service's answer`,
    ...(why === '' ? [] : [why]),
    ...(status >= 300 && status < 400 && location !== null
      ? [`it redirects to ${location.split('?')[0]}, which is not followed`]
      : []),
    ...(status === 404 ? ['is baseUrl right?'] : []),
    ...(excerpt === '' ? [] : [JSON.stringify(excerpt)]),
  ].join('; ');
  return new PaymentIntentsError(
    status === 429 ? 'rate_limited' : status >= 500 ? 'unavailable' : 'unexpected_answer',
    message,
    {
      httpStatus: status,
      requestId: headers.get('X-Request-Id') ?? undefined,
      retryAfterMs: retryAfterMsOf(headers.get('Retry-After')),
      isRetryable: isTransient(status),
    },
  );
}

/** True for Request Timeout, Too Early, Too Many Requests, and server errors other than 501 and 505. */
function isTransient(status: number): boolean {
  return [408, 425, 429].includes(status) || (status >= 500 && status !== 501 && status !== 505);
}

/** Returns the fields of the service's own refusal, or undefined for any other body. */
function errorIn(text: string) {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return undefined;
  }
  const error = (body as { error?: Record<string, unknown> } | null)?.error;
  if (typeof error?.code !== 'string') return undefined;
  // A server other than the service may repeat the key.
  const textOf = (value: unknown) =>
    typeof value === 'string' ? value.replaceAll(secrets, '[secret]') : undefined;
  return {
    code: error.code,
    message: textOf(error.message) ?? error.code,
    requestId: textOf(error.request_id),
    docUrl: textOf(error.doc_url),
    resumeAfter: textOf(error.resume_after),
    details: Array.isArray(error.details)
      ? error.details.map((detail) => ({ field: String(detail?.field), message: String(detail?.message) }))
      : [],
  };
}

/** Reads Retry-After: seconds, or an HTTP date (RFC 9110), which a proxy may send. */
function retryAfterMsOf(header: string | null): number {
  const ms = Number.isFinite(Number(header)) ? Number(header) * 1_000 : Date.parse(header ?? '') - Date.now();
  return Number.isNaN(ms) ? 0 : Math.max(0, ms);
}

/** Returns the beginning of a body, without HTML and without secrets that a proxy may have echoed. */
function readable(text: string): string {
  return text
    .slice(0, 10_000)
    .replaceAll(/<(script|style)\b[\s\S]*?<\/\1>|<[^>]*>/gi, ' ')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(secrets, '[secret]')
    .trim()
    .slice(0, 200);
}
