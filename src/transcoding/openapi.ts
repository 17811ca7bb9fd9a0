// The OpenAPI document of the public door, from the contract: its annotations are the paths, its messages the schemas,
// its comments the descriptions. What a name or a word is in JSON follows the same rules as in json-codec.ts.

import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescService,
  getOption,
  ScalarType,
} from '@bufbuild/protobuf';
import { requestIsLate } from '../doors/request-body.ts';
import { catalogue, type ErrorCode, ServiceError, toErrorJson } from '../errors.ts';
import { json_field } from '../gen/payments/v1/json_pb.ts';
import { enumWords } from './json-codec.ts';
import { type HttpRoute, httpRoutesOf } from './routes.ts';

export type JsonSchema = { [keyword: string]: unknown };

export interface OpenApiOptions {
  title: string;
  version: string;
  /** Markdown, for the head of the page. */
  description: string;
  services: readonly DescService[];
  /** The comment above a definition in the contract; empty where there is none. */
  commentOf: (desc: DescField | DescMessage | DescEnum | HttpRoute['method'] | DescService) => string;
}

/** Codes that a method answers beside its success, on the public door. */
const refusals: readonly ErrorCode[] = [
  'invalid_body',
  'idempotency_key_invalid',
  'api_key_missing',
  'api_key_invalid',
  'browser_forbidden',
  'body_too_large',
  'unsupported_media_type',
  'idempotency_key_reused',
  'rate_limited',
  'internal',
  'unavailable',
];

/** Refused before it is known whose request it is, so that nothing can be said of an allowance. */
const nobodysRefusals: readonly ErrorCode[] = ['api_key_missing', 'api_key_invalid', 'browser_forbidden'];

/** What Node's own HTTP parser refuses, as malformed-http.ts answers it. */
const malformed = {
  408: requestIsLate,
  431: 'The headers are larger than the service reads: 16384 bytes, unless it is configured otherwise.',
};

const requestIdExample = 'req_abffebd5ec294d3ab04df8cd235f8c89';

/** The whole document (OpenAPI 3.1). Throws where the contract has a form that the public JSON does not. */
export function createOpenApi(options: OpenApiOptions): object {
  const schemas: Record<string, JsonSchema> = {};
  const paths: Record<string, Record<string, object>> = {};
  for (const service of options.services) {
    for (const route of httpRoutesOf(service)) {
      paths[route.path] = {
        ...paths[route.path],
        [route.httpMethod.toLowerCase()]: operationOf(service, route, schemas, options),
      };
    }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: options.title,
      version: options.version,
      description: options.description,
      license: { name: 'Proprietary', identifier: 'LicenseRef-Proprietary' },
    },
    servers: [{ url: '/', description: 'The service that answers this document.' }],
    tags: options.services.map((service) => ({
      name: nounOf(service),
      description: options.commentOf(service),
    })),
    security: [{ api_key: [] }],
    paths,
    components: {
      securitySchemes: {
        api_key: {
          type: 'http',
          scheme: 'bearer',
          description:
            'Your secret API key: `sk_testnet_…` makes test intents, `sk_mainnet_…` real ones. It belongs on your servers only.',
        },
      },
      schemas: { ...schemas, Error: errorSchema() },
      headers: headers(),
    },
  };
}

