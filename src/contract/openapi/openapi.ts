// Creates the public door's OpenAPI document from the contract: annotations become paths, messages schemas, comments
// descriptions. Names and enum words follow the same rules as in json-codec.ts.

import {
  type DescEnum,
  type DescEnumValue,
  type DescField,
  type DescMessage,
  type DescService,
  getOption,
  ScalarType,
} from '@bufbuild/protobuf';
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import {
  type CatalogueRow,
  catalogue,
  docPathOf,
  type ErrorCode,
  invalidBodyOf,
  toErrorJson,
} from '../error-catalogue.ts';
import { json_field, json_method } from '../gen/payments/v1/json_pb.ts';
import { type HttpRoute, httpRoutesOf } from '../http-routes.ts';
import {
  enumWords,
  hasRequiredField,
  integerRangeOf,
  isRequiredField,
  mayBeAbsent,
  refusesEmptyList,
} from '../json/json-codec.ts';
import { expectationFailed, requestIsLate } from '../limits.ts';
import { errorGuide } from './error-guide.ts';

export type JsonSchema = { [keyword: string]: unknown };
type Direction = 'request' | 'response';
/** Schemas of messages by their names. */
type Schemas = Map<string, { desc: DescMessage; direction: Direction; schema: JsonSchema }>;

export interface OpenApiOptions {
  title: string;
  version: string;
  /** Markdown for the top of the page. */
  description: string;
  services: readonly DescService[];
  /** What the service sends by itself: a message of this type, for each of these names. */
  webhooks?: { message: DescMessage; descriptions: Readonly<Record<string, string>> };
  /** The comment above a definition in the contract; empty if there is none. */
  commentOf: (
    desc: DescField | DescMessage | DescEnum | DescEnumValue | HttpRoute['method'] | DescService,
  ) => string;
}

/** The codes with which the public door can refuse a call of the method, derived from its route. */
function refusalsOf(route: HttpRoute): ErrorCode[] {
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

/** A method not marked as safe to repeat takes an idempotency key, which makes it safe. */
function takesIdempotencyKey({ method }: HttpRoute): boolean {
  return method.idempotency === MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
}

/** Refused before the client is known, so these answers carry no rate limit headers. */
const unauthenticatedRefusals: readonly ErrorCode[] = [
  'api_key_missing',
  'api_key_invalid',
  'browser_forbidden',
];

/** Messages for malformed HTTP, by the HTTP status of each fault. */
const malformed = {
  408: requestIsLate,
  417: expectationFailed,
  431: 'The headers are larger than the service reads: 16384 bytes, unless it is configured otherwise.',
};

/** A reference page URL as it appears in an error if the service runs as README.md starts it. */
const docUrlExample = (code: ErrorCode) => `http://127.0.0.1:8080${docPathOf(code)}`;
const etagExample = '"qUiQTy8PR5uPgZdpSzAYSw"';

const ifNoneMatchParameter = {
  name: 'If-None-Match',
  in: 'header',
  description: 'The `ETag` of the last answer. While nothing has changed, the answer is 304 without a body.',
  schema: { type: 'string' },
};

const notModified = {
  description: 'Nothing has changed since the answer that `If-None-Match` names.',
  headers: refsTo('X-Request-Id', 'ETag'),
};

const requestIdExample = 'req_abffebd5ec294d3ab04df8cd235f8c89';

/**
 * Creates the whole document (OpenAPI 3.1). Throws if the contract has a form that the public JSON does not support.
 */
export function createOpenApi(options: OpenApiOptions): object {
  const schemas: Schemas = new Map();
  const paths: Record<string, Record<string, object>> = {};
  const operationIds = new Set<string>();
  for (const service of options.services) {
    for (const route of httpRoutesOf(service)) {
      const { name, localName } = route.method;
      if (operationIds.has(localName))
        throw new Error(`two methods are called ${name}: an operation needs a name of its own`);
      operationIds.add(localName);
      paths[route.path] = {
        ...paths[route.path],
        [route.httpMethod.toLowerCase()]: operationOf(service, route, schemas, options),
      };
    }
  }
  const webhooks = webhooksOf(schemas, options);
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
    ...(webhooks && { webhooks }),
    components: {
      securitySchemes: {
        api_key: {
          type: 'http',
          scheme: 'bearer',
          description:
            'Your secret API key: `sk_testnet_…` makes test intents, `sk_mainnet_…` real ones. It belongs on your servers only.',
        },
        client_secret: {
          type: 'http',
          scheme: 'bearer',
          description:
            'The `client_secret` of one intent, which its creation returns: the only value that a frontend may have.',
        },
      },
      schemas: {
        ...Object.fromEntries([...schemas].map(([name, { schema }]) => [name, schema])),
        Error: errorSchema(),
      },
      headers: headers(),
    },
    'x-errors': errorReference(),
  };
}

