// A service with another contract, on both doors. Routes, bodies, queries and documents are derived from its
// annotations and messages. The settings of a method are part of the method.

import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import http2 from 'node:http2';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  create,
  createFileRegistry,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  type Message,
  toBinary,
} from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import grpc from '@grpc/grpc-js';
import { pino } from 'pino';
import { afterAll, describe, expect, test } from 'vitest';
import { createOpenApi } from '../src/contract/openapi/openapi.ts';
import { authenticateByKey } from '../src/doors/authentication.ts';
import { createInternalDoor } from '../src/doors/internal/internal-door.ts';
import { createPublicDoor } from '../src/doors/public/public-door.ts';
import { createRateLimit } from '../src/doors/rate-limit.ts';
import { Strangers } from '../src/doors/strangers.ts';
import { createApiKeys } from '../src/merchants/api-keys.ts';
import { invalidBody, ServiceError } from '../src/requests/errors.ts';
import {
  authenticated,
  type ImplementedService,
  implementService,
  type Method,
} from '../src/requests/method.ts';
import type { Identity } from '../src/requests/request-context.ts';
import { useFolder } from './support/folder.ts';
import { listen } from './support/listen.ts';
import { useService } from './support/use-service.ts';

type Fields = Record<string, unknown>;
/** A method on messages whose types only the descriptor knows. */
type AnyMethod = Method<Message & Fields, Fields>;

const service = await useService();

/** Compiles the contract with buf, as for any other service. */
async function compileLibrary(): Promise<DescService> {
  const folder = await useFolder();
  const modules = ['proto', 'test/proto', 'node_modules/google-gax/build/protos'].map((path) => ({
    path,
    excludes: path.startsWith('node_modules') ? [`${path}/google/protobuf`] : [],
  }));
  const output = join(folder, 'library.binpb');
  const config = JSON.stringify({ version: 'v2', modules });
  await promisify(execFile)('node_modules/.bin/buf', ['build', '--config', config, '--output', output]);
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, await readFile(output)));
  return registry.getService('library.v1.LibraryService') as DescService;
}

const titleViolations = ({ title }: Fields) =>
  title === '' || title === undefined || /^[A-Z]/.test(String(title))
    ? []
    : [{ field: 'title', message: 'must begin with a capital' }];

/** Each method returns its request, so that the tests see what arrived. */
const methods: Record<string, AnyMethod> = {
  createBook: {
    ratePolicy: 'changes',
    violations: titleViolations,
    async run(request) {
      const violations = titleViolations(request);
      if (violations.length > 0) throw invalidBody(violations);
      return { shelf: request.shelf, id: 'b1', title: request.title, pages: request.pages };
    },
  },
  getBook: {
    ratePolicy: 'reads',
    async run({ shelf, id }, { mode }) {
      if (id === 'gone') throw new ServiceError('not_found', { message: 'There is no such book.' });
      return { shelf, id, title: mode };
    },
  },
  listBooks: {
    ratePolicy: 'reads',
    async run({ shelf, pageSize, word, genre, writtenFrom, lendable }) {
      const seconds = (writtenFrom as { seconds?: bigint } | undefined)?.seconds;
      return { asked: [shelf, pageSize, word, genre, seconds, lendable].map(String).join(' ') };
    },
  },
  updateBook: {
    ratePolicy: 'changes',
    run: async ({ shelf, id, title }) => ({ shelf, id, title: title ?? 'unchanged' }),
  },
  lendBook: { ratePolicy: 'changes', run: async ({ shelf, id }) => ({ shelf, id, title: 'lent' }) },
  deleteBook: { ratePolicy: 'changes', run: async () => ({}) },
};

/** Turns the plain fields that the methods return into messages. */
function implementLibrary(
  desc: DescService,
  all: Record<string, AnyMethod> = methods,
): ImplementedService<Identity> {
  const returning = Object.entries(all).map(([name, method]): [string, Method] => [
    name,
    {
      ...method,
      run: async (request, caller, call) => {
        const { output } = desc.method[name] as DescMethodUnary;
        return create(output, await method.run(request as Message & Fields, caller, call));
      },
    } as Method,
  ]);
  return implementService(desc, Object.fromEntries(returning) as never);
}

