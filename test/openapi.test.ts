// The OpenAPI document and the service agree: answers match the document, what it allows is accepted, and what it
// forbids is refused. The document allows answers to have more fields, so that they can be extended. These tests
// forbid that, so that nothing undocumented is returned today.

import { readFile } from 'node:fs/promises';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { catalogue } from '../src/contract/error-catalogue.ts';
import { newUuid } from '../src/database/identifiers.ts';
import { blockCreates } from './support/blocker.ts';
import { type HttpAnswer, httpRequest, startService, type TestService } from './support/service.ts';
import { useService } from './support/use-service.ts';

// With a rate limit that is never reached, so that its headers are present.
const service = await useService({ RATE_LIMIT: '1000000' });

type Schema = Record<string, unknown>;
interface OpenApi {
  paths: Record<
    string,
    Record<
      string,
      {
        parameters: { name: string; schema: Schema }[];
        responses: Record<string, { headers: Record<string, unknown> }>;
      }
    >
  >;
  components: { schemas: Record<string, { properties: Record<string, Schema>; required: string[] }> };
}
const document: OpenApi = JSON.parse(await readFile('src/contract/gen/openapi.json', 'utf8'));
const operation = document.paths['/v1/payment_intents']?.post;
const responses: Record<string, { headers: Record<string, unknown> }> = operation?.responses ?? {};

const ajv = new Ajv2020({ strict: true, allErrors: true, allowUnionTypes: true });
addFormats.default(ajv);
for (const keyword of ['x-default', 'components']) ajv.addKeyword(keyword);
// Clients may get other values in the future. Answers have only these today.
ajv.addKeyword({
  keyword: 'x-extensible-enum',
  schemaType: 'array',
  compile: (known: unknown[]) => (value: unknown) => known.includes(value),
});

test.each([
  ['Checkout', 'Checkout'],
  ['CheckoutPayment', 'Payment'],
])("%s of the checkout's package has the fields of %s", async (type, name) => {
  const text = await readFile('checkout/sdk/gen/checkout.ts', 'utf8');
  const [, body = ''] = new RegExp(`interface ${type} \\{\\n([\\s\\S]*?)\\n\\}`).exec(text) ?? [];
  const fields = [...body.matchAll(/^ {2}(\w+)(\??): /gm)].map(([, field, mark]) => `${field}${mark}`);
  const { properties = {}, required = [] } = document.components.schemas[name] ?? {};
  const expected = Object.keys(properties).map((field) => (required.includes(field) ? field : `${field}?`));
  expect(fields.sort()).toEqual(expected.sort());
});

/** The same schema without additional fields, unless it allows them explicitly. */
function closed(schema: Schema): Schema {
  const { properties, items } = schema as { properties?: Record<string, Schema>; items?: Schema };
  return {
    ...schema,
    ...(items && { items: closed(items) }),
    ...(properties && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [name, closed(property)]),
      ),
      additionalProperties: false,
    }),
  };
}

const closedSchemas = Object.fromEntries(
  Object.entries(document.components.schemas).map(([name, schema]) => [name, closed(schema)]),
);
const validatorOf = (name: string) => {
  if (closedSchemas[name] === undefined) throw new Error(`there is no schema ${name}`);
  const components = { schemas: closedSchemas };
  return ajv.getSchema(name) ?? ajv.compile({ $ref: `#/components/schemas/${name}`, components, $id: name });
};
const isRequest = validatorOf('CreatePaymentIntentRequest');

function expectDocumented(answer: HttpAnswer): void {
  const response = responses[String(answer.status)];
  expect(response, `the document has no answer ${answer.status}`).toBeDefined();
  const validate = validatorOf(answer.status === 201 ? 'PaymentIntent' : 'Error');
  validate(JSON.parse(answer.body));
  expect(validate.errors ?? [], answer.body).toEqual([]);
  // Only some answers of a status have these.
  const sometimes = answer.status === 201 ? ['idempotent-replayed'] : [];
  const known = Object.keys(response?.headers ?? {}).map((name) => name.toLowerCase());
  const own = Object.keys(answer.headers).filter(
    (name) => !/^(?:content-type|content-length|cache-control|connection|date|keep-alive)$/.test(name),
  );
  expect([answer.status, [...new Set([...own, ...sometimes])].sort()]).toEqual([answer.status, known.sort()]);
}

