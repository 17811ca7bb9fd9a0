// The refusals in the OpenAPI document: which a method may answer with, and their form.

import { getOption } from '@bufbuild/protobuf';
import type { CatalogueRow, ErrorCode } from '../error-catalogue.ts';
import { catalogue, docPathOf, invalidBodyOf, isRetryable, toErrorJson } from '../error-catalogue.ts';
import { json_method } from '../gen/payments/v1/json_pb.ts';
import { type HttpRoute, takesIdempotencyKey } from '../http-routes.ts';
import { expectationFailed, requestIsLate } from '../limits.ts';
import type { JsonSchema } from './schemas.ts';

/** The answers with which the public door can refuse a call of the method, by their HTTP status. */
export function refusalsOf(route: HttpRoute): [status: string, answer: object][] {
  const byStatus = Map.groupBy(codesOf(route), (code) => catalogue[code].httpStatus);
  return [
    ...[...byStatus].map(([status, codes]): [string, object] => [`${status}`, answerOf(codes)]),
    ...Object.entries(malformed).map(([status, text]): [string, object] => [status, malformedAnswer(text)]),
  ];
}

/** The codes of these refusals, derived from the method's route. */
function codesOf(route: HttpRoute): ErrorCode[] {
  const takesKey = takesIdempotencyKey(route);
  return [
    'invalid_body',
    ...(route.pathFields.length > 0 ? (['resource_missing'] as const) : []),
    ...getOption(route.method, json_method).refusals.map(knownCode),
    ...(takesKey ? (['idempotency_key_invalid'] as const) : []),
    ...(getOption(route.method, json_method).takesClientSecret
      ? (['client_secret_invalid'] as const)
      : unauthenticated),
    ...(route.hasBody ? (['body_too_large', 'unsupported_media_type'] as const) : []),
    ...(takesKey ? (['idempotency_key_reused'] as const) : []),
    'rate_limited',
    'internal',
    'unavailable',
  ];
}

function knownCode(code: string): ErrorCode {
  if (!Object.hasOwn(catalogue, code))
    throw new Error(`the contract names the code ${code}, which there is not`);
  return code as ErrorCode;
}

/** Refused before the client is known, so these answers carry no rate limit headers. */
const unauthenticated: readonly ErrorCode[] = ['api_key_missing', 'api_key_invalid', 'browser_forbidden'];

/** Messages for malformed HTTP, by the HTTP status of each fault. */
const malformed = {
  408: requestIsLate,
  417: expectationFailed,
  431: 'The headers are larger than the service reads: 16384 bytes, unless it is configured otherwise.',
};

/** A reference page URL as it appears in an error if the service runs as README.md starts it. */
const docUrlExample = (code: ErrorCode) => `http://127.0.0.1:8080${docPathOf(code)}`;
export const requestIdExample = 'req_abffebd5ec294d3ab04df8cd235f8c89';

const errorRef = { $ref: '#/components/schemas/Error' };

function answerOf(codes: readonly ErrorCode[]): object {
  const rows: CatalogueRow[] = codes.map((code) => catalogue[code]);
  const names = new Set(rows.flatMap(({ httpHeaders = {} }) => Object.keys(httpHeaders)));
  if (codes.includes('rate_limited') || codes.includes('unavailable')) names.add('Retry-After');
  if (!codes.some((code) => unauthenticated.includes(code))) {
    for (const name of ['RateLimit', 'RateLimit-Policy']) names.add(name);
  }
  if (codes.includes('unsupported_media_type')) names.add('Accept');
  const examples = codes.map((code) => [code, { summary: catalogue[code].message, value: exampleOf(code) }]);
  return {
    description: codes.map((code) => `\`${code}\`: ${catalogue[code].message}`).join('\n\n'),
    headers: refsTo('X-Request-Id', ...names),
    content: { 'application/json': { schema: errorRef, examples: Object.fromEntries(examples) } },
  };
}

function malformedAnswer(message: string): object {
  const example = exampleOf('invalid_body', message);
  return {
    description: `\`invalid_body\`: ${message}`,
    headers: refsTo('X-Request-Id'),
    content: { 'application/json': { schema: errorRef, example } },
  };
}

function exampleOf(code: ErrorCode, message?: string): object {
  const isFieldFault = code === 'invalid_body' && message === undefined;
  const refusal = isFieldFault
    ? invalidBodyOf([{ field: 'amount_units', message: 'must be an integer' }])
    : { code, message: message ?? catalogue[code].message, violations: [] };
  return toErrorJson(refusal, requestIdExample, docUrlExample(code));
}