const library = await compileLibrary();
const { database } = service;
const byKey = authenticateByKey(createApiKeys(database.orm.em, database.keyRing('API_KEY_PEPPERS')));
const common = {
  services: [authenticated(implementLibrary(library), byKey)],
  strangers: new Strangers(),
  takeFromLimit: createRateLimit({ creates: 0, reads: 1_000, changes: 500, checkout: 0 }),
  logger: pino({ level: 'silent' }),
  onEnd: () => {},
  requestTimeoutMs: 30_000,
};
const publicServer = http.createServer(
  createPublicDoor({
    ...common,
    isDraining: () => false,
    scheme: 'http',
    sites: [],
    allowsTryIt: false,
  }),
);
const internalServer = http2.createServer();
internalServer.on(
  'stream',
  createInternalDoor({
    ...common,
    openRoutes: () => {},
    shutdownSignal: new AbortController().signal,
  }),
);
const publicPort = await listen(publicServer);
const internalPort = await listen(internalServer);
const client = new grpc.Client(`127.0.0.1:${internalPort.port}`, grpc.credentials.createInsecure());

afterAll(async () => {
  client.close();
  await Promise.all([publicPort.close(), internalPort.close()]);
});

const authorization = () => `Bearer ${service.merchant.keys.testnet.apiKey}`;

async function call(method: string, path: string, body?: string, header: Record<string, string> = {}) {
  const answer = await fetch(`${publicPort.url}${path}`, {
    method,
    headers: {
      authorization: authorization(),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...header,
    },
    ...(body === undefined ? {} : { body }),
  });
  return { status: answer.status, json: await answer.json(), header: answer.headers };
}

/** A call over gRPC: the answer's fields, or the code and the message of the refusal. */
function callGrpc(name: string, fields: Fields): Promise<Fields> {
  const method = library.method[name] as DescMethodUnary;
  const metadata = new grpc.Metadata();
  metadata.set('authorization', authorization());
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      `/library.v1.LibraryService/${method.name}`,
      (request: Message) => Buffer.from(toBinary(method.input, request as never)),
      (bytes) => fromBinary(method.output, bytes),
      create(method.input, fields) as Message,
      metadata,
      (error, answer) =>
        resolve(
          error === null ? { ...(answer as Message & Fields) } : { code: error.code, details: error.details },
        ),
    );
  });
}