const create = (body: string, headers: Record<string, string> = {}, at: TestService = service) =>
  httpRequest(
    `${at.publicUrl}/v1/payment_intents`,
    {
      headers: {
        authorization: `Bearer ${at.merchant.keys.testnet.apiKey}`,
        'content-type': 'application/json',
        ...headers,
      },
    },
    body,
  );

test('the service returns it at /openapi.json', async () => {
  const answer = await fetch(`${service.publicUrl}/openapi.json`);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/json']);
  expect(await answer.json()).toEqual(document);
  const again = await fetch(`${service.publicUrl}/openapi.json`, {
    headers: { 'if-none-match': answer.headers.get('etag') ?? '' },
  });
  expect(again.status).toBe(304);
});

test('it names the public address, if that is configured', async () => {
  const own = await startService({ PUBLIC_URL: 'https://pay.example' }, { beside: service });
  const text = await (await fetch(`${own.publicUrl}/openapi.json`)).text();
  expect(JSON.parse(text).servers).toMatchObject([{ url: 'https://pay.example' }]);
  expect(text).not.toContain('127.0.0.1');
  await own.close();
});

test('amounts, chains and blocks have 64 bits in generated clients', () => {
  const formats = Object.values(document.components.schemas).flatMap(({ properties = {} }) =>
    Object.entries(properties).flatMap(([name, { format }]) =>
      /_units$|^chain_id$|^block_number$/.test(name) ? format : [],
    ),
  );
  expect(formats.length).toBeGreaterThan(10);
  expect([...new Set(formats)]).toEqual(['int64']);
});

describe('answers can be extended', () => {
  // Validates as a client does, with the unchanged document.
  const clients = new Ajv2020({ strict: true, allErrors: true, allowUnionTypes: true });
  addFormats.default(clients);
  for (const keyword of ['x-default', 'x-extensible-enum', 'components']) clients.addKeyword(keyword);
  const acceptedBy = (name: string, answer: unknown) => {
    const { components } = document;
    const validate = clients.compile({ $ref: `#/components/schemas/${name}`, components });
    validate(answer);
    return validate.errors ?? [];
  };

  test('an intent with a new field, and a new value in each extensible field', async () => {
    const intent = JSON.parse((await create('{"amount_units":1}')).body);
    const later = {
      ...intent,
      ...{ paid_at: null, status: 'succeeded', mode: 'sandbox', lane: 'terminal' },
      ...{ chain: 'ethereum', chain_id: 1, token_symbol: 'EURC', decimals: 18, expires_in_minutes: 1440 },
    };
    expect(acceptedBy('PaymentIntent', later)).toEqual([]);
    // No field may be removed, except the client secret, which lists and events omit.
    for (const name of Object.keys(intent).filter((field) => field !== 'client_secret')) {
      expect(acceptedBy('PaymentIntent', { ...later, [name]: undefined })).toHaveLength(1);
    }
  });

  test('an error with a new code and new fields at every level', async () => {
    const { error } = JSON.parse((await create('{}')).body);
    const details = error.details.map((detail: object) => ({ ...detail, rule: 'required' }));
    const later = { error: { ...error, code: 'wallet_blocked', hint: 'x', details }, trace: 'x' };
    expect(acceptedBy('Error', later)).toEqual([]);
  });

  test('enumerations and fields are open in answers and closed in requests', () => {
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      if (name.endsWith('Request')) expect(schema).toMatchObject({ additionalProperties: false });
      else
        expect([name, JSON.stringify(schema)]).toEqual([
          name,
          expect.not.stringMatching(/"(?:enum|const)":|"additionalProperties":false/),
        ]);
    }
  });
});