function operationOf(
  service: DescService,
  route: HttpRoute,
  schemas: Schemas,
  options: OpenApiOptions,
): object {
  const { method, successStatus, hasBody } = route;
  const inPath = route.pathFields;
  const takesKey = takesIdempotencyKey(route);
  const isForPayers = getOption(method, json_method).takesClientSecret;
  const [summary = '', ...details] = options.commentOf(method).split('\n\n');
  const content = (desc: DescMessage, direction: Direction, example: object) => ({
    'application/json': {
      schema: refTo(desc, direction, schemas, options, direction === 'request' ? inPath : []),
      example,
    },
  });
  const byStatus = Map.groupBy(refusalsOf(route), (code) => catalogue[code].httpStatus);
  const errors = [...byStatus].map(([status, codes]) => [status, refusalOf(codes)] as const);
  return {
    operationId: method.localName,
    summary: summary.replace(/\n/g, ' '),
    description: details.join('\n\n'),
    tags: [nounOf(service)],
    ...(isForPayers && { security: [{ client_secret: [] }] }),
    parameters: [
      ...inPath.map((field) => parameterOf(field, 'path', schemas, options)),
      ...route.queryFields.map((field) => parameterOf(field, 'query', schemas, options)),
      ...(takesKey ? [idempotencyKeyParameter] : []),
      ...(isForPayers ? [ifNoneMatchParameter] : []),
    ],
    ...(hasBody && {
      requestBody: {
        required: hasRequiredField(method.input, inPath),
        content: content(method.input, 'request', requestExample(route)),
      },
    }),
    responses: Object.fromEntries([
      [
        String(successStatus),
        {
          description:
            successStatus === 201
              ? 'Created, or answered again as it was created.'
              : route.httpMethod === 'GET'
                ? 'Found.'
                : 'Done.',
          headers: {
            ...refsTo('X-Request-Id', 'RateLimit', 'RateLimit-Policy'),
            ...(isForPayers && refsTo('ETag')),
            ...(takesKey && {
              'Idempotent-Replayed': {
                description: '`true` where an earlier request with this idempotency key has created it.',
                schema: { const: 'true' },
              },
            }),
          },
          content: content(method.output, 'response', answerExample(route)),
        },
      ],
      ...(isForPayers ? [['304', notModified] as const] : []),
      ...errors.map(([status, response]) => [String(status), response]),
      ...Object.entries(malformed).map(([status, message]) => [status, malformedAnswer(message)]),
    ]),
  };
}

/**
 * Shows required fields and fields with a default. Others, such as a different payout wallet, should not be copied
 * without thought.
 */
function requestExample({ method, pathFields }: HttpRoute): JsonSchema {
  return Object.fromEntries(
    method.input.fields
      .filter((field) => !pathFields.includes(field))
      .map((field) => [field, schemaOptionsOf(field)] as const)
      .filter(([field, keywords]) => isRequiredField(field) || 'default' in keywords)
      .map(([field, keywords]) => [field.name, keywords.examples?.[0]]),
  );
}

function answerExample({ method, successStatus }: HttpRoute): JsonSchema {
  const replaced = getOption(method, json_method).example;
  return withoutNulls({
    ...exampleOfMessage(
      method.output,
      (field) => successStatus !== 201 || !getOption(field, json_field).afterCreation,
    ),
    ...(replaced !== '' && JSON.parse(replaced)),
  });
}

const withoutNulls = (example: JsonSchema): JsonSchema =>
  Object.fromEntries(Object.entries(example).filter(([, value]) => value !== null));

/** The fields that have an example, as an answer shows them. Messages inside it do not have the fields it may leave out. */
function exampleOfMessage(
  desc: DescMessage,
  isShown: (field: DescField) => boolean = () => true,
): JsonSchema {
  const exampleValueOf = (field: DescField): unknown => {
    const [example] = schemaOptionsOf(field).examples ?? [];
    const { message } = field;
    if (message === undefined || message.typeName.startsWith('google.protobuf.')) return example;
    // A message is shown if the contract says so: an event is about one of several.
    if (field.fieldKind === 'message' && example === undefined) return undefined;
    const inside = {
      ...exampleOfMessage(message, (inner) => !getOption(inner, json_field).omitEmpty),
      ...(example as JsonSchema | undefined),
    };
    if (field.fieldKind !== 'list') return inside;
    return getOption(field, json_field).keepEmpty ? [inside] : undefined;
  };
  return Object.fromEntries(
    desc.fields
      .filter(isShown)
      .map((field) => [field.name, exampleValueOf(field)] as const)
      .filter(([, value]) => value !== undefined),
  );
}