describe('over HTTP', () => {
  const book = (shelf: string, id: string, title: string, pages = 0) => ({ shelf, id, title, pages });

  test.each<[string, string, string | undefined, number, unknown]>([
    ['POST', '/v1/shelves/s1/books', '{"title":"Emma","pages":474}', 201, book('s1', 'b1', 'Emma', 474)],
    ['GET', '/v1/shelves/s1/books/b7', undefined, 200, book('s1', 'b7', 'testnet')],
    ['GET', '/v1/shelves/a%2Fb/books/%C3%BC%20', undefined, 200, book('a/b', 'ü ', 'testnet')],
    ['PATCH', '/v1/shelves/s1/books/b7', '{"title":"Emma"}', 200, book('s1', 'b7', 'Emma')],
    ['PATCH', '/v1/shelves/s1/books/b7', '', 200, book('s1', 'b7', 'unchanged')],
    ['POST', '/v1/shelves/s1/books/b7/lend', undefined, 200, book('s1', 'b7', 'lent')],
    ['POST', '/v1/shelves/s1/books/b7/lend', '{}', 200, book('s1', 'b7', 'lent')],
    ['DELETE', '/v1/shelves/s1/books/b7', undefined, 200, {}],
    ['GET', '/v1/shelves/s1/books', undefined, 200, { asked: 's1 0  0 undefined false' }],
    [
      'GET',
      '/v1/shelves/s1/books?page_size=20&word=a+b%26c&genre=science&written_from=1970-01-01T00:00:07Z&lendable=true',
      undefined,
      200,
      { asked: 's1 20 a+b&c 2 7 true' },
    ],
  ])('%s %s %s', async (method, path, body, status, json) => {
    expect(await call(method, path, body)).toMatchObject({ status, json });
  });

  test('a call counts against the rate policy of its method', async () => {
    expect((await call('GET', '/v1/shelves/s1/books')).header.get('ratelimit-policy')).toBe(
      '"reads";q=2000;w=2',
    );
    expect((await call('DELETE', '/v1/shelves/s1/books/b7')).header.get('ratelimit-policy')).toBe(
      '"changes";q=1000;w=2',
    );
  });

  test.each<[string, string, string | undefined, { field: string; message: string }[]]>([
    [
      'GET',
      '?colour=red',
      undefined,
      [{ field: 'colour', message: expect.stringContaining('is not a field here') }],
    ],
    [
      'GET',
      '?shelf=s2',
      undefined,
      [{ field: 'shelf', message: expect.stringContaining('is not a field here') }],
    ],
    ['GET', '?word=a&word=b', undefined, [{ field: 'word', message: 'must be given once' }]],
    ['GET', '?word=', undefined, [{ field: 'word', message: 'must not be empty: leave it out instead' }]],
    ['GET', '?word', undefined, [{ field: 'word', message: 'must not be empty: leave it out instead' }]],
    ['GET', '?word=%ff', undefined, [{ field: 'word', message: 'must be percent-encoded UTF-8' }]],
    ...['0', '-1', '+1', '01', '1.0', '1e3', ' 1', '99999999999999999'].map(
      (text): [string, string, undefined, { field: string; message: string }[]] => [
        'GET',
        `?page_size=${encodeURIComponent(text)}`,
        undefined,
        [{ field: 'page_size', message: 'must be an integer of at least 1, in digits' }],
      ],
    ),
    ['GET', '?genre=poetry', undefined, [{ field: 'genre', message: 'must be "fiction" or "science"' }]],
    ['GET', '?lendable=yes', undefined, [{ field: 'lendable', message: 'must be true or false' }]],
    [
      'GET',
      '?written_from=today',
      undefined,
      [
        {
          field: 'written_from',
          message: 'must be a date and time as in RFC 3339, such as 2026-11-21T12:00:00Z',
        },
      ],
    ],
    [
      'GET',
      '?genre=poetry&colour=red',
      undefined,
      [
        { field: 'colour', message: expect.stringContaining('is not a field here') },
        { field: 'genre', message: 'must be "fiction" or "science"' },
      ],
    ],
    [
      'POST',
      '',
      '{"title":"Emma","shelf":"s2"}',
      [{ field: 'shelf', message: expect.stringContaining('is not a field here') }],
    ],
    // A malformed field and a broken rule are reported together.
    [
      'POST',
      '',
      '{"title":"emma","pages":"x"}',
      [
        { field: 'pages', message: 'must be an integer' },
        { field: 'title', message: 'must begin with a capital' },
      ],
    ],
  ])('%s /v1/shelves/s1/books%s %s is refused by name', async (method, query, body, details) => {
    const answer = await call(method, `/v1/shelves/s1/books${query}`, body);
    expect(answer).toMatchObject({ status: 400, json: { error: { code: 'invalid_body', details } } });
  });

  test('DELETE refuses a body that its annotation does not have', async () => {
    const answer = await call('DELETE', '/v1/shelves/s1/books/b7', '{}');
    expect(answer).toMatchObject({ status: 400, json: { error: { code: 'invalid_body' } } });
  });

  test.each([[''], [undefined]])('the body %j is an object without fields', async (body) => {
    expect(await call('POST', '/v1/shelves/s1/books', body)).toMatchObject({
      status: 201,
      json: { title: '' },
    });
  });

  test.each([
    ['/v1/shelves/s1/books//'],
    ['/v1/shelves//books/b7'],
    ['/v1/shelves/s1/books/b7/lend//'],
    ['/v1/shelves/%ff/books/b7'],
    ['/v1/shelves/s1'],
    ['/'],
    ['//v1/shelves/s1/books/b7'],
  ])('the path %s has no route', async (path) => {
    expect(await call('GET', path)).toMatchObject({ status: 404, json: { error: { code: 'not_found' } } });
  });

  test('a wrong method is answered with the allowed ones', async () => {
    const answer = await call('PUT', '/v1/shelves/s1/books/b7', '{}');
    expect(answer.status).toBe(405);
    expect(answer.header.get('allow')?.split(', ').sort()).toEqual(['DELETE', 'GET', 'PATCH']);
  });

  test('a refusal by the method itself is returned unchanged', async () => {
    expect(await call('GET', '/v1/shelves/s1/books/gone')).toMatchObject({
      status: 404,
      json: { error: { code: 'not_found', message: 'There is no such book.' } },
    });
  });

  test('a request without a key is refused', async () => {
    const answer = await call('GET', '/v1/shelves/s1/books/b7', undefined, { authorization: 'Bearer x' });
    expect(answer).toMatchObject({ status: 401, json: { error: { code: 'api_key_invalid' } } });
  });
});