describe('every answer matches the document', () => {
  test.each<[number, string, Record<string, string>]>([
    [201, '{"amount_units":12500000}', {}],
    [201, '{"amount_units":1,"metadata":{"a":[1,{"b":null}]}}', { 'idempotency-key': 'documented' }],
    [201, '{"amount_units":1,"metadata":{"a":[1,{"b":null}]}}', { 'idempotency-key': 'documented' }],
    [422, '{"amount_units":2}', { 'idempotency-key': 'documented' }],
    [400, '{"amount_units":0}', {}],
    [400, 'nonsense', {}],
    [400, '{"amount_units":1}', { 'idempotency-key': 'a b' }],
    [401, '{"amount_units":1}', { authorization: '' }],
    [401, '{"amount_units":1}', { authorization: 'Bearer x' }],
    [403, '{"amount_units":1}', { origin: 'https://shop.example' }],
    [413, `"${'x'.repeat(70_000)}"`, {}],
    [415, '{"amount_units":1}', { 'content-type': 'text/plain' }],
  ])('%i', async (status, body, headers) => {
    const answer = await create(body, headers);
    expect(answer.status).toBe(status);
    expectDocumented(answer);
  });

  test('429 if a key has reached its rate limit', async () => {
    const limited = await startService({ RATE_LIMIT: '1' });
    let answer = await create('{"amount_units":1}', {}, limited);
    while (answer.status === 201) answer = await create('{"amount_units":1}', {}, limited);
    expect(answer.status).toBe(429);
    expectDocumented(answer);
    await limited.close();
  });

  test('503 if the queue is full', async () => {
    const narrow = await startService({ QUEUE_SIZE: '1', RATE_LIMIT: '1000000' });
    const blocker = await blockCreates(narrow.location);
    const all = Array.from({ length: 20 }, () => create('{"amount_units":1}', {}, narrow));
    const refused = await Promise.race(
      all.map(async (one) => ((await one).status === 201 ? new Promise<never>(() => {}) : one)),
    );
    await blocker.release();
    await Promise.all(all);
    expect(refused.status).toBe(503);
    expectDocumented(refused);
    await narrow.close();
  });

  test('500 if the database lacks a required row', async () => {
    await service.query('alter table payment_intents rename to gone');
    const answer = await create('{"amount_units":1}');
    await service.query('alter table gone rename to payment_intents');
    expect(answer.status).toBe(500);
    expectDocumented(answer);
  });

  test('431 if the headers are too large, and 408 if the body does not arrive', async () => {
    const large = await create('{"amount_units":1}', { 'x-large': 'x'.repeat(20_000) });
    expect(large.status).toBe(431);
    expectDocumented(large);
    const hasty = await startService({ HEADERS_TIMEOUT: '1', REQUEST_TIMEOUT: '1' });
    const late = await httpRequest(
      `${hasty.publicUrl}/v1/payment_intents`,
      {
        headers: {
          authorization: `Bearer ${hasty.merchant.keys.testnet.apiKey}`,
          'content-type': 'application/json',
          'content-length': '100',
        },
      },
      '{',
    );
    expect(late.status).toBe(408);
    expectDocumented(late);
    await hasty.close();
  });

  test('every code that the public port can return has an example where it can return it', () => {
    const operations = Object.values(document.paths).flatMap((path) => Object.values(path));
    const elsewhere = ['not_found', 'method_not_allowed', 'permission_denied'];
    for (const [code, { httpStatus }] of Object.entries(catalogue)) {
      const answers = operations.map((each) => JSON.stringify(each.responses[String(httpStatus)] ?? ''));
      const examples = answers.filter((answer) => answer.includes(`"${code}":{"summary"`));
      expect([code, examples.length > 0]).toEqual([code, !elsewhere.includes(code)]);
      const ofLaterMethods = ['resource_missing', 'invalid_state', 'cursor_expired', 'client_secret_invalid'];
      const isOfCreation = JSON.stringify(responses).includes(`"${code}":{"summary"`);
      expect([code, isOfCreation]).toEqual([code, ![...elsewhere, ...ofLaterMethods].includes(code)]);
    }
  });
});

