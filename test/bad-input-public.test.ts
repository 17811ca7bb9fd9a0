import net from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { type HttpAnswer, httpRequest } from './support/service.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

const service = await useService();

expectNoComplaints(service);

const path = '/v1/payment_intents';
const json = { 'Content-Type': 'application/json' };
const authorized = () => ({ ...json, Authorization: `Bearer ${service.merchant.keys.testnet.apiKey}` });

function post(
  body?: string | Uint8Array,
  headers: Record<string, string | string[]> = {},
): Promise<HttpAnswer> {
  return httpRequest(service.publicUrl + path, { headers: { ...authorized(), ...headers } }, body);
}

/** Checks what all refusals have in common. Returns the code, message and details. */
function refusal({ status, headers, body }: HttpAnswer) {
  const { error } = JSON.parse(body);
  expect(headers['content-type']).toBe('application/json');
  expect(headers['cache-control']).toBe('no-store');
  expect(headers['x-request-id']).toBe(error.request_id);
  expect(
    Object.keys(error).every((key) => ['code', 'message', 'request_id', 'doc_url', 'details'].includes(key)),
  ).toBe(true);
  expect(error.message).toMatch(/^[A-Z].*\.$/);
  return { status, code: error.code, message: error.message as string, details: error.details };
}

const bytes = (...parts: (string | number[])[]) =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))));

describe('a body that is not one I-JSON value', () => {
  test.each<[string, string | Uint8Array, RegExp]>([
    ['white space', ' \n ', /Unexpected end at line 2 column 2\./],
    [
      'two values',
      '{"amount_units":1}{"amount_units":1}',
      /after the end of the value at line 1 column 19\./,
    ],
    ['a truncated object', '{"amount_units":1', /Unexpected end/],
    ['a truncated string', '{"amount_units', /Unexpected end/],
    ['a truncated escape', '{"a":"\\u12', /Unknown escape/],
    ['a trailing comma', '{"amount_units":1,}', /Unexpected character at line 1 column 19\./],
    ['single quotes', "{'amount_units':1}", /Unexpected character at line 1 column 2\./],
    ['a comment', '{"amount_units":1} // please', /after the end/],
    ['a byte order mark', '\ufeff{"amount_units":1}', /Unexpected character at line 1 column 1\./],
    ['UTF-16', Buffer.from('{"amount_units":1}', 'utf16le'), /Unexpected character/],
    ['invalid UTF-8', bytes('{"metadata":{"a":"', [0xc3, 0x28], '"}}'), /not UTF-8/],
    ['an overlong encoding', bytes('{"metadata":{"a":"', [0xc0, 0x80], '"}}'), /not UTF-8/],
    ['a surrogate in UTF-8', bytes('{"metadata":{"a":"', [0xed, 0xa0, 0x80], '"}}'), /not UTF-8/],
    ['a raw control character', '{"metadata":{"a":"\t"}}', /Unexpected character/],
    ['a raw NUL', '{"amount_units":1}\0', /after the end/],
    ['NaN', '{"amount_units":NaN}', /Unexpected character/],
    ['Infinity', '{"amount_units":-Infinity}', /Unexpected character/],
    ['a leading zero', '{"amount_units":01}', /Unexpected character/],
    ['a hexadecimal number', '{"amount_units":0x10}', /Unexpected character/],
    ['a duplicate name', '{"amount_units":1,"amount_units":2}', /twice in one object at line 1 column 19\./],
    ['a duplicate name, once escaped', '{"amount_units":1,"amount\\u005funits":2}', /twice/],
    ['10,000 nested arrays', `{"metadata":{"a":${'['.repeat(10_000)}`, /deeper than 16 levels/],
    ['10,000 nested objects', '{"a":'.repeat(10_000), /deeper than 16 levels/],
  ])('%s', async (_, body, says) => {
    const refused = refusal(await post(body));
    expect(refused).toMatchObject({ status: 400, code: 'invalid_body' });
    expect(refused.message).toMatch(says);
    expect(refused.details).toBeUndefined();
  });
});

// contract-life.md: "an empty POST body is {} whatever its Content-Type".
test('an empty body is an object without fields', async () => {
  const withoutFields = refusal(await post('{}'));
  expect(withoutFields.details).toMatchObject([{ field: 'amount_units' }]);
  expect(refusal(await post(''))).toEqual(withoutFields);
});

const wrongType = (field: string, values: unknown[]) =>
  values.map((value): [string, string] => [field, JSON.stringify(value)]);