test('the same methods work over gRPC', async () => {
  expect(await callGrpc('createBook', { shelf: 's1', title: 'Emma', pages: 474 })).toMatchObject({
    id: 'b1',
    pages: 474,
  });
  expect(await callGrpc('getBook', { shelf: 's1', id: 'b7' })).toMatchObject({ id: 'b7', title: 'testnet' });
  expect(await callGrpc('listBooks', { shelf: 's1', pageSize: 20, genre: 2 })).toMatchObject({
    asked: 's1 20  2 undefined false',
  });
  expect(await callGrpc('deleteBook', { shelf: 's1', id: 'b7' })).toEqual({
    $typeName: 'library.v1.DeleteBookResponse',
  });
  expect(await callGrpc('createBook', { shelf: 's1', title: 'emma' })).toMatchObject({
    code: grpc.status.INVALID_ARGUMENT,
  });
});

describe('a contract is not served', () => {
  const { lendBook: _, ...allButOne } = methods;
  test('if a method is not implemented', () => {
    expect(() => implementLibrary(library, allButOne)).toThrow(
      'library.v1.LibraryService.LendBook is not implemented',
    );
  });

  test('if a method is implemented that the contract does not have', () => {
    const surplus = { ...methods, burnBook: { ratePolicy: 'changes', run: async () => ({}) } };
    expect(() => implementService<DescService, Identity>(library, surplus as never)).toThrow(
      'library.v1.LibraryService has no method burnBook',
    );
  });
});

test('parameters, bodies and idempotency keys in OpenAPI follow from the messages', () => {
  const { paths } = createOpenApi({
    title: 'Library',
    version: '1',
    description: '',
    services: [library],
    commentOf: () => 'A comment.',
  }) as {
    paths: Record<
      string,
      Record<
        string,
        {
          parameters: { name: string; in: string; required?: boolean }[];
          requestBody?: { required: boolean };
          responses: object;
        }
      >
    >;
  };
  const shapes = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, { parameters, requestBody, responses }]) => ({
      route: `${method} ${path}`,
      parameters: parameters.map(
        (parameter) => `${parameter.in} ${parameter.name}${parameter.required ? '!' : ''}`,
      ),
      body: requestBody?.required,
      has415: '415' in responses,
      has422: '422' in responses,
    })),
  );
  const inPath = ['path shelf!', 'path id!'];
  const bare = { body: undefined, has415: false, has422: false };
  const withBody = { body: false, has415: true, has422: false };
  expect(shapes).toEqual([
    {
      route: 'post /v1/shelves/{shelf}/books',
      parameters: ['path shelf!', 'header Idempotency-Key'],
      body: true,
      has415: true,
      has422: true,
    },
    {
      route: 'get /v1/shelves/{shelf}/books',
      parameters: [
        'path shelf!',
        'query page_size',
        'query word',
        'query genre',
        'query written_from',
        'query lendable',
      ],
      ...bare,
    },
    { route: 'get /v1/shelves/{shelf}/books/{id}', parameters: inPath, ...bare },
    { route: 'patch /v1/shelves/{shelf}/books/{id}', parameters: inPath, ...withBody },
    { route: 'delete /v1/shelves/{shelf}/books/{id}', parameters: inPath, ...bare },
    { route: 'post /v1/shelves/{shelf}/books/{id}/lend', parameters: inPath, ...withBody, body: undefined },
  ]);
});
