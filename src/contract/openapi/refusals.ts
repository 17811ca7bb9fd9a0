// What the OpenAPI document says of refusals: which a method may answer with, and their one form.

import { getOption } from '@bufbuild/protobuf';
import {
  type CatalogueRow,
  catalogue,
  docPathOf,
  type ErrorCode,
  invalidBodyOf,
  toErrorJson,
} from '../error-catalogue.ts';
import { json_method } from '../gen/payments/v1/json_pb.ts';
import { type HttpRoute, takesIdempotencyKey } from '../http-routes.ts';
import { expectationFailed, requestIsLate } from '../limits.ts';
import { errorGuide } from './error-guide.ts';
import type { JsonSchema } from './schemas.ts';

/** The codes with which the public door can refuse a call of the method, derived from its route. */
export function refusalsOf(route: HttpRoute): ErrorCode[] {
  const takesKey = takesIdempotencyKey(route);
  return [
    'invalid_body',
    ...(route.pathFields.length > 0 ? (['resource_missing'] as const) : []),
    ...getOption(route.method, json_method).refusals.map(knownCode),
    ...(takesKey ? (['idempotency_key_invalid'] as const) : []),
    ...(getOption(route.method, json_method).takesClientSecret
      ? (['client_secret_invalid'] as const)
      : (['api_key_missing', 'api_key_invalid', 'browser_forbidden'] as const)),
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
const unauthenticatedRefusals: readonly ErrorCode[] = [
  'api_key_missing',
  'api_key_invalid',
  'browser_forbidden',
];

/** Messages for malformed HTTP, by the HTTP status of each fault. */
export const malformed = {
  408: requestIsLate,
  417: expectationFailed,
  431: 'The headers are larger than the service reads: 16384 bytes, unless it is configured otherwise.',
};

/** A reference page URL as it appears in an error if the service runs as README.md starts it. */
const docUrlExample = (code: ErrorCode) => `http://127.0.0.1:8080${docPathOf(code)}`;
export const requestIdExample = 'req_abffebd5ec294d3ab04df8cd235f8c89';

export function refusalOf(codes: readonly ErrorCode[]): object {
  const rows: CatalogueRow[] = codes.map((code) => catalogue[code]);
  const names = new Set(rows.flatMap(({ httpHeaders = {} }) => Object.keys(httpHeaders)));
  if (codes.includes('rate_limited') || codes.includes('unavailable')) names.add('Retry-After');
  if (!codes.some((code) => unauthenticatedRefusals.includes(code))) {
    for (const name of ['RateLimit', 'RateLimit-Policy']) names.add(name);
  }
  if (codes.includes('unsupported_media_type')) names.add('Accept');
  const examples = codes.map((code) => [code, { summary: catalogue[code].message, value: exampleOf(code) }]);
  return {
    description: codes.map((code) => `\`${code}\`: ${catalogue[code].message}`).join('\n\n'),
    headers: refsTo('X-Request-Id', ...names),
    content: {
      'application/json': {
        schema: { $ref: '#/components/schemas/Error' },
        examples: Object.fromEntries(examples),
      },
    },
  };
}

export function malformedAnswer(message: string): object {
  const example = exampleOf('invalid_body', { message });
  return {
    description: `\`invalid_body\`: ${message}`,
    headers: refsTo('X-Request-Id'),
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' }, example } },
  };
}

function exampleOf(code: ErrorCode, options: { message?: string } = {}): object {
  const isFieldFault = code === 'invalid_body' && options.message === undefined;
  const refusal = isFieldFault
    ? invalidBodyOf([{ field: 'amount_units', message: 'must be an integer' }])
    : { code, message: options.message ?? catalogue[code].message, violations: [] };
  return toErrorJson(refusal, requestIdExample, docUrlExample(code));
}

/** Every code of the catalogue, including those that no operation returns. The reference page shows them. */
export function errorReference(): Record<string, object> {
  return Object.fromEntries(
    Object.entries(catalogue).map(([code, { httpStatus, retryable, message }]) => [
      code,
      {
        status: httpStatus,
        retryable,
        message,
        description: errorGuide[code as ErrorCode],
        example: exampleOf(code as ErrorCode),
      },
    ]),
  );
}

export function errorSchema(): JsonSchema {
  return {
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
            description: 'Every faulty field, where fields are at fault.',
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
}

export function refsTo(...names: string[]): Record<string, object> {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** Returns "payment intents" for `PaymentIntentService`. */