/** The meaning of each code and what to do about it, in Markdown, for the reference page. */
const errorGuide = {
  api_key_missing:
    'The request has no `Authorization` header, or its scheme is not `Bearer`. Send `Authorization: Bearer <key>`.',
  api_key_invalid:
    'The key is malformed, unknown, expired or revoked; the answer is the same for all four. Check that your server has the complete key, and whether it was rotated.',
  client_secret_invalid:
    'The checkout takes the `client_secret` of an intent, as its creation returned it, where other methods take an API key. It is missing, incomplete, or not one of ours; the answer is the same for all three.',
  permission_denied:
    'Only the console returns this: the session is read-only or of a merchant, or the request comes from a page that is not the console. Requests with an API key never get it.',
  browser_forbidden:
    'The request has an `Origin` header, so it comes from a web page. API keys belong on servers: call the API from yours, and give your page the `client_secret`.',
  invalid_body:
    'The body is not JSON, or a field of the body or of the query breaks a rule. `details` lists the invalid fields, all at once. The same code is the answer to a request that is not valid HTTP, and to headers (`431`) or a body (`408`) that are too large or too slow. After a `408`, send the same request again.',
  idempotency_key_reused:
    'An earlier request with this `Idempotency-Key` had another body. Retry with the body of that request, or send the new request with a new key.',
  idempotency_key_invalid: 'The `Idempotency-Key` is empty, too long, or has spaces or other characters.',
  resource_missing:
    'The id is wrong, or the resource belongs to another merchant or to the other mode: the answer is the same for all of them. Check that the id is complete, and that you use a testnet key for a testnet id.',
  invalid_state:
    'The state of the resource does not allow this: an intent that is being paid, has succeeded or has expired cannot be canceled, for example. Retrieve it and decide by its `status`. Repeating the request does not help.',
  chain_unwatched:
    'The service is not watching this chain at the moment and would not see a payment on it, so the intent was not created. `details` names `chain`. Create it on the other chain, or send us the `request_id`. A retry with the `Idempotency-Key` of an existing intent still returns that intent.',
  cursor_expired:
    'The event named in `after` is older than the retention period (30 days, unless configured otherwise), so events after it may be missing. Begin again without `after`, then retrieve the resources that you track. Read events more often than they are removed. If the answer has `resume_after`, the database lost events in a failover or was restored from a backup: begin after the event that it names, then retrieve the resources as well. Some events will come again.',
  not_found: 'No route matches the path. Check the address against the operations on this page.',
  method_not_allowed: 'The path exists, but not with this method. The `Allow` header lists its methods.',
  body_too_large: 'A body has at most 64 KiB. `metadata` has at most 16 KiB of that.',
  unsupported_media_type:
    'Send `Content-Type: application/json`, in UTF-8, without `Content-Encoding`. The body is not compressed.',
  rate_limited:
    'This key has sent more requests than its allowance. Wait for the seconds in `Retry-After`, then send the same request with the same `Idempotency-Key`. The `RateLimit` header of every answer to an accepted key shows what is left.',
  unavailable:
    'The service cannot answer for the moment. Wait for the seconds in `Retry-After`, then send the same request with the same `Idempotency-Key`.',
  internal:
    'An error on our side. The request may have taken effect: send it again with the same `Idempotency-Key`, at growing intervals. If the error persists, send us the `request_id`.',
} as const satisfies Record<ErrorCode, string>;

/** Every code of the catalogue, including those that no operation returns. The reference page shows them. */
export const errorReference = Object.fromEntries(
  Object.entries(catalogue).map(([code, { httpStatus, message }]) => [
    code,
    {
      status: httpStatus,
      retryable: isRetryable(code),
      message,
      description: errorGuide[code as ErrorCode],
      example: exampleOf(code as ErrorCode),
    },
  ]),
);

export const errorSchema: JsonSchema = {
  type: 'object',
  description: 'Why a request was refused. Log all of it: the request id finds the request in our logs.',
  properties: {
    error: {
      type: 'object',
      properties: {
        code: {
          type: 'string',
          'x-extensible-enum': Object.keys(catalogue),
          description:
            'What went wrong, for your program. Codes may be added: treat one that you do not know by its HTTP status.',
          examples: ['invalid_body'],
        },
        message: {
          type: 'string',
          description: 'What went wrong and what to do about it, for you.',
          examples: [catalogue.invalid_body.message],
        },
        request_id: {
          type: 'string',
          pattern: '^req_[0-9a-f]{32}$',
          description: 'This one request, as in the `X-Request-Id` header.',
          examples: [requestIdExample],
        },
        doc_url: {
          type: 'string',
          format: 'uri-reference',
          description:
            'The entry of this code in the reference. Relative to the service if the request did not say which host it was for.',
          examples: [docUrlExample('invalid_body')],
        },
        details: {
          type: 'array',
          description: 'Every invalid field, if fields are the reason.',
          items: {
            type: 'object',
            properties: {
              field: { type: 'string', description: 'The field.', examples: ['amount_units'] },
              message: {
                type: 'string',
                description: 'What is wrong with it.',
                examples: ['must be an integer'],
              },
            },
            required: ['field', 'message'],
          },
        },
        resume_after: {
          type: 'string',
          description: 'Of `cursor_expired`: the id of the event to continue `after`, where there is one.',
        },
      },
      required: ['code', 'message', 'request_id', 'doc_url'],
    },
  },
  required: ['error'],
};

export function refsTo(...names: string[]): Record<string, object> {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}