describe('a field of the wrong type or shape', () => {
  test.each<[string, string]>([
    ...wrongType('amount_units', ['5', 1.5, true, [], {}, '', '1e3', [1]]),
    ['amount_units', '1.0000000000000001'],
    ['amount_units', '1e-1'],
    ['amount_units', '9007199254740993'],
    ['amount_units', '9223372036854775808'],
    ['amount_units', '1e400'],
    ['amount_units', '-1e400'],
    ['amount_units', '-0'],
    ['amount_units', `1${'0'.repeat(1000)}`],
    ...wrongType('chain', ['Base', 'BASE', 'CHAIN_BASE', '', 1, true, [], {}, 'unspecified']),
    ...wrongType('token', ['usdc', '', 1, [], {}, 'TOKEN_USDC']),
    ...wrongType('lane', ['SDK', 'LANE_SDK', 0, [], {}]),
    ...wrongType('expires_in_minutes', ['30', 1.5, true, [], {}, '']),
    ['expires_in_minutes', '30.000000000000001'],
    ...wrongType('wallet_address', [1, true, [], {}, ['0x'], '\ud800']),
    ['wallet_address', '"\\ud800"'],
    ...wrongType('metadata', ['{}', 1, true, [], [{}]]),
    ['metadata', '{"a":"\\ud800"}'],
    ['metadata', '{"\\udc00":1}'],
    ['metadata', '{"a":"\\u0000"}'],
    ['metadata', '{"a":9007199254740993}'],
    ['metadata', '{"a":[{"b":1.0000000000000001}]}'],
    ['metadata', '{"a":1e400}'],
    ['metadata', '{"a":1e23}'],
  ])('%s: %s', async (field, value) => {
    const others = field === 'amount_units' ? '' : '"amount_units":1,';
    const refused = refusal(await post(`{${others}"${field}":${value}}`));
    expect(refused).toMatchObject({ status: 400, code: 'invalid_body' });
    expect(refused.details).toEqual([{ field, message: expect.any(String) }]);
  });

  test.each(['[]', 'null', '1', '"x"', 'true', '[{"amount_units":1}]'])(
    'the whole body: %s',
    async (body) => {
      expect(refusal(await post(body))).toMatchObject({
        status: 400,
        code: 'invalid_body',
        details: [{ field: 'body', message: 'must be an object' }],
      });
    },
  );

  test.each(['__proto__', 'constructor', 'toString', 'amountUnits', 'Amount_units', 'order_id', 'body', ''])(
    'a field that does not exist: %j',
    async (field) => {
      const refused = refusal(await post(`{"amount_units":1,${JSON.stringify(field)}:{"a":1}}`));
      expect(refused).toMatchObject({ status: 400, code: 'invalid_body' });
      expect(refused.details).toEqual([
        { field: field || '""', message: expect.stringMatching(/the fields are amount_units, chain/) },
      ]);
    },
  );

  test('wrong shapes and broken rules are listed in one answer', async () => {
    const body =
      '{"amount_units":"1","chain":"base","wallet_address":"0x1","metadata":{"a":"\\u0000"},"typo":1}';
    expect(refusal(await post(body)).details).toEqual([
      { field: 'amount_units', message: 'must be a JSON number, without quotes' },
      { field: 'typo', message: expect.stringMatching(/^is not a field/) },
      { field: 'wallet_address', message: expect.stringMatching(/40 hexadecimal/) },
      { field: 'metadata', message: expect.stringMatching(/NUL/) },
    ]);
  });

  test.each([
    ['12.5', '12.5 USDC is 12500000'],
    ['12.123456', '12.123456 USDC is 12123456'],
    ['"12.50"', '12.50 USDC is 12500000'],
    ['"12.00"', '12.00 USDC is 12000000'],
    ['"0.1"', '0.1 USDC is 100000'],
    ['12.1234567', '12.50 USDC is 12500000'],
    ['"twelve"', '12.50 USDC is 12500000'],
    ['true', '12.50 USDC is 12500000'],
  ])('amount_units %s: says what a unit is', async (amount, example) => {
    const message = `must be an integer, in units of 0.000001 USDC: ${example}`;
    expect(refusal(await post(`{"amount_units":${amount}}`)).details).toEqual([
      { field: 'amount_units', message },
    ]);
  });

  test('the message states the first fault and the number of others', async () => {
    const error = async (body: string) => JSON.parse((await post(body)).body).error.message;
    expect(await error('{"amount_units":"5","chain":"bse","lane":1}')).toBe(
      'Invalid request: amount_units must be a JSON number, without quotes; and 2 more.',
    );
    expect(await error('{"amount_units":1,"walet_address":"0x"}')).toMatch(
      /^Invalid request: walet_address is not a field here \(did you mean wallet_address\?\); the fields are amount_units/,
    );
    expect(await error(`{"amount_units":1,"metadata":${'['.repeat(17)}${']'.repeat(17)}}`)).toBe(
      'The request body is nested deeper than 16 levels at line 1 column 45.',
    );
  });

  test('a thousand faults are counted but not listed', async () => {
    const body = `{"amount_units":1${Array.from({ length: 1000 }, (_, i) => `,"f${i}":1`).join('')}}`;
    const { details } = refusal(await post(body));
    expect(details).toHaveLength(21);
    expect(details[20]).toEqual({ field: 'request', message: 'has 980 more faults' });
  });
});

