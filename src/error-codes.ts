// Plain data that imports nothing: the client package is compiled with it too.

/** Every code of a refusal, and whether the same request, sent again, may succeed. */
export const isRetryableByCode = {
  api_key_missing: false,
  api_key_invalid: false,
  browser_forbidden: false,
  invalid_body: false,
  idempotency_key_reused: false,
  idempotency_key_invalid: false,
  not_found: false,
  method_not_allowed: false,
  body_too_large: false,
  unsupported_media_type: false,
  rate_limited: true,
  unavailable: true,
  internal: true,
} as const;

/** Every way this service refuses a request. The same codes on both doors. */
export type ErrorCode = keyof typeof isRetryableByCode;
