import type { ErrorCode } from '../error-catalogue.ts';

/** The meaning of each code and what to do about it, in Markdown, for the reference page. */
export const errorGuide = {
  api_key_missing:
    'The request has no `Authorization` header, or its scheme is not `Bearer`. Send `Authorization: Bearer <key>`.',
  api_key_invalid:
    'The key is malformed, unknown, expired or revoked; the answer is the same for all four. Check that your server has the complete key, and whether it was rotated.',
  client_secret_invalid:
    'The checkout takes the `client_secret` of an intent, as its creation returned it, where other methods take an API key. It is missing, incomplete, or not one of ours; the answer is the same for all three.',
  permission_denied:
    'Only a session of the console is refused with this: it is for reading only, or of a merchant, or the request comes from a page that is not the console. Requests with an API key are not.',
  browser_forbidden:
    'The request has an `Origin` header, so it comes from a web page. API keys belong on servers: call the API from yours, and give your page the `client_secret`.',
  invalid_body:
    'The body is not JSON, or a field of the body or of the query breaks a rule. `details` lists every faulty field at once. The same code is the answer to a request that is not valid HTTP, and to headers (`431`) or a body (`408`) that are too large or too slow.',
  idempotency_key_reused:
    'An earlier request with this `Idempotency-Key` had another body. Retry with the body of that request, or send the new request with a new key.',
  idempotency_key_invalid: 'The `Idempotency-Key` is empty, too long, or has spaces or other characters.',
  resource_missing:
    'The id is wrong, or the resource belongs to another merchant or to the other mode: the answer is the same for all of them. Check that the id is complete, and that a testnet id is asked for with a testnet key.',
  invalid_state:
    'The resource has moved on: an intent that is being paid, has succeeded or has expired cannot be canceled. Retrieve it and decide from its `status`. Repeating the request does not help.',
  chain_unwatched:
    'Nothing reads this chain at the moment, so a payment on it would not be seen, and the intent was not created. `details` names `chain`. Create it on the other chain, or tell us the `request_id`. A retry with the `Idempotency-Key` of an intent that exists still returns that intent.',
  cursor_expired:
    'The event named in `after` is older than what is kept (30 days, unless configured otherwise), so events after it may be missing. Retrieve the resources that you follow, then begin again without `after`. Follow more often than events are removed. With `resume_after`, the database lost events in a failover or was restored from a backup: retrieve them too, then begin after the event that it names. You will see some events again.',
  not_found: 'No route matches the path. Check the address against the operations on this page.',
  method_not_allowed: 'The path exists, but not with this method. The `Allow` header lists its methods.',
  body_too_large: 'A body has at most 64 KiB. `metadata` has at most 16 KiB of that.',
  unsupported_media_type:
    'Send `Content-Type: application/json`, in UTF-8, without `Content-Encoding`. The body is not compressed.',
  rate_limited:
    'This key has sent more requests than its allowance. Wait for the seconds in `Retry-After`, then send the same request with the same `Idempotency-Key`. The `RateLimit` header of every answer shows what is left.',
  unavailable:
    'The service cannot answer for the moment. Wait for the seconds in `Retry-After`, then send the same request with the same `Idempotency-Key`.',
  internal:
    'A fault of ours. The request may have had its effect: send it again with the same `Idempotency-Key`, at growing intervals. If it persists, tell us the `request_id`.',
} as const satisfies Record<ErrorCode, string>;
