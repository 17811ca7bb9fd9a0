// Creates the public door's OpenAPI document from the contract: annotations become paths, messages become
// schemas, comments become descriptions. Names and enum words follow the same rules as in json-codec.ts.

import type { DescField, DescMessage, DescMethod, DescService } from '@bufbuild/protobuf';
import { getOption } from '@bufbuild/protobuf';
import { json_field, json_method } from '../gen/payments/v1/json_pb.ts';
import { type HttpRoute, httpRoutesOf, takesIdempotencyKey } from '../http-routes.ts';
import { enumWords, hasRequiredField, integerRangeOf, isRequiredField } from '../json/field-rules.ts';
import { errorReference, errorSchema, refsTo, refusalsOf, requestIdExample } from './refusals.ts';
import type { Direction, JsonSchema, SchemaContext } from './schemas.ts';
import { refTo, schemaOptionsOf, typeOf } from './schemas.ts';

interface OpenApiOptions extends Pick<SchemaContext, 'commentOf'> {
  title: string;
  version: string;
  /** Markdown for the top of the page. */
  description: string;
  services: readonly DescService[];
  /** What the service sends to webhooks: a message of this type, for each of these names. */
  webhooks?: { message: DescMessage; descriptions: Readonly<Record<string, string>> };
}

const ifNoneMatchParameter = {
  name: 'If-None-Match',
  in: 'header',
  description: 'The `ETag` of the last answer. While nothing has changed, the answer is 304 without a body.',
  schema: { type: 'string' },
};

const notModified = {
  description: 'Nothing has changed since the answer that `If-None-Match` names.',
  headers: refsTo('X-Request-Id', 'RateLimit', 'RateLimit-Policy', 'ETag'),
};

/** Creates the whole document (OpenAPI 3.1). Throws if the public JSON does not support the contract. */
export function createOpenApi(options: OpenApiOptions): object {
  const context: SchemaContext = { schemas: new Map(), commentOf: options.commentOf };
  const paths: Record<string, Record<string, object>> = {};
  const operationIds = new Set<string>();
  for (const service of options.services) {
    for (const route of httpRoutesOf(service)) {
      const { name, localName } = route.method;
      if (operationIds.has(localName))
        throw new Error(`two methods are called ${name}: an operation needs a name of its own`);
      operationIds.add(localName);
      const operation = operationOf(service, route, context);
      paths[route.path] = { ...paths[route.path], [route.httpMethod.toLowerCase()]: operation };
    }
  }
  const webhooks = options.webhooks && webhooksOf(options.webhooks, context);
  return {
    openapi: '3.1.0',
    info: {
      title: options.title,
      version: options.version,
      description: options.description,
      license: { name: 'Proprietary', identifier: 'LicenseRef-Proprietary' },
    },
    servers: [{ url: '/', description: 'The service that answers this document.' }],
    tags: options.services.map((each) => ({ name: nounOf(each), description: options.commentOf(each) })),
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
        ...Object.fromEntries([...context.schemas].map(([name, { schema }]) => [name, schema])),
        Error: errorSchema,
      },
      headers,
    },
    'x-errors': errorReference,
  };
}

function operationOf(service: DescService, route: HttpRoute, context: SchemaContext): object {
  const { method, successStatus, hasBody, pathFields: inPath } = route;
  // An empty one is accepted, too, but would be an argument without fields in generated clients.
  const describesBody = hasBody && method.input.fields.length > inPath.length;
  const takesKey = takesIdempotencyKey(route);
  const isForPayers = getOption(method, json_method).takesClientSecret;
  const [summary = '', ...details] = context.commentOf(method).split('\n\n');
  const content = (desc: DescMessage, direction: Direction, example: object) => {
    const schema = refTo(desc, direction, context, direction === 'request' ? inPath : []);
    return { 'application/json': { schema, example } };
  };
  return {
    operationId: method.localName,
    summary: summary.replace(/\n/g, ' '),
    description: details.join('\n\n'),
    tags: [nounOf(service)],
    ...(isForPayers && { security: [{ client_secret: [] }] }),
    parameters: [
      ...inPath.map((field) => parameterOf(field, 'path', context)),
      ...route.queryFields.map((field) => parameterOf(field, 'query', context)),
      ...(takesKey ? [idempotencyKeyOf(method)] : []),
      ...(isForPayers ? [ifNoneMatchParameter] : []),
    ],
    ...(describesBody && {
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
      ...refusalsOf(route),
    ]),
  };
}