describe('headers, methods, paths and lengths', () => {
  test.each([['utf-8'], ['UTF-8'], ['utf8'], ['"utf-8"']])(
    'JSON with the charset %s is read',
    async (charset) => {
      const headers = { 'Content-Type': `application/json; charset=${charset}` };
      expect((await post('{"amount_units":1}', headers)).status).toBe(201);
    },
  );

  test.each<[string, Record<string, string>]>([
    ['no content type', { 'Content-Type': '' }],
    ['text', { 'Content-Type': 'text/plain' }],
    ['a form', { 'Content-Type': 'application/x-www-form-urlencoded' }],
    ['JSON in another character set', { 'Content-Type': 'application/json; charset=latin1' }],
    ['something like JSON', { 'Content-Type': 'application/jsonp' }],
    ['protobuf', { 'Content-Type': 'application/proto' }],
    ['gzip', { 'Content-Encoding': 'gzip' }],
    ['an unknown encoding', { 'Content-Encoding': 'zstd' }],
  ])('%s', async (_, headers) => {
    const body =
      headers['Content-Encoding'] === 'gzip' ? gzipSync('{"amount_units":1}') : '{"amount_units":1}';
    const answer = await post(body, headers);
    expect(refusal(answer)).toMatchObject({ status: 415, code: 'unsupported_media_type' });
    expect(answer.headers.accept).toBe('application/json');
  });

  const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'];
  test.each([
    [path, 'POST, GET'],
    [`${path}/pi_x`, 'GET'],
    [`${path}/pi_x/cancel`, 'POST'],
    ['/v1/transfers/tr_x/attribute', 'POST'],
  ])('a method other than those of %s: %s', async (path, allow) => {
    for (const method of methods.filter((each) => !allow.split(', ').includes(each))) {
      const answer = await httpRequest(service.publicUrl + path, { method, headers: authorized() });
      if (method === 'HEAD') expect([answer.status, answer.body]).toEqual([405, '']);
      else expect(refusal(answer)).toMatchObject({ status: 405, code: 'method_not_allowed' });
      expect(answer.headers.allow).toBe(allow);
    }
  });

  test.each([
    '/',
    '/v1',
    '/v1/payment_intents//',
    '/v1//payment_intents',
    '/V1/payment_intents',
    '/v1/payment_intents/pi_x/refund',
    '/v1/payment_intents/pi_x/Cancel',
    '/v1/payment_intents//cancel',
    '/v1/payment%5Fintents',
    '/v1/payment_intents/../payment_intents',
    '//v1/payment_intents',
    '/payments.v1.PaymentIntentService/CreatePaymentIntent',
    '/grpc.health.v1.Health/Check',
    '/metrics',
    '/healthz',
    '/readyz',
    '/__proto__',
  ])('the path %s', async (unknown) => {
    const options = { path: unknown, headers: authorized() };
    expect(refusal(await httpRequest(service.publicUrl, options, '{"amount_units":1}'))).toMatchObject({
      status: 404,
      code: 'not_found',
    });
  });

  test('a slash at the end of a path makes no difference', async () => {
    const headers = authorized();
    const created = await httpRequest(
      `${service.publicUrl}/v1/payment_intents/`,
      { headers },
      '{"amount_units":1}',
    );
    expect(created.status).toBe(201);
    const { id, client_secret } = JSON.parse(created.body);
    const secret = { authorization: `Bearer ${client_secret}` };
    const { Authorization: authorization } = headers;
    for (const [url, method, given] of [
      [`${service.publicUrl}/v1/payment_intents/${id}/`, 'GET', { authorization }],
      [`${service.publicUrl}/v1/payment_intents/${id}/cancel/`, 'POST', { authorization }],
      [`${service.publicUrl}/v1/payment_intents/?page_size=1`, 'GET', { authorization }],
      [`${service.publicUrl}/v1/events/`, 'GET', { authorization }],
      [`${service.publicUrl}/v1/checkout/`, 'GET', secret],
      [`${service.publicUrl}/docs/`, 'GET', {}],
      [`${service.publicUrl}/openapi.json/`, 'GET', {}],
      [`${service.operationsUrl}/healthz/`, 'GET', {}],
      [`${service.operationsUrl}/readyz/`, 'GET', {}],
      [`${service.operationsUrl}/metrics/`, 'GET', {}],
    ] as const) {
      expect([url, (await httpRequest(url, { method, headers: given })).status]).toEqual([url, 200]);
    }
  });

  test('a browser that asks for the root is redirected to the reference', async () => {
    const ask = (method: string, headers: Record<string, string>, url = `${service.publicUrl}/`) =>
      httpRequest(url, { method, headers });
    const accept = 'text/html,application/xhtml+xml,*/*;q=0.8';
    for (const method of ['GET', 'HEAD']) {
      const { status, headers, body } = await ask(method, { accept });
      expect([status, headers.location, headers.vary, body]).toEqual([302, '/docs', 'Accept', '']);
    }
    const followed = await fetch(service.publicUrl, { headers: { accept } });
    expect([followed.status, new URL(followed.url).pathname]).toEqual([200, '/docs']);
    for (const [method, headers] of [
      ['GET', {}],
      ['GET', { accept: '*/*' }],
      ['GET', { accept: 'application/json' }],
      ['POST', { accept }],
    ] as const) {
      expect(refusal(await ask(method, headers))).toMatchObject({ status: 404, code: 'not_found' });
    }
  });

  test.each(['https://shop.example', 'null', ''])('an Origin header: %j', async (origin) => {
    for (const method of ['POST', 'OPTIONS', 'GET']) {
      const answer = await httpRequest(
        service.publicUrl + path,
        { method, headers: { ...authorized(), Origin: origin } },
        method === 'POST' ? '{"amount_units":1}' : undefined,
      );
      expect(refusal(answer)).toMatchObject({ status: 403, code: 'browser_forbidden' });
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    }
  });

  test.each([
    ['empty', ''],
    ['300 characters', 'k'.repeat(300)],
    ['256 characters', 'k'.repeat(256)],
    ['a space inside', 'a b'],
    ['two of them', ['a', 'b']],
    ['an open quote', '"abc'],
    ['an empty quoted string', '""'],
    ['a bad escape', '"a\\b"'],
    ['text after the quotes', '"a"b'],
    ['Latin-1', 'caf\u00e9'],
  ])('an idempotency key: %s', async (_, key) => {
    expect(refusal(await post('{"amount_units":1}', { 'Idempotency-Key': key }))).toMatchObject({
      status: 400,
      code: 'idempotency_key_invalid',
    });
  });

  test('a body with a Content-Length of 65 KiB', async () => {
    const answer = await post(`{"amount_units":1,"metadata":{"a":"${'x'.repeat(65 * 1024)}"}}`);
    expect(refusal(answer)).toMatchObject({ status: 413, code: 'body_too_large' });
  });

  test('a body of 64 KiB is accepted, one byte more is refused', async () => {
    const body = `{"amount_units":1}${' '.repeat(64 * 1024 - 18)}`;
    expect((await post(body)).status).toBe(201);
    expect((await post(`${body} `)).status).toBe(413);
  });

  test('a chunked body that never ends is answered, and its connection is closed', async () => {
    const socket = net.connect(service.server.ports.http, '127.0.0.1');
    const { apiKey } = service.merchant.keys.testnet;
    socket.write(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    const chunk = `4000\r\n${' '.repeat(0x4000)}\r\n`;
    let received = '';
    let sent = 0;
    const more = () => {
      while (socket.writable && socket.write(chunk)) sent += chunk.length;
    };
    socket.on('drain', more).on('error', () => {});
    socket.on('data', (data) => {
      received += data;
    });
    more();
    await new Promise((closed) => socket.once('close', closed));
    expect(received).toMatch(/^HTTP\/1\.1 413 /);
    expect(received).toContain('"code":"body_too_large"');
    expect(sent).toBeLessThan(32 * 1024 * 1024);
  });

  test.each([
    ['bytes that are not HTTP', 'hello\r\n\r\n', /^HTTP\/1\.1 400 /],
    ['a header without a colon', `POST ${path} HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n`, /^HTTP\/1\.1 400 /],
    [
      'two lengths',
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n`,
      /^HTTP\/1\.1 400 /,
    ],
    [
      'a length and chunks',
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`,
      /^HTTP\/1\.1 400 /,
    ],
    [
      'headers of 20 KiB',
      `GET ${path} HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20 * 1024)}\r\n\r\n`,
      /^HTTP\/1\.1 431 /,
    ],
  ])('%s', async (_, sent, status) => {
    const socket = net.connect(service.server.ports.http, '127.0.0.1');
    socket.end(sent);
    const received = await text(socket);
    expect(received).toMatch(status);
    const [head = '', body = ''] = received.split('\r\n\r\n');
    const { error } = JSON.parse(body);
    expect(error.code).toBe('invalid_body');
    expect(head).toContain(`X-Request-Id: ${error.request_id}`);
  });
});

test('garbage after a complete request does not prevent its answer', async () => {
  const body = '{"amount_units":1}';
  const socket = net.connect(service.server.ports.http, '127.0.0.1');
  socket.write(
    `POST /v1/payment_intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.merchant.keys.testnet.apiKey}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}garbage`,
  );
  expect((await text(socket)).match(/^HTTP.*/gm)).toEqual(['HTTP/1.1 201 Created']);
});

test('a client that disconnects in the middle of a request does no harm', async () => {
  const line = service.nextLogLine();
  const socket = net.connect(service.server.ports.http, '127.0.0.1');
  const { apiKey } = service.merchant.keys.testnet;
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"amount`,
  );
  socket.destroySoon();
  expect(await line).toMatchObject({ code: 'canceled' });
  expect((await post('{"amount_units":1}')).status).toBe(201);
});

