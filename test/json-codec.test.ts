import {
  create,
  createFileRegistry,
  fromJson,
  type JsonObject,
  type JsonValue,
  toJson,
} from '@bufbuild/protobuf';
import { FileDescriptorSetSchema, TimestampSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { EventDataSchema } from '../src/contract/gen/payments/v1/event_pb.ts';
import {
  Chain,
  Lane,
  Mode,
  PaymentIntentSchema,
  PaymentIntentStatus,
  Token,
} from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import {
  CreatePaymentIntentRequestSchema,
  ListPaymentIntentsResponseSchema,
} from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { InexactNumber, parseIJson } from '../src/contract/json/i-json.ts';
import { createJsonCodec } from '../src/contract/json/json-codec.ts';

const request = createJsonCodec(CreatePaymentIntentRequestSchema);
const intent = createJsonCodec(PaymentIntentSchema);

const jsonText = fc.string({ unit: 'grapheme' }).filter((text) => !text.includes('\0'));
const jsonNumber = fc.oneof(
  fc.maxSafeInteger().map((n) => n + 0),
  fc.double({ noNaN: true, noDefaultInfinity: true }).filter((n) => !Number.isInteger(n)),
);
/** Any JSON whose numbers fit a double and whose text PostgreSQL can store. */
const json = fc.letrec<{ value: JsonValue; object: JsonObject }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(null, true, false),
    jsonNumber,
    jsonText,
    fc.array(tie('value'), { maxLength: 4 }),
    tie('object'),
  ),
  object: fc.dictionary(
    fc.oneof(jsonText, fc.constantFrom('__proto__', 'constructor', 'toString', '')),
    tie('value'),
    {
      maxKeys: 6,
      noNullPrototype: true,
    },
  ),
}));

describe('the I-JSON reader, compared with JSON.parse', () => {
  test('reads the same values as JSON.parse', () => {
    fc.assert(
      fc.property(json.value, fc.constantFrom(undefined, 1, '\t'), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        expect(parseIJson(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 1000 },
    );
  });

  test('refuses what JSON.parse refuses, for any change of a valid text', () => {
    const mutation = fc.record({
      at: fc.nat(),
      remove: fc.nat({ max: 3 }),
      insert: fc.oneof(
        fc.constantFrom(...'{}[]:,"\\ntfe+-.0123456789 \t\n\0\ufeff'),
        fc.string({ maxLength: 2 }),
      ),
    });
    fc.assert(
      fc.property(json.value, mutation, (value, { at, remove, insert }) => {
        const valid = JSON.stringify(value);
        const position = at % (valid.length + 1);
        const text = valid.slice(0, position) + insert + valid.slice(position + remove);
        let expected: unknown;
        try {
          expected = JSON.parse(text);
        } catch {
          expect(() => parseIJson(text)).toThrow(/at line \d+ column \d+$/);
          return;
        }
        let actual: unknown;
        try {
          actual = parseIJson(text);
        } catch (error) {
          // The only valid JSON texts that we refuse.
          expect(String(error)).toMatch(/A name stands twice|Nested deeper/);
          return;
        }
        expect(withoutInexact(actual)).toEqual(withoutInexact(expected));
      }),
      { numRuns: 5000 },
    );
  });

  test.each([
    ['9007199254740993', true],
    ['1.0000000000000001', false],
    ['1e400', true],
    ['-1e400', true],
    ['1e-400', false],
    ['12345678901234567890', true],
    ['0.1234567890123456789', false],
    ['1e999999999999', true],
    ['1e-999999999999', false],
    ['100000000000000000000000.5', false],
  ])('%s does not fit a double', (text, isInteger) => {
    expect(parseIJson(text)).toMatchObject({ text, isInteger });
  });

  test.each([
    ['-0', 0],
    ['5.0', 5],
    ['1e2', 100],
    ['1E+2', 100],
    ['0e999999', 0],
    ['1.10', 1.1],
    ['9007199254740991', 9007199254740991],
    ['9007199254740992', 9007199254740992],
    ['1e23', 1e23],
    ['5e-324', 5e-324],
    ['0.1', 0.1],
    ['120e-1', 12],
  ])('%s is %d', (text, value) => {
    expect(Object.is(parseIJson(text), value)).toBe(true);
  });

  test('a number is read exactly or kept as text', () => {
    const digits = fc.tuple(
      fc.boolean(),
      fc.nat(),
      fc.option(fc.nat()),
      fc.option(fc.integer({ min: -400, max: 400 })),
    );
    fc.assert(
      fc.property(digits, ([negative, whole, fraction, exponent]) => {
        const text = `${negative ? '-' : ''}${whole}${fraction === null ? '' : `.${fraction}`}${exponent === null ? '' : `e${exponent}`}`;
        const value = parseIJson(text);
        if (value instanceof InexactNumber) expect(value.text).toBe(text);
        else expect(value).toBe(Number(text) + 0);
      }),
      { numRuns: 2000 },
    );
  });

  test('accepts 16 levels of nesting and no more', () => {
    expect(() => parseIJson('['.repeat(16) + ']'.repeat(16))).not.toThrow();
    expect(() => parseIJson('['.repeat(17) + ']'.repeat(17))).toThrow(/deeper than 16/);
  });
});

/** The same value, with every number that a double cannot hold rounded to a double. */
function withoutInexact(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (_, inner) => (inner instanceof InexactNumber ? Number(inner.text) : inner)) ??
      'null',
  );
}