/** A request of the service to an endpoint, for each type of event. */
function webhooksOf(schemas: Schemas, options: OpenApiOptions): Record<string, object> | undefined {
  if (options.webhooks === undefined) return undefined;
  const { message, descriptions } = options.webhooks;
  const sent = (type: string, description: string) => ({
    post: {
      operationId: `on_${type.replace('.', '_')}`,
      summary: description,
      description:
        'Sent to every webhook endpoint that wants it. Verify the signature before you use the body, and answer at once.',
      tags: [webhooksTag],
      security: [],
      parameters: signatureHeaders,
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: refTo(message, 'response', schemas, options),
            example: withoutNulls({ ...exampleOfMessage(message), ...exampleOfEvent(message, type) }),
          },
        },
      },
      responses: {
        '2XX': { description: 'Received. Anything else, or no answer within 10 seconds: it is sent again.' },
        '410': { description: 'The endpoint is disabled: nothing more is sent to it.' },
      },
    },
  });
  return Object.fromEntries(
    Object.entries(descriptions).map(([type, description]) => [type, sent(type, description)]),
  );
}

const webhooksTag = 'Webhook endpoints';

const signatureHeader = (name: string, description: string, example: string) => ({
  name,
  in: 'header',
  required: true,
  description,
  schema: { type: 'string' },
  example,
});

const signatureHeaders = [
  signatureHeader(
    'webhook-id',
    'The id of the event, the same in every attempt.',
    'evt_01m7z1n4qpf2k8c3v7w5x9y0za',
  ),
  signatureHeader('webhook-timestamp', 'Seconds since 1970 of this attempt.', '1795262642'),
  signatureHeader(
    'webhook-signature',
    'Signatures of the id, the timestamp and the body (Standard Webhooks), one for each valid secret, separated by spaces.',
    'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=',
  ),
];

/** The example of an event of that type: about the one resource that the type is named after. */
function exampleOfEvent(message: DescMessage, type: string): JsonSchema {
  const kinds = message.fields.find(({ name }) => name === 'data')?.message?.fields;
  const [resource = '', word = ''] = type.split('.');
  const field = kinds?.find(({ name }) => name === resource);
  if (field?.message === undefined) throw new Error(`no field of the event's data is called ${resource}`);
  const status = field.message.fields.find(({ name }) => name === 'status');
  const words = status?.fieldKind === 'enum' ? enumWords(status.enum).map((value) => value.word) : [];
  const example = exampleOfMessage(field.message, (inner) => !getOption(inner, json_field).omitEmpty);
  const ended = words.includes(word) ? { status: word, ...endOf(field.message, word) } : {};
  const data = { [resource]: { ...example, ...ended } };
  // Only the events of an intent are counted.
  return { type, data, ...(resource !== 'payment_intent' && { sequence: null }) };
}

/** The moment at which a resource got a status, if it has a field for it. */
function endOf({ fields }: DescMessage, word: string): JsonSchema {
  const name = `${word}_at`;
  return fields.some((field) => field.name === name) ? { [name]: '2026-11-21T12:04:02.000Z' } : {};
}

const idempotencyKeyParameter = {
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
};

/** A parameter for a field in the path or the query. */
function parameterOf(
  field: DescField,
  place: 'path' | 'query',
  schemas: Schemas,
  options: OpenApiOptions,
): object {
  const { examples, ...keywords } = schemaOptionsOf(field);
  const [example] = examples ?? [];
  return {
    name: field.name,
    in: place,
    required: place === 'path' || isRequiredField(field),
    description: options.commentOf(field),
    schema: {
      ...typeOf(field, 'request', schemas, options),
      ...(isInteger(field) && { minimum: 1 }),
      ...keywords,
    },
    ...(example !== undefined && { example }),
  };
}

/** Integers of a query are written as `[1-9][0-9]*`. */
function isInteger(field: DescField): boolean {
  return field.fieldKind === 'scalar' && integerRangeOf(field.scalar) !== undefined;
}