/** Generates values of a property's schema, by the keywords that the document uses. */
function valuesOf(name: string, schema: Schema): fc.Arbitrary<unknown> {
  const types = [schema.type].flat();
  const value = (): fc.Arbitrary<unknown> => {
    if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
    if (types.includes('integer')) {
      const { minimum: min = -1e6, maximum: max = 1e6 } = schema as { minimum?: number; maximum?: number };
      return fc.oneof(fc.integer({ min, max }), fc.constantFrom(min, max));
    }
    if (types.includes('object')) {
      return fc.dictionary(
        fc.string({ unit: 'grapheme-ascii', maxLength: 20 }),
        fc.oneof(fc.string({ unit: 'grapheme-ascii' }), fc.integer(), fc.boolean(), fc.constant(null)),
        { maxKeys: 5, noNullPrototype: true },
      );
    }
    // The document can only describe an address's form. In lower case there is no checksum to check.
    if (schema.pattern === '^0x[0-9a-fA-F]{40}$') {
      return fc
        .uint8Array({ minLength: 20, maxLength: 20 })
        .map((bytes) => `0x${Buffer.from(bytes).toString('hex')}`);
    }
    throw new Error(`teach this test to make a ${name}`);
  };
  return types.includes('null') ? fc.oneof({ weight: 6, arbitrary: value() }, fc.constant(null)) : value();
}

const { properties, required } = document.components.schemas.CreatePaymentIntentRequest as {
  properties: Record<string, Schema>;
  required: string[];
};
const request = fc.record(
  Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, valuesOf(name, schema)])),
  { requiredKeys: required },
);

/** Generates values of the header that the document describes. */
const [keyParameter] = operation?.parameters ?? [];
const keySchema = keyParameter?.schema as { pattern: string; maxLength: number };
const idempotencyKey = fc.stringMatching(new RegExp(keySchema.pattern), { maxLength: keySchema.maxLength });

test('what the document allows is accepted', async () => {
  await fc.assert(
    fc.asyncProperty(request, idempotencyKey, async (body, key) => {
      expect(isRequest(body), JSON.stringify(isRequest.errors)).toBe(true);
      const answer = await create(JSON.stringify(body), {
        'idempotency-key': `${key.slice(0, 219)}${newUuid()}`,
      });
      expect([answer.status, answer.status === 201 ? '' : answer.body]).toEqual([201, '']);
      expectDocumented(answer);
    }),
    { numRuns: 200 },
  );
});

/** Ways to break a request against its schema. */
const breakage = fc.oneof(
  fc.constantFrom(...required).map((name) => (body: Schema) => ({ ...body, [name]: undefined })),
  fc
    .tuple(fc.constantFrom(...Object.keys(properties)), fc.constantFrom('x', 1.5, [], true, -1, { a: 1 }, ''))
    .map(([name, value]) => (body: Schema) => ({ ...body, [name]: value })),
  fc
    .constantFrom<Schema>(
      { amount_units: 9007199254740992 },
      { metadata: Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`k${i}`, i])) },
      { metadata: { ['k'.repeat(65)]: 1 } },
    )
    .map((change) => (body: Schema) => ({ ...body, ...change })),
  fc.stringMatching(/^[a-z_]{1,12}$/).map((name) => (body: Schema) => ({ ...body, [`x_${name}`]: 1 })),
);

test('what the document forbids is refused', async () => {
  let refused = 0;
  await fc.assert(
    fc.asyncProperty(request, breakage, async (body, breakIt) => {
      const broken = JSON.parse(JSON.stringify(breakIt(body)));
      fc.pre(!isRequest(broken));
      const answer = await create(JSON.stringify(broken));
      expect([answer.status, JSON.stringify(broken)]).toEqual([400, JSON.stringify(broken)]);
      expectDocumented(answer);
      refused++;
    }),
    { numRuns: 200 },
  );
  expect(refused).toBe(200);
});