function operationOf(
  service: DescService,
  { method, successStatus }: HttpRoute,
  schemas: Record<string, JsonSchema>,
  options: OpenApiOptions,
): object {
  const [summary = '', ...details] = options.commentOf(method).split('\n\n');
  // A request shows what is required and what has a default; anything else, such as another wallet to be paid,
  // is nothing to copy without a thought.
  const example = (desc: DescMessage, direction: 'request' | 'response') =>
    Object.fromEntries(
      desc.fields
        .map((field) => [field, schemaOptionsOf(field)] as const)
        .filter(
          ([field, keywords]) =>
            direction === 'response' || getOption(field, json_field).required || 'default' in keywords,
        )
        .map(([field, keywords]) => [field.name, keywords.examples?.[0]]),
    );
  const body = (desc: DescMessage, direction: 'request' | 'response') => ({
    'application/json': {
      schema: refTo(desc, direction, schemas, options),
      example: example(desc, direction),
    },
  });
  const byStatus = Map.groupBy(refusals, (code) => catalogue[code].httpStatus);
  const errors = [...byStatus].map(([status, codes]) => [status, refusalOf(codes)] as const);
  return {
    operationId: method.localName,
    summary: summary.replace(/\n/g, ' '),
    description: details.join('\n\n'),
    tags: [nounOf(service)],
    parameters: [
      {
        name: 'Idempotency-Key',
        in: 'header',
        description:
          'Makes the request safe to repeat: one key for each order, the same key for every retry of it. 1 to 255 visible ASCII characters. One that begins with a quotation mark is read as a quoted string (RFC 9651): `"order-1001"` is the key `order-1001`.',
        schema: {
          type: 'string',
          minLength: 1,
          maxLength: 255,
          pattern: '^[\\x21\\x23-\\x7e][\\x21-\\x7e]*$',
        },
        example: 'order-1001',
      },
    ],
    requestBody: { required: true, content: body(method.input, 'request') },
    responses: Object.fromEntries([
      [
        String(successStatus),
        {
          description: successStatus === 201 ? 'Created, or answered again as it was created.' : 'Done.',
          headers: {
            ...refsTo('X-Request-Id', 'RateLimit', 'RateLimit-Policy'),
            'Idempotent-Replayed': {
              description: '`true` where an earlier request with this idempotency key has created it.',
              schema: { const: 'true' },
            },
          },
          content: body(method.output, 'response'),
        },
      ],
      ...errors.map(([status, response]) => [String(status), response]),
      ...Object.entries(malformed).map(([status, message]) => [status, malformedAnswer(message)]),
    ]),
  };
}

function refusalOf(codes: readonly ErrorCode[]): object {
  const names = new Set(codes.flatMap((code) => Object.keys(new ServiceError(code).httpHeaders)));
  if (codes.includes('rate_limited')) names.add('Retry-After');
  if (!codes.some((code) => nobodysRefusals.includes(code))) {
    for (const name of ['RateLimit', 'RateLimit-Policy']) names.add(name);
  }
  if (codes.includes('unsupported_media_type')) names.add('Accept');
  const examples = codes.map((code) => {
    const violations =
      code === 'invalid_body' ? [{ field: 'amount_units', message: 'must be an integer' }] : [];
    const value = toErrorJson(new ServiceError(code, { violations }), requestIdExample);
    return [code, { summary: catalogue[code].message, value }] as const;
  });
  // A page shows the first example of a status; the others stand with their codes.
  const descriptions = examples.map(([code, { summary, value }], i) =>
    [`\`${code}\`: ${summary}`, ...(i === 0 ? [] : [`\`\`\`json\n${JSON.stringify(value)}\n\`\`\``])].join(
      '\n\n',
    ),
  );
  return {
    description: descriptions.join('\n\n'),
    headers: refsTo('X-Request-Id', ...names),
    content: {
      'application/json': {
        schema: { $ref: '#/components/schemas/Error' },
        examples: Object.fromEntries(examples),
      },
    },
  };
}

function malformedAnswer(message: string): object {
  const example = toErrorJson(new ServiceError('invalid_body', { message }), requestIdExample);
  return {
    description: `\`invalid_body\`: ${message}`,
    headers: refsTo('X-Request-Id'),
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' }, example } },
  };
}

function refTo(
  desc: DescMessage,
  direction: 'request' | 'response',
  schemas: Record<string, JsonSchema>,
  options: OpenApiOptions,
): JsonSchema {
  if (schemas[desc.name] === undefined) {
    // Noted before it is filled: a message may hold itself.
    const schema: JsonSchema = {};
    schemas[desc.name] = schema;
    const isRequired = (field: DescField) =>
      direction === 'response' || getOption(field, json_field).required;
    Object.assign(schema, {
      type: 'object',
      description: options.commentOf(desc),
      properties: Object.fromEntries(
        desc.fields.map((field) => [field.name, propertyOf(field, direction, schemas, options)]),
      ),
      required: desc.fields.filter(isRequired).map(({ name }) => name),
      additionalProperties: false,
    });
  }
  return { $ref: `#/components/schemas/${desc.name}` };
}