function refusalOf(codes: readonly ErrorCode[]): object {
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

function malformedAnswer(message: string): object {
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
function errorReference(): Record<string, object> {
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

function refTo(
  desc: DescMessage,
  direction: Direction,
  schemas: Schemas,
  options: OpenApiOptions,
  without: readonly DescField[] = [],
): JsonSchema {
  const known = schemas.get(desc.name);
  if (known !== undefined && known.desc !== desc) {
    throw new Error(`${desc.typeName} and ${known.desc.typeName} have one name in the document: rename one`);
  }
  if (known !== undefined && known.direction !== direction) {
    throw new Error(
      `${desc.typeName} is in requests and in answers, of which only the answers may grow: use two messages`,
    );
  }
  if (known === undefined) {
    // Stored before it is filled, because a message can be recursive.
    const schema: JsonSchema = {};
    schemas.set(desc.name, { desc, direction, schema });
    const isRequired = (field: DescField) =>
      isRequiredField(field) || (direction === 'response' && !mayBeAbsent(field));
    const fields = desc.fields.filter((field) => !without.includes(field));
    Object.assign(schema, {
      type: 'object',
      description: options.commentOf(desc),
      properties: Object.fromEntries(
        fields.map((field) => [field.name, propertyOf(field, direction, schemas, options)]),
      ),
      required: fields.filter(isRequired).map(({ name }) => name),
      // An unknown field in a request is refused. A new field in an answer must not make the answer invalid.
      ...(direction === 'request' ? { additionalProperties: false } : {}),
    });
  }
  return { $ref: `#/components/schemas/${desc.name}` };
}

function propertyOf(
  field: DescField,
  direction: Direction,
  schemas: Schemas,
  options: OpenApiOptions,
): JsonSchema {
  const type = typeOf(field, direction, schemas, options);
  const words =
    field.fieldKind === 'enum'
      ? enumWords(field.enum).map(({ word, value }) => `- \`${word}\`: ${options.commentOf(value)}`)
      : [];
  const description = [options.commentOf(field), ...(words.length > 0 ? [words.join('\n')] : [])].join(
    '\n\n',
  );
  const schema: JsonSchema = { ...type, description, ...schemaOptionsOf(field) };
  return direction === 'response' ? openToGrowth(schema) : withoutDefault(schema, isRequiredField(field));
}

/**
 * The schema of an answer's field. Its known values are listed, but later values are valid too, so that neither a
 * validator nor a generated type refuses them. `x-extensible-enum` is the keyword of Zalando's API guidelines for that.
 */
function openToGrowth({ enum: words, const: only, ...schema }: JsonSchema): JsonSchema {
  const known = words ?? (only === undefined ? undefined : [only]);
  return known === undefined ? schema : { ...schema, 'x-extensible-enum': known };
}

/**
 * The schema of a request's field. The default is in the description and under our own keyword. Type generators such as
 * openapi-typescript make a field with JSON Schema's `default` mandatory, because they do not know that the schema is
 * only for requests.
 */
function withoutDefault({ default: value, ...schema }: JsonSchema, isRequired: boolean): JsonSchema {
  const withDefault = value === undefined ? schema : { ...schema, 'x-default': value };
  if (isRequired) return withDefault;
  // `null` means absent.
  return {
    ...withDefault,
    type: [schema.type, 'null'],
    ...('enum' in schema ? { enum: [...(schema.enum as unknown[]), null] } : {}),
  };
}

function typeOf(
  field: DescField,
  direction: Direction,
  schemas: Schemas,
  options: OpenApiOptions,
): JsonSchema {
  switch (field.fieldKind) {
    case 'scalar':
      return scalarType(field, field.scalar);
    case 'enum':
      return { type: 'string', enum: enumWords(field.enum).map(({ word }) => word) };
    case 'message':
      if (field.message.typeName === 'google.protobuf.Struct')
        return { type: 'object', additionalProperties: true };
      if (field.message.typeName === 'google.protobuf.Timestamp')
        return { type: 'string', format: 'date-time' };
      return refTo(field.message, direction, schemas, options);
    case 'list':
      return {
        type: 'array',
        items: itemTypeOf(field, direction, schemas, options),
        ...(direction === 'request' && refusesEmptyList(field) && { minItems: 1 }),
      };
    default:
      throw new Error(
        `${field.parent.typeName}.${field.name}: teach src/contract/openapi/openapi.ts about ${field.fieldKind}s`,
      );
  }
}

function itemTypeOf(
  field: DescField & { fieldKind: 'list' },
  direction: Direction,
  schemas: Schemas,
  options: OpenApiOptions,
): JsonSchema {
  switch (field.listKind) {
    case 'scalar':
      return scalarType(field, field.scalar);
    case 'enum':
      return { type: 'string', enum: enumWords(field.enum).map(({ word }) => word) };
    case 'message':
      return refTo(field.message, direction, schemas, options);
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

/** The schema keywords that the contract adds to a field. */
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
        },
        required: ['code', 'message', 'request_id', 'doc_url'],
      },
    },
    required: ['error'],
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
    ETag: header('Stands for this answer. Send it in `If-None-Match`.', text, etagExample),
    'WWW-Authenticate': header('How to authenticate.', text, 'Bearer'),
    Accept: header('The content type that is read here.', text, 'application/json'),
  };
}

function refsTo(...names: string[]): Record<string, object> {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** Returns "payment intents" for `PaymentIntentService`. */
function nounOf(service: DescService): string {
  const words = service.name
    .replace(/Service$/, '')
    .replace(/(?<=[a-z])(?=[A-Z])/g, ' ')
    .toLowerCase();
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}s`;
}
