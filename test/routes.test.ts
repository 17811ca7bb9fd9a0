import { create, createFileRegistry, type DescService, setExtension } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema, MethodOptionsSchema } from '@bufbuild/protobuf/wkt';
import { describe, expect, test } from 'vitest';
import { http } from '../src/contract/gen/google/api/annotations_pb.ts';
import { type HttpRule, HttpRuleSchema } from '../src/contract/gen/google/api/http_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { httpRoutesOf } from '../src/contract/http-routes.ts';
import { createOpenApi } from '../src/contract/openapi/openapi.ts';

/** A service with one method with that rule. */
function serviceWith(
  rule: Partial<HttpRule> | undefined,
  name = 'DoIt',
  serverStreaming = false,
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
          messageType: [{ name: 'M' }],
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

test('the contract has the one specified route', () => {
  expect(httpRoutesOf(PaymentIntentService)).toEqual([
    {
      httpMethod: 'POST',
      path: '/v1/payment_intents',
      method: PaymentIntentService.method.createPaymentIntent,
      successStatus: 201,
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
    ['get', { pattern: { case: 'get', value: '/v1/a' } }, '"get" takes its fields from the path and query'],
    [
      'delete',
      { pattern: { case: 'delete', value: '/v1/a' } },
      '"delete" takes its fields from the path and query',
    ],
    [
      'a custom method',
      { pattern: { case: 'custom', value: { kind: 'HEAD', path: '/v1/a' } as never }, body: '*' },
      'custom HTTP methods',
    ],
    ['no body', { pattern: { case: 'post', value: '/v1/a' } }, 'body is "", not "*"'],
    [
      'one field as the body',
      { pattern: { case: 'post', value: '/v1/a' }, body: 'thing' },
      'body is "thing", not "*"',
    ],
    ['a response body', { ...post('/v1/a'), responseBody: 'thing' }, 'response_body'],
    [
      'additional bindings',
      { ...post('/v1/a'), additionalBindings: [create(HttpRuleSchema, post('/v1/b') as never)] },
      'additional_bindings',
    ],
    ['a variable', post('/v1/things/{id}'), 'the path "/v1/things/{id}" is not literal'],
    ['a wildcard', post('/v1/*'), 'the path "/v1/*" is not literal'],
    ['a verb', post('/v1/things:cancel'), 'the path "/v1/things:cancel" is not literal'],
    ['an empty path', post(''), 'the path "" is not literal'],
    ['a path without a slash', post('v1'), 'the path "v1" is not literal'],
    ['a trailing slash', post('/v1/'), 'the path "/v1/" is not literal'],
  ])('%s', (_, rule, why) => {
    expect(() => httpRoutesOf(serviceWith(rule))).toThrow(
      `t.S.DoIt has an unsupported google.api.http rule: ${why}`,
    );
  });

  test('a stream', () => {
    expect(() => httpRoutesOf(serviceWith(post('/v1/a'), 'DoIt', true))).toThrow('the method streams');
  });
});

test('a message used in both a request and an answer is refused: only answers may get new fields', () => {
  const document = { title: 'T', version: '1', description: '', commentOf: () => '' };
  expect(() => createOpenApi({ ...document, services: [serviceWith(post('/v1/things'))] })).toThrow(
    /t\.M is in requests and in answers/,
  );
});