function propertyOf(
  field: DescField,
  direction: 'request' | 'response',
  schemas: Record<string, JsonSchema>,
  options: OpenApiOptions,
): JsonSchema {
  const type = typeOf(field, direction, schemas, options);
  const words =
    field.fieldKind === 'enum'
      ? enumWords(field.enum).map(({ word, value }) => `- \`${word}\`: ${options.commentOf(value as never)}`)
      : [];
  const description = [options.commentOf(field), ...(words.length > 0 ? [words.join('\n')] : [])].join(
    '\n\n',
  );
  const schema: JsonSchema = { ...type, description, ...schemaOptionsOf(field) };
  // In a request `null` stands for a field that is not there.
  const isOptional = direction === 'request' && !getOption(field, json_field).required;
  if (!isOptional) return schema;
  return {
    ...schema,
    type: [schema.type, 'null'],
    ...('enum' in schema ? { enum: [...(schema.enum as unknown[]), null] } : {}),
  };
}

function typeOf(
  field: DescField,
  direction: 'request' | 'response',
  schemas: Record<string, JsonSchema>,
  options: OpenApiOptions,
): JsonSchema {
  switch (field.fieldKind) {
    case 'scalar':
      return scalarType(field, field.scalar);
    case 'enum':
      return { type: 'string', enum: enumWords(field.enum).map(({ word }) => word) };
    case 'message':
      if (field.message.typeName === 'google.protobuf.Struct') return { type: 'object' };
      if (field.message.typeName === 'google.protobuf.Timestamp')
        return { type: 'string', format: 'date-time' };
      return refTo(field.message, direction, schemas, options);
    default:
      throw new Error(
        `${field.parent.typeName}.${field.name}: teach src/transcoding/openapi.ts about ${field.fieldKind}s`,
      );
  }
}

function scalarType(field: DescField, scalar: ScalarType): JsonSchema {
  switch (scalar) {
    case ScalarType.STRING:
      return { type: 'string' };
    case ScalarType.BOOL:
      return { type: 'boolean' };
    case ScalarType.DOUBLE:
      return { type: 'number' };
    case ScalarType.INT32:
    case ScalarType.INT64:
    case ScalarType.UINT32:
    case ScalarType.UINT64:
      return { type: 'integer' };
    default:
      throw new Error(
        `${field.parent.typeName}.${field.name}: the public JSON has no form for ${ScalarType[scalar]}`,
      );
  }
}

/** The keywords that the contract adds to a field. */
function schemaOptionsOf(field: DescField): JsonSchema & { examples?: unknown[] } {
  const { schema } = getOption(field, json_field);
  if (schema === '') throw new Error(`${field.parent.typeName}.${field.name} has no (json_field).schema`);
  return JSON.parse(schema);
}

function errorSchema(): JsonSchema {
  return {
    type: 'object',
    description: 'Why a request was refused. Log all of it: the request id finds the request in our logs.',
    properties: {
      error: {
        type: 'object',
        properties: {
          code: {
            type: 'string',
            enum: Object.keys(catalogue),
            description: 'What went wrong, for your program.',
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
              additionalProperties: false,
            },
          },
        },
        required: ['code', 'message', 'request_id'],
        additionalProperties: false,
      },
    },
    required: ['error'],
    additionalProperties: false,
  };
}

function headers(): Record<string, object> {
  const header = (description: string, schema: JsonSchema, example: string | number) => ({
    description,
    schema,
    example,
  });
  const text = { type: 'string' };
  return {
    'X-Request-Id': header('This one request. Quote it when you ask us about it.', text, requestIdExample),
    'Retry-After': header('Seconds to wait before the next try.', { type: 'integer', minimum: 1 }, 1),
    RateLimit: header(
      'Requests that remain to this API key, and seconds until all are there again.',
      text,
      '"creates";r=999;t=1',
    ),
    'RateLimit-Policy': header(
      'Requests that an API key may send in a window of seconds.',
      text,
      '"creates";q=1000;w=2',
    ),
    'WWW-Authenticate': header('How to authenticate.', text, 'Bearer'),
    Accept: header('The content type that is read here.', text, 'application/json'),
  };
}

function refsTo(...names: string[]): Record<string, object> {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** `PaymentIntentService` is about payment intents. */
function nounOf(service: DescService): string {
  const words = service.name
    .replace(/Service$/, '')
    .replace(/(?<=[a-z])(?=[A-Z])/g, ' ')
    .toLowerCase();
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}s`;
}
