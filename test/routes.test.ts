import { create, createFileRegistry, type DescService, setExtension } from '@bufbuild/protobuf';
import {
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldOptionsSchema,
  FileDescriptorSetSchema,
  MethodOptionsSchema,
} from '@bufbuild/protobuf/wkt';
import { describe, expect, test } from 'vitest';
import { http } from '../src/contract/gen/google/api/annotations_pb.ts';
import { type HttpRule, HttpRuleSchema } from '../src/contract/gen/google/api/http_pb.ts';
import { JsonFieldSchema, json_field } from '../src/contract/gen/payments/v1/json_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type HttpRoute, httpRoutesOf } from '../src/contract/http-routes.ts';
import { createOpenApi } from '../src/contract/openapi/openapi.ts';
import { createRouter } from '../src/doors/public/router.ts';

const { OPTIONAL: optional, REPEATED: repeated } = FieldDescriptorProto_Label;
const string = { type: FieldDescriptorProto_Type.STRING };
/** Without an example, the document cannot show a field. */
const described = create(FieldOptionsSchema);
setExtension(described, json_field, create(JsonFieldSchema, { schema: '{"examples":["x"]}' }));

/** A service with one method that has this rule. */
function serviceWith(
  rule: Partial<HttpRule> | undefined,
  name = 'DoIt',
  { serverStreaming = false, hasOnlyName = false } = {},
): DescService {
  const options = create(MethodOptionsSchema);
  if (rule !== undefined) setExtension(options, http, create(HttpRuleSchema, rule as never));
  const registry = createFileRegistry(
    create(FileDescriptorSetSchema, {
      file: [
        {
          name: 't.proto',
          package: 't',
          syntax: 'proto3',
          messageType: [
            {
              name: 'M',
              field: [
                { name: 'name', number: 1, ...string, label: optional, options: described },
                { name: 'size', number: 2, type: FieldDescriptorProto_Type.INT32, label: optional },
                { name: 'names', number: 3, ...string, label: repeated },
              ].slice(0, hasOnlyName ? 1 : 3),
            },
          ],
          service: [
            {
              name: 'S',
              method: [{ name, inputType: '.t.M', outputType: '.t.M', options, serverStreaming }],
            },
          ],
        },
      ],
    }),
  );
  return registry.getService('t.S') as DescService;
}

const post = (value: string) => ({ pattern: { case: 'post', value } as const, body: '*' });

test('the methods of an intent have the specified routes', () => {
  const { createPaymentIntent, getPaymentIntent, listPaymentIntents, cancelPaymentIntent } =
    PaymentIntentService.method;
  const { id } = getPaymentIntent.input.field;
  const { id: idToCancel } = cancelPaymentIntent.input.field;
  const collection = { path: '/v1/payment_intents', pathFields: [] };
  expect(httpRoutesOf(PaymentIntentService)).toEqual([
    {
      ...collection,
      httpMethod: 'POST',
      method: createPaymentIntent,
      hasBody: true,
      queryFields: [],
      successStatus: 201,
    },
    {
      httpMethod: 'GET',
      path: '/v1/payment_intents/{id}',
      pathFields: [id],
      method: getPaymentIntent,
      hasBody: false,
      queryFields: [],
      successStatus: 200,
    },
    {
      ...collection,
      httpMethod: 'GET',
      method: listPaymentIntents,
      hasBody: false,
      queryFields: listPaymentIntents.input.fields,
      successStatus: 200,
    },
    {
      httpMethod: 'POST',
      path: '/v1/payment_intents/{id}/cancel',
      pathFields: [idToCancel],
      method: cancelPaymentIntent,
      hasBody: true,
      queryFields: [],
      successStatus: 200,
    },
  ]);
});

test('every annotated method gets its route; only a Create returns 201', () => {
  expect(httpRoutesOf(serviceWith(post('/v1/things'), 'CreateThing'))).toMatchObject([
    { path: '/v1/things', successStatus: 201 },
  ]);
  expect(
    httpRoutesOf(serviceWith({ pattern: { case: 'put', value: '/v1/a.b/c-d' }, body: '*' })),
  ).toMatchObject([{ httpMethod: 'PUT', path: '/v1/a.b/c-d', successStatus: 200 }]);
  expect(httpRoutesOf(serviceWith(undefined))).toEqual([]);
});

describe('an unsupported rule prevents the start', () => {
  test.each<[string, Partial<HttpRule>, string]>([
    ['no pattern', { body: '*' }, 'it names no HTTP method'],
    ['get with a body', { pattern: { case: 'get', value: '/v1/a' }, body: '*' }, 'GET with a body'],
    [
      'a custom method',
      { pattern: { case: 'custom', value: { kind: 'HEAD', path: '/v1/a' } as never }, body: '*' },
      'custom HTTP methods',
    ],
    [
      'one field as the body',
      { pattern: { case: 'post', value: '/v1/a' }, body: 'thing' },
      'body is "thing", not "*" or absent',
    ],
    ['a response body', { ...post('/v1/a'), responseBody: 'thing' }, 'response_body'],
    [
      'additional bindings',
      { ...post('/v1/a'), additionalBindings: [create(HttpRuleSchema, post('/v1/b') as never)] },
      'additional_bindings',
    ],
    [
      'a variable that is not a field',
      post('/v1/{id}'),
      'the path takes "id", which is not a string field of t.M',
    ],
    [
      'a variable that is not a string',
      post('/v1/{size}'),
      'the path takes "size", which is not a string field of t.M',
    ],
    ['a variable twice', post('/v1/{name}/{name}'), 'the path "/v1/{name}/{name}" takes a field twice'],
    [
      'a list in the query',
      { pattern: { case: 'get', value: '/v1/a' } },
      '"names" would come in the query, which has no form for it',
    ],
    ...['/v1/{name=shelves/*}', '/v1/*', '/v1/things:cancel', '', 'v1', '/v1/'].map(
      (path): [string, Partial<HttpRule>, string] => [
        `the path ${JSON.stringify(path)}`,
        post(path),
        `the path "${path}" has more than literal segments and variables of one segment`,
      ],
    ),
  ])('%s', (_, rule, why) => {
    expect(() => httpRoutesOf(serviceWith(rule))).toThrow(
      `t.S.DoIt has an unsupported google.api.http rule: ${why}`,
    );
  });

  test('a stream', () => {
    expect(() => httpRoutesOf(serviceWith(post('/v1/a'), 'DoIt', { serverStreaming: true }))).toThrow(
      'the method streams',
    );
  });
});

test('a message used in both a request and an answer is refused: only answers may get new fields', () => {
  const document = { title: 'T', version: '1', description: '', commentOf: () => '' };
  expect(() =>
    createOpenApi({
      ...document,
      services: [serviceWith(post('/v1/things'), 'DoIt', { hasOnlyName: true })],
    }),
  ).toThrow(/t\.M is in requests and in answers/);
});

test('a path that does not begin with a slash, which HTTP/2 can carry, has no route', () => {
  const [route] = httpRoutesOf(PaymentIntentService) as [HttpRoute];
  const router = createRouter([route]);
  expect(router.find('/v1/payment_intents')?.byMethod.get('POST')).toBe(route);
  for (const path of ['x/v1/payment_intents', 'v1/payment_intents', '', '*']) {
    expect(router.find(path)).toBeUndefined();
  }
});