const wallet = fc.stringMatching(/^0x[0-9a-f]{40}$/);
const amount = fc.bigInt({ min: 0n, max: 2n ** 53n - 1n });
const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });

/** A request in our JSON and in protobuf's own JSON. */
const requests = fc
  .record(
    {
      amount_units: amount,
      chain: fc.constantFrom('base', 'polygon'),
      wallet_address: wallet,
      expires_in_minutes: int32,
      lane: fc.constantFrom('sdk', 'manual'),
      metadata: json.object,
      token: fc.constant('USDC'),
    },
    { requiredKeys: ['amount_units'] },
  )
  .map((fields) => ({
    ours: { ...fields, amount_units: Number(fields.amount_units) },
    protobuf: {
      ...fields,
      amount_units: String(fields.amount_units),
      ...(fields.chain ? { chain: `CHAIN_${fields.chain.toUpperCase()}` } : {}),
      ...(fields.lane ? { lane: `LANE_${fields.lane.toUpperCase()}` } : {}),
      ...(fields.token ? { token: `TOKEN_${fields.token}` } : {}),
    },
  }));

describe('the JSON codec, compared with protobuf-es where the two agree', () => {
  test('decodes the same message', () => {
    fc.assert(
      fc.property(requests, ({ ours, protobuf }) => {
        const { message, violations } = request.decode(parseIJson(JSON.stringify(ours)));
        expect(violations).toEqual([]);
        expect(message).toEqual(fromJson(CreatePaymentIntentRequestSchema, protobuf));
      }),
      { numRuns: 500 },
    );
  });

  /** Empty lists, and a client secret that is not given. */
  const isOmitted = (protobuf: JsonObject, name: string) =>
    ['payments', 'labels'].includes(name) || (name === 'client_secret' && protobuf[name] === '');

  test('encodes the same fields and values', () => {
    const intents = fc.record({
      id: fc.string(),
      clientSecret: fc.string(),
      status: fc.constant(PaymentIntentStatus.REQUIRES_PAYMENT),
      mode: fc.constantFrom(Mode.TESTNET, Mode.MAINNET),
      chain: fc.constantFrom(Chain.BASE, Chain.POLYGON),
      lane: fc.constantFrom(Lane.SDK, Lane.MANUAL),
      chainId: amount,
      amountUnits: amount,
      confirmationsRequired: int32,
      decimals: int32,
      expiresInMinutes: int32,
      tokenSymbol: fc.string(),
      tokenAddress: wallet,
      expectedWallet: wallet,
      expiresAt: fc.integer({ min: 0, max: 4_102_444_800_000 }).map((ms) => timestampFromMs(ms)),
      metadata: json.object,
    });
    fc.assert(
      fc.property(intents, (fields) => {
        const message = create(PaymentIntentSchema, fields);
        const ours = JSON.parse(intent.encode(message));
        const protobuf = toJson(PaymentIntentSchema, message, {
          useProtoFieldName: true,
          alwaysEmitImplicit: true,
        }) as JsonObject;
        const names = PaymentIntentSchema.fields.map(({ name }) => name);
        expect(Object.keys(ours)).toEqual(
          names.filter((name) => name in protobuf && !isOmitted(protobuf, name)),
        );
        for (const [name, value] of Object.entries(protobuf)) {
          if (isOmitted(protobuf, name)) continue;
          if (name === 'amount_units' || name === 'chain_id') expect(String(ours[name])).toBe(value);
          else if (['status', 'mode', 'chain', 'lane'].includes(name)) {
            expect(`${name === 'status' ? 'payment_intent_status' : name}_${ours[name]}`.toUpperCase()).toBe(
              value,
            );
          } else if (name === 'expires_at') {
            expect(ours[name]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
            expect(Date.parse(ours[name])).toBe(Date.parse(value as string));
          } else expect(ours[name]).toEqual(JSON.parse(JSON.stringify(value)));
        }
      }),
      { numRuns: 500 },
    );
  });

  test('metadata is returned byte for byte', () => {
    fc.assert(
      fc.property(json.object, (metadata) => {
        const text = JSON.stringify(metadata);
        const { message } = request.decode(parseIJson(`{"metadata":${text}}`));
        const encoded = intent.encode(create(PaymentIntentSchema, { metadata: message?.metadata ?? {} }));
        expect(encoded.endsWith(`"metadata":${text}}`)).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  test('no JSON makes it throw, and every fault has a field', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          json.value,
          fc.dictionary(
            fc.constantFrom(...CreatePaymentIntentRequestSchema.fields.map(({ name }) => name)),
            json.value,
          ),
        ),
        (value) => {
          const { message, violations } = request.decode(parseIJson(JSON.stringify(value)));
          expect(message === undefined ? violations.length === 1 : true).toBe(true);
          for (const { field, message: says } of violations)
            expect([field, says].every((text) => text.length > 0)).toBe(true);
        },
      ),
      { numRuns: 1000 },
    );
  });
});

describe('details of the codec', () => {
  test('enums accept only the words of the contract', () => {
    for (const [word, token] of [['USDC', Token.USDC]] as const) {
      expect(request.decode({ token: word }).message?.token).toBe(token);
    }
    for (const word of ['usdc', 'TOKEN_USDC', 'UNSPECIFIED', 'unspecified', '', 1, 0]) {
      expect(request.decode({ token: word }).violations).toEqual([
        { field: 'token', message: 'must be "USDC"' },
      ]);
    }
  });

  test.each([
    ['2147483648', 2147483647],
    ['-2147483649', -2147483648],
    ['1e400', 2147483647],
    ['-123456789012345678901234567890', -2147483648],
  ])('an int32 of %s is clamped', (text, nearest) => {
    expect(request.decode(parseIJson(`{"expires_in_minutes":${text}}`)).message?.expiresInMinutes).toBe(
      nearest,
    );
  });

  test.each([
    ['9007199254740993', 9007199254740993n],
    ['9223372036854775807', 9223372036854775807n],
    ['9223372036854775808', 9223372036854775807n],
    ['-1e400', -9223372036854775808n],
    ['1e18', 1000000000000000000n],
  ])('an int64 of %s is exact or clamped', (text, nearest) => {
    expect(request.decode(parseIJson(`{"amount_units":${text}}`)).message?.amountUnits).toBe(nearest);
  });

  test('a similar name is suggested for the twenty faults that a refusal lists, and no more', () => {
    const unknown = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`lane${i}`, 1]));
    const { violations } = request.decode(unknown);
    const hints = violations.filter(({ message }) => message.includes('did you mean lane?'));
    expect([violations.length, hints.length]).toEqual([30, 20]);
  });

  test('an integer that a JSON client would misread is not sent', () => {
    expect(() => intent.encode(create(PaymentIntentSchema, { amountUnits: 2n ** 53n }))).toThrow(
      /does not fit/,
    );
  });

  test('unset optional and message fields and empty lists are left out, the rest is written', () => {
    expect(JSON.parse(intent.encode(create(PaymentIntentSchema)))).toEqual({
      id: '',
      status: null,
      mode: null,
      chain: null,
      chain_id: 0,
      confirmations_required: 0,
      amount_units: 0,
      decimals: 0,
      token_symbol: '',
      token_address: '',
      expected_wallet: '',
      expires_in_minutes: 0,
      lane: null,
    });
    const zeros = { amountReceivedUnits: 0n, paymentsCount: 0, labels: [''] };
    expect(JSON.parse(intent.encode(create(PaymentIntentSchema, zeros)))).toMatchObject({
      amount_received_units: 0,
      payments_count: 0,
      labels: [''],
    });
  });

  test('the list of a List method is written even if it is empty', () => {
    const list = createJsonCodec(ListPaymentIntentsResponseSchema);
    expect(list.encode(create(ListPaymentIntentsResponseSchema))).toBe('{"payment_intents":[]}');
    const next = create(ListPaymentIntentsResponseSchema, { nextPageToken: 'x' });
    expect(list.encode(next)).toBe('{"payment_intents":[],"next_page_token":"x"}');
  });

  test('a message without any field to write is an empty object', () => {
    const data = createJsonCodec(EventDataSchema);
    expect(data.encode(create(EventDataSchema))).toBe('{}');
  });

  test('null means unset', () => {
    const nothing = Object.fromEntries(
      CreatePaymentIntentRequestSchema.fields.map(({ name }) => [name, null]),
    );
    expect(request.decode(nothing)).toEqual({
      message: create(CreatePaymentIntentRequestSchema),
      violations: [],
    });
  });

  test('every type of field is read and written, also in a nested message of the same type', () => {
    const field = (name: string, number: number, type: number, label = 1, typeName?: string) => ({
      name,
      number,
      type,
      label,
      ...(typeName ? { typeName } : {}),
    });
    const registry = createFileRegistry(
      create(FileDescriptorSetSchema, {
        file: [
          TimestampSchema.file.proto,
          {
            name: 'k.proto',
            package: 'k',
            syntax: 'proto3',
            dependency: ['google/protobuf/timestamp.proto'],
            messageType: [
              {
                name: 'M',
                field: [
                  field('flag', 1, 8),
                  field('small', 3, 5),
                  field('large', 4, 3),
                  field('words', 5, 9, 3),
                  field('at', 6, 11, 1, '.google.protobuf.Timestamp'),
                  field('inner', 7, 11, 3, '.k.M'),
                ],
              },
            ],
          },
        ],
      }),
    );
    const desc = registry.getMessage('k.M');
    if (desc === undefined) throw new Error('no such message');
    const codec = createJsonCodec(desc);
    const text =
      '{"flag":true,"small":2147483647,"large":9007199254740991,"words":["a",""],"at":"2026-01-01T00:00:00.120Z","inner":[{"flag":false,"small":0,"large":0}]}';
    const { message, violations } = codec.decode(parseIJson(text));
    expect(violations).toEqual([]);
    expect(message && codec.encode(message)).toBe(text);
    const faulty = '{"flag":1,"small":"1","words":["a",null,2],"at":"2026-01-01","inner":[{"flag":0}]}';
    const refused = codec.decode(parseIJson(faulty));
    expect(refused.violations.map((violation) => violation.field)).toEqual([
      'flag',
      'small',
      'words[1]',
      'words[2]',
      'at',
      'inner[0].flag',
    ]);
    expect(refused.message).toMatchObject({ large: 0n, words: [], inner: [{ flag: false }] });
    // Fields that a later version has stored, and this one does not know, are left out.
    expect(codec.decode({ inner: [{ flag: true, later: 1 }] }).message).toMatchObject({
      inner: [{ flag: true }],
    });
    for (const at of [
      '2026-01-01T00:00:00Z',
      '2026-01-01t00:00:00.1+01:00',
      '2024-02-29T23:59:59.123456789-11:30',
      '1969-12-31T23:59:59.999Z',
      '1969-12-31T23:59:59.000000001Z',
      '0001-01-01T00:00:00Z',
      '9999-12-31T23:59:59.999999999Z',
    ]) {
      expect(codec.decode({ at }).message).toEqual(create(desc, fromJson(desc, { at: at.toUpperCase() })));
    }
  });

  test.each([
    ['a map', { name: 'f', number: 1, label: 3, type: 11, typeName: '.t.M.FEntry' }],
    ['bytes', { name: 'f', number: 1, label: 1, type: 12 }],
    ['float', { name: 'f', number: 1, label: 1, type: 2 }],
    ['double', { name: 'f', number: 1, label: 1, type: 1 }],
    ['uint64', { name: 'f', number: 1, label: 1, type: 4 }],
    ['a oneof', { name: 'f', number: 1, label: 1, type: 9, oneofIndex: 0 }],
  ])('building a codec for a message with %s fails', (what, field) => {
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
                field: [field],
                oneofDecl: what === 'a oneof' ? [{ name: 'choice' }] : [],
                nestedType: [
                  {
                    name: 'FEntry',
                    options: { mapEntry: true },
                    field: [
                      { name: 'key', number: 1, label: 1, type: 9 },
                      { name: 'value', number: 2, label: 1, type: 9 },
                    ],
                  },
                ],
              },
            ],
          },
        ],
      }),
    );
    const message = registry.getMessage('t.M');
    expect(message).toBeDefined();
    expect(() => message && createJsonCodec(message)).toThrow(`t.M.f is ${what}`);
  });
});