/** The service's request to an endpoint, for each type of event. */
function webhooksOf(
  { message, descriptions }: NonNullable<OpenApiOptions['webhooks']>,
  context: SchemaContext,
): Record<string, object> {
  const schema = refTo(message, 'response', context);
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
        content: { 'application/json': { schema, example: exampleOfEvent(message, type) } },
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

/** By method. An intent's key is not the quickstart's, because the quickstart's request is different. */
const exampleKeys: Readonly<Record<string, string>> = {
  createPaymentIntent: 'order-1001/1',
  createRefund: 'refund-1001/1',
  createWebhookEndpoint: 'endpoint-1',
  rotateWebhookSecret: 'rotation-1',
};

const idempotencyKeyOf = ({ localName }: DescMethod) => ({
  name: 'Idempotency-Key',
  in: 'header',
  description:
    'Makes the request safe to repeat: one key for each order, refund, endpoint or rotation, and the same key for every retry of it. 1 to 255 visible ASCII characters. One that begins with a quotation mark is read as a quoted string (RFC 9651): `"order-1001"` is the key `order-1001`.',
  schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[\\x21\\x23-\\x7e][\\x21-\\x7e]*$' },
  example: exampleKeys[localName],
});

/** A parameter for a field in the path or the query. */
function parameterOf(field: DescField, place: 'path' | 'query', context: SchemaContext): object {
  const { examples, ...keywords } = schemaOptionsOf(field);
  const [example] = examples ?? [];
  return {
    name: field.name,
    in: place,
    required: place === 'path' || isRequiredField(field),
    description: context.commentOf(field),
    schema: {
      ...typeOf(field, 'request', context),
      // They are written as `[1-9][0-9]*`.
      ...(field.fieldKind === 'scalar' && integerRangeOf(field.scalar) && { minimum: 1 }),
      ...keywords,
    },
    ...(example !== undefined && { example }),
  };
}

const header = (description: string, example: string | number, schema: JsonSchema = { type: 'string' }) => ({
  description,
  schema,
  example,
});

const headers = {
  'X-Request-Id': header('This one request. Quote it when you ask us about it.', requestIdExample),
  'Retry-After': header('Seconds to wait before the next try.', 1, { type: 'integer', minimum: 1 }),
  RateLimit: header(
    'Requests that remain to this API key, and seconds until all are there again.',
    '"creates";r=999;t=1',
  ),
  'RateLimit-Policy': header(
    'Requests that an API key may send in a window of seconds.',
    '"creates";q=1000;w=2',
  ),
  ETag: header('Stands for this answer. Send it in `If-None-Match`.', '"qUiQTy8PR5uPgZdpSzAYSw"'),
  'WWW-Authenticate': header('How to authenticate.', 'Bearer'),
  Accept: header('The content type that is read here.', 'application/json'),
};

/** Returns "Payment intents" for `PaymentIntentService`. */
function nounOf(service: DescService): string {
  const words = service.name
    .replace(/Service$/, '')
    .replace(/(?<=[a-z])(?=[A-Z])/g, ' ')
    .toLowerCase();
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}s`;
}

// The examples of the OpenAPI document, from those of the contract's fields.

/** Shows required fields and those with a default. Others, such as another wallet, need thought first. */
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
  const { example: replaced, answersSecret } = getOption(method, json_method);
  const isShown = (field: DescField) => {
    const { afterCreation, secret } = getOption(field, json_field);
    return (successStatus !== 201 || !afterCreation) && (answersSecret || !secret);
  };
  const others = replaced === '' ? {} : JSON.parse(replaced);
  return withoutNulls({ ...exampleOfMessage(method.output, isShown), ...others });
}

const withoutNulls = (example: JsonSchema): JsonSchema =>
  Object.fromEntries(Object.entries(example).filter(([, value]) => value !== null));

const isAlwaysThere = (field: DescField) => {
  const { omitEmpty, secret } = getOption(field, json_field);
  return !omitEmpty && !secret;
};

/** The fields with an example, as answers show them. Messages within lack fields that may be left out. */
function exampleOfMessage(
  desc: DescMessage,
  isShown: (field: DescField) => boolean = () => true,
): JsonSchema {
  const exampleValueOf = (field: DescField): unknown => {
    const [example] = schemaOptionsOf(field).examples ?? [];
    const { message } = field;
    if (message === undefined || message.typeName.startsWith('google.protobuf.')) return example;
    // A message is shown only if it has an example: an event is about one of several.
    if (field.fieldKind === 'message' && example === undefined) return undefined;
    const inside = { ...exampleOfMessage(message, isAlwaysThere), ...(example as JsonSchema | undefined) };
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

/** The example of an event of that type. It is about the resource that the type is named after. */
function exampleOfEvent(message: DescMessage, type: string): JsonSchema {
  const kinds = message.fields.find(({ name }) => name === 'data')?.message?.fields;
  const [resource = '', word = ''] = type.split('.');
  const field = kinds?.find(({ name }) => name === resource);
  if (field?.message === undefined) throw new Error(`no field of the event's data is called ${resource}`);
  const status = field.message.fields.find(({ name }) => name === 'status');
  const words = status?.fieldKind === 'enum' ? enumWords(status.enum).map((value) => value.word) : [];
  const example = exampleOfMessage(field.message, isAlwaysThere);
  const ended = words.includes(word) ? { status: word, ...endOf(field.message, word) } : {};
  const data = { [resource]: { ...example, ...ended } };
  // Only the events of an intent or a refund have a `sequence`.
  const counted = resource === 'payment_intent' || resource === 'refund' ? {} : { sequence: null };
  return withoutNulls({ ...exampleOfMessage(message), type, data, ...counted });
}

/** The time at which a resource got a status, if it has a field for it. */
function endOf({ fields }: DescMessage, word: string): JsonSchema {
  const name = `${word}_at`;
  return fields.some((field) => field.name === name) ? { [name]: '2026-11-21T12:04:02.000Z' } : {};
}
