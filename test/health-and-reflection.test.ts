import { execFile } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { promisify } from 'node:util';
import { create, type DescFile, fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { Code, createClient, createRouterTransport } from '@connectrpc/connect';
import { createAsyncIterable } from '@connectrpc/connect/protocol';
import { createGrpcTransport } from '@connectrpc/connect-node';
import grpc from '@grpc/grpc-js';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { file_google_rpc_error_details } from '../src/contract/gen/google/rpc/error_details_pb.ts';
import {
  ServerReflection,
  ServerReflectionRequestSchema,
} from '../src/contract/gen/grpc/reflection/v1/reflection_pb.ts';
import { CheckoutService } from '../src/contract/gen/payments/v1/checkout_service_pb.ts';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../src/contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { registerReflection } from '../src/doors/internal/reflection.ts';
import { Listener } from '../src/doors/listener.ts';
import { createReadiness } from '../src/doors/operations/readiness.ts';
import { Strangers } from '../src/doors/strangers.ts';
import { httpRequest, startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const run = promisify(execFile);
const get = (path: string, method = 'GET') => httpRequest(service.operationsUrl + path, { method });

test('HOST is the address of all three ports', async () => {
  const elsewhere = await startService({ HOST: '127.0.0.2' });
  const { http, grpc, metrics } = elsewhere.server.ports;
  for (const port of [http, grpc, metrics]) {
    const socket = net.connect(port, '127.0.0.2');
    await once(socket, 'connect');
    socket.destroy();
    const [refusal] = await once(net.connect(port, '127.0.0.1'), 'error');
    expect(refusal).toMatchObject({ code: 'ECONNREFUSED' });
  }
  await elsewhere.close();
});

test('requests have all but the last second of DRAIN_TIMEOUT, and half of that even after a long DRAIN_DELAY', async () => {
  const own = await startService({ DRAIN_TIMEOUT: '3', DRAIN_DELAY: '9' });
  const close = vi.spyOn(Listener.prototype, 'close');
  await own.close();
  expect(close.mock.calls).toContainEqual([2_000, 1_000]);
  close.mockRestore();
});

test('the operations port keeps 64 connections', async () => {
  const own = await startService({ HEADERS_TIMEOUT: '600', REQUEST_TIMEOUT: '600' });
  const open = async () => {
    const socket = net.connect(own.server.ports.metrics, '127.0.0.1').resume();
    await once(socket, 'connect');
    return socket.on('error', () => {});
  };
  const sockets = [await open()];
  while (sockets.length <= 64) sockets.push(await open());
  await expect.poll(() => sockets.map(({ closed }) => closed).indexOf(false)).toBe(1);
  for (const socket of sockets) socket.destroy();
  await own.close();
});

describe('the operations door', () => {
  test('is alive and ready', async () => {
    expect(await get('/healthz')).toMatchObject({ status: 200, body: '{"status":"alive"}\n' });
    expect(await get('/readyz')).toMatchObject({ status: 200, body: '{"status":"ready"}\n' });
    expect(await get('/readyz', 'HEAD')).toMatchObject({ status: 200, body: '' });
  });

  test('returns 404 for everything else', async () => {
    expect(await get('/')).toMatchObject({ status: 404 });
    expect(await get('/v1/payment_intents', 'POST')).toMatchObject({ status: 404 });
    expect(await get('/healthz', 'POST')).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } });
  });
});