describe('HTTP/1.1 conformance', () => {
  const body = '{"amount_units":1}';
  const raw = async (head: string, content = body) => {
    const socket = net.connect(service.server.ports.http, '127.0.0.1');
    socket.write(`${head}\r\nConnection: close\r\n\r\n${content}`);
    return text(socket);
  };
  const common = () =>
    [
      `Authorization: Bearer ${service.merchant.keys.testnet.apiKey}`,
      'Content-Type: application/json',
      `Content-Length: ${body.length}`,
    ].join('\r\n');

  test.each(['http://pay.example', 'HTTP://pay.example:8080', 'https://user@pay.example'])(
    'a target in absolute form: %s',
    async (origin) => {
      expect(await raw(`POST ${origin}${path}?a=b HTTP/1.1\r\nHost: pay.example\r\n${common()}`)).toMatch(
        /^HTTP\/1\.1 201 /,
      );
      expect(await raw(`GET ${origin} HTTP/1.1\r\nHost: pay.example`, '')).toMatch(/No route matches GET \//);
    },
  );

  test.each([
    ['no Host', ''],
    ['two Hosts', 'Host: a\r\nHost: a\r\n'],
  ])('%s: 400 with an error body, on every path', async (_, hosts) => {
    for (const target of [`POST ${path}`, 'GET /docs', 'GET /nothing']) {
      const answer = await raw(`${target} HTTP/1.1\r\n${hosts}${common()}`);
      expect(answer).toMatch(
        /^HTTP\/1\.1 400 [\s\S]*"code":"invalid_body","message":"The request has \d Host headers/,
      );
    }
  });

  test('HTTP/1.0 needs no Host', async () => {
    expect(await raw(`POST ${path} HTTP/1.0\r\n${common()}`)).toMatch(/^HTTP\/1\.1 201 /);
  });

  test('an unsupported Content-Encoding: 415', async () => {
    const head = common().replace(/\r\nContent-Length.*/, '');
    const chunk = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
    const send = (coding: string) =>
      raw(`POST ${path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ${coding}\r\n${head}`, chunk);
    expect(await send('chunked')).toMatch(/^HTTP\/1\.1 201 /);
    expect(await send('gzip, chunked')).toMatch(/^HTTP\/1\.1 415 [\s\S]*"code":"unsupported_media_type"/);
  });

  test('an unknown expectation: 417 with an error body', async () => {
    const answer = await raw(`POST ${path} HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n${common()}`);
    expect(answer).toMatch(/^HTTP\/1\.1 417 [\s\S]*"code":"invalid_body"/);
  });

  test('a Content-Length over the limit is refused without 100 Continue', async () => {
    const answer = await raw(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n${common().replace(/\d+$/, '70000')}`,
      '',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
  });
});