/** A grpc-js health client with hand-written messages: a string in, an enum out. */
const HealthClient = grpc.makeGenericClientConstructor(
  Object.fromEntries(
    ['Check', 'Watch'].map((name) => [
      name.toLowerCase(),
      {
        path: `/grpc.health.v1.Health/${name}`,
        requestStream: false,
        responseStream: name === 'Watch',
        requestSerialize: (text: string) => Buffer.from([0x0a, text.length, ...Buffer.from(text)]),
        requestDeserialize: (bytes: Buffer) => bytes.toString(),
        responseSerialize: (status: number) => Buffer.from([8, status]),
        responseDeserialize: (bytes: Buffer) => bytes[1] ?? 0,
      },
    ]),
  ),
  'grpc.health.v1.Health',
) as unknown as new (
  address: string,
  credentials: grpc.ChannelCredentials,
  options?: grpc.ChannelOptions,
) => grpc.Client & {
  check(service: string, done: (error: grpc.ServiceError | null, status: number) => void): void;
  watch(service: string): grpc.ClientReadableStream<number>;
};

describe('gRPC health', () => {
  const open = (port: number) => new HealthClient(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  const check = (client: InstanceType<typeof HealthClient>, name: string) =>
    new Promise<number | string>((resolve) => {
      client.check(name, (error, status) => resolve(error ? (grpc.status[error.code] as string) : status));
    });

  test('Check knows only the server and its services', async () => {
    const client = open(service.server.ports.grpc);
    expect(await check(client, '')).toBe(1);
    expect(await check(client, 'payments.v1.PaymentIntentService')).toBe(1);
    expect(await check(client, 'payments.v1.Nothing')).toBe('NOT_FOUND');
    client.close();
  });

  test('Check makes the connection of a payer an ordinary one again', async () => {
    const noteNoCredential = vi.spyOn(Strangers.prototype, 'noteNoCredential');
    onTestFinished(() => noteNoCredential.mockRestore());
    const client = open(service.server.ports.grpc);
    expect(await check(client, '')).toBe(1);
    expect(noteNoCredential).toHaveBeenCalledOnce();
    client.close();
  });

  test('Watch sends the current status and changes, and ends with the server', async () => {
    const own = await startService();
    const client = open(own.server.ports.grpc);
    const stream = client.watch('payments.v1.PaymentIntentService');
    const unknown = client.watch('payments.v1.Nothing');
    expect(await once(stream, 'data')).toEqual([1]);
    expect(await once(unknown, 'data')).toEqual([3]);
    const next = once(stream, 'data');
    for (const watching of [stream, unknown]) watching.on('error', () => {});
    const ended = Promise.all([once(stream, 'end'), once(unknown, 'end')]);
    unknown.resume();
    const closing = own.server.close();
    expect(await next).toEqual([2]);
    stream.resume();
    await ended;
    client.close();
    await closing;
    await own.close();
  });
});

describe('health watches', () => {
  test('are refused above the limit, and accepted again after others have ended', async () => {
    const own = await startService();
    // A connection has at most 256 streams, and grpc-js would share one connection.
    const open = () =>
      new HealthClient(`127.0.0.1:${own.server.ports.grpc}`, grpc.credentials.createInsecure(), {
        'grpc.use_local_subchannel_pool': 1,
      });
    const clients = [open(), open()] as const;
    const watch = (client: InstanceType<typeof HealthClient>) => {
      const stream = client.watch('');
      const outcome = new Promise<string>((resolve) => {
        stream.once('data', () => resolve('watched'));
        stream.once('error', ({ code, details }: grpc.ServiceError) =>
          resolve(`${grpc.status[code]}: ${details}`),
        );
      });
      return { stream, outcome };
    };
    const watches = Array.from({ length: 256 }, (_, i) => watch(clients[i % 2] as (typeof clients)[0]));
    expect(new Set(await Promise.all(watches.map(({ outcome }) => outcome)))).toEqual(new Set(['watched']));
    expect(await watch(clients[0]).outcome).toMatch(/^RESOURCE_EXHAUSTED: Too many health checks/);
    // A single Check is still answered.
    const status = await new Promise((resolve) => clients[0].check('', (_, answer) => resolve(answer)));
    expect(status).toBe(1);
    watches[0]?.stream.cancel();
    await expect.poll(() => watch(clients[0]).outcome, { interval: 20 }).toBe('watched');
    for (const client of clients) client.close();
    await own.close();
  });
});

describe('readiness', () => {
  test('shares one probe among concurrent callers, and notifies watchers only of changes', async () => {
    let probes = 0;
    let fails = false;
    const readiness = createReadiness(async () => {
      probes++;
      if (fails) throw new Error('down');
      return true;
    });
    expect(await Promise.all([readiness.check(), readiness.check(), readiness.check()])).toEqual([
      'ready',
      'ready',
      'ready',
    ]);
    expect(probes).toBe(1);
    const stop = new AbortController();
    const watch = readiness.watch(stop.signal)[Symbol.asyncIterator]();
    expect(await watch.next()).toMatchObject({ value: 'ready' });
    const next = watch.next();
    await readiness.check();
    fails = true;
    await readiness.check();
    expect(await next).toMatchObject({ value: 'database_unreachable' });
    const last = watch.next();
    readiness.drain();
    fails = false;
    expect(await readiness.check()).toBe('draining');
    expect(await last).toMatchObject({ value: 'draining' });
    stop.abort();
    expect(await watch.next()).toMatchObject({ done: true });
  });
});

describe('server reflection with its own client', () => {
  const ask = async (
    messageRequest: MessageInitShape<typeof ServerReflectionRequestSchema>['messageRequest'],
  ) => {
    const client = createClient(ServerReflection, createGrpcTransport({ baseUrl: service.internalUrl }));
    for await (const { messageResponse } of client.serverReflectionInfo(
      createAsyncIterable([
        create(ServerReflectionRequestSchema, { messageRequest: messageRequest as never }),
      ]),
    )) {
      if (messageResponse.case === 'fileDescriptorResponse') {
        const files = messageResponse.value.fileDescriptorProto.map((file) =>
          fromBinary(FileDescriptorProtoSchema, file),
        );
        return files.at(-1)?.name;
      }
      return messageResponse.case === 'errorResponse'
        ? messageResponse.value.errorCode
        : messageResponse.value;
    }
    return undefined;
  };

  test.each([
    ['payments.v1.PaymentIntent', 'payments/v1/payment_intent.proto'],
    ['payments.v1.PaymentIntent.metadata', 'payments/v1/payment_intent.proto'],
    ['payments.v1.Chain', 'payments/v1/payment_intent.proto'],
    ['payments.v1.PaymentIntentService', 'payments/v1/payment_intent_service.proto'],
    ['payments.v1.PaymentIntentService.CreatePaymentIntent', 'payments/v1/payment_intent_service.proto'],
    ['payments.v1.json_word', 'payments/v1/json.proto'],
    ['google.rpc.BadRequest', 'google/rpc/error_details.proto'],
    ['payments.v1.PaymentIntent.nonsense', 5],
    ['nonsense', 5],
    ['', 5],
  ])('symbol %j is in %j', async (value, file) => {
    expect(await ask({ case: 'fileContainingSymbol', value })).toBe(file);
  });

  test('files by name, extensions by number, and errors for unknown ones', async () => {
    expect(await ask({ case: 'fileByFilename', value: 'payments/v1/payment_intent.proto' })).toBe(
      'payments/v1/payment_intent.proto',
    );
    expect(await ask({ case: 'fileByFilename', value: 'nothing.proto' })).toBe(5);
    const containingType = 'google.protobuf.EnumValueOptions';
    expect(
      await ask({ case: 'fileContainingExtension', value: { containingType, extensionNumber: 50001 } }),
    ).toBe('payments/v1/json.proto');
    expect(
      await ask({ case: 'fileContainingExtension', value: { containingType, extensionNumber: 1 } }),
    ).toBe(5);
    expect(await ask({ case: 'allExtensionNumbersOfType', value: containingType })).toMatchObject({
      extensionNumber: [50001],
    });
    expect(await ask({ case: 'allExtensionNumbersOfType', value: 'nothing' })).toBe(5);
    expect(await ask({ case: undefined })).toBe(3);
  });
});

describe('a reflection stream of many messages', () => {
  const symbol = { case: 'fileContainingSymbol', value: 'google.rpc.BadRequest' } as const;
  const messages = (count: number) =>
    createAsyncIterable(
      Array.from({ length: count }, () => create(ServerReflectionRequestSchema, { messageRequest: symbol })),
    );
  const inMemory = (file: DescFile) =>
    createClient(
      ServerReflection,
      createRouterTransport((router) => registerReflection(router, [], [file])),
    );

  test('is refused above the limit', async () => {
    const client = createClient(ServerReflection, createGrpcTransport({ baseUrl: service.internalUrl }));
    let answers = 0;
    const asking = (async () => {
      for await (const _ of client.serverReflectionInfo(messages(1_001))) answers++;
    })();
    await expect(asking).rejects.toMatchObject({
      code: Code.ResourceExhausted,
      rawMessage: 'A reflection stream carries at most 1000 messages. Open another one.',
    });
    expect(answers).toBe(1_000);
  });

  test('serializes each file once', async () => {
    let reads = 0;
    const counted = Object.create(file_google_rpc_error_details, {
      proto: {
        get() {
          reads++;
          return file_google_rpc_error_details.proto;
        },
      },
    });
    const client = inMemory(counted);
    for await (const _ of client.serverReflectionInfo(messages(1)));
    const readsOfFirst = reads;
    for await (const _ of client.serverReflectionInfo(messages(3)));
    expect(reads).toBe(readsOfFirst);
  });

  test('is answered with one message per turn of the event loop, across all streams', async () => {
    const client = inMemory(file_google_rpc_error_details);
    let turns = 0;
    let isDone = false;
    const count = () => {
      turns++;
      if (!isDone) setImmediate(count);
    };
    setImmediate(count);
    const read = async () => {
      for await (const _ of client.serverReflectionInfo(messages(20)));
    };
    await Promise.all([read(), read(), read()]);
    isDone = true;
    expect(turns).toBeGreaterThanOrEqual(59);
  });
});

describe('server reflection, with no local files', () => {
  const buf = async (...args: string[]) =>
    (
      await run('buf', ['curl', '--protocol', 'grpc', '--http2-prior-knowledge', ...args], {
        timeout: 20_000,
      })
    ).stdout;

  test.each(['v1', 'v1alpha'])('buf curl lists the methods by %s', async (version) => {
    const methods = await buf('--reflect-protocol', `grpc-${version}`, '--list-methods', service.internalUrl);
    expect(methods.trim().split('\n').sort()).toEqual([
      'grpc.health.v1.Health/Check',
      'grpc.health.v1.Health/List',
      'grpc.health.v1.Health/Watch',
      'grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
      'grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo',
      ...[
        CheckoutService,
        EventService,
        PaymentIntentService,
        RefundService,
        TransferService,
        WebhookEndpointService,
      ].flatMap(({ typeName, methods }) => methods.map(({ name }) => `${typeName}/${name}`).sort()),
    ]);
  });

  test('buf curl creates an intent', async () => {
    const answer = await buf(
      '-H',
      `Authorization: Bearer ${service.merchant.keys.testnet.apiKey}`,
      '-d',
      '{"amount_units":"12500000","chain":"CHAIN_POLYGON","metadata":{"order_id":"o-1"}}',
      `${service.internalUrl}/payments.v1.PaymentIntentService/CreatePaymentIntent`,
    );
    expect(JSON.parse(answer)).toMatchObject({
      amountUnits: '12500000',
      chain: 'CHAIN_POLYGON',
      metadata: { order_id: 'o-1' },
    });
  });

  test('buf curl checks the health', async () => {
    const answer = await buf('-d', '{}', `${service.internalUrl}/grpc.health.v1.Health/Check`);
    expect(JSON.parse(answer)).toEqual({ status: 'SERVING' });
  });
});
