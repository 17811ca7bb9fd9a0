// The client of this repository, over each protocol, for its tests.

import { expect } from 'vitest';
import {
  createPaymentIntentsClient,
  type PaymentIntentsClient,
  type PaymentIntentsClientOptions,
  PaymentIntentsError,
} from '../../client/index.ts';
import type { TestService } from './service.ts';

export const protocols = ['json', 'grpc'] as const;
export type Protocol = (typeof protocols)[number];
export type ClientChange = Partial<PaymentIntentsClientOptions>;

export const portOf = ({ server }: TestService, protocol: Protocol): number =>
  server.ports[protocol === 'json' ? 'http' : 'grpc'];

/** Returns a client with the testnet key of the service's merchant, unless changed. */
export const clientOf = (
  service: TestService,
  protocol: Protocol,
  change: ClientChange = {},
): PaymentIntentsClient =>
  createPaymentIntentsClient({
    baseUrl: `http://127.0.0.1:${portOf(service, protocol)}`,
    apiKey: service.merchant.keys.testnet.apiKey,
    protocol,
    ...change,
  });

/** Returns the error of a call, which has to fail. */
export async function failureOf(call: () => unknown): Promise<Error> {
  try {
    await call();
  } catch (error) {
    return error as Error;
  }
  return expect.fail('it succeeded');
}

export async function errorOf(call: Promise<unknown>): Promise<PaymentIntentsError> {
  const error = await failureOf(() => call);
  expect(error).toBeInstanceOf(PaymentIntentsError);
  return error as PaymentIntentsError;
}

/** Returns the error of a call over each protocol. Fails if they differ, or if anything was sent. */
export async function refusedUnsent(
  service: TestService,
  call: (client: PaymentIntentsClient) => unknown,
): Promise<PaymentIntentsError> {
  const before = service.requestLines().length;
  const [json, grpc] = await Promise.all(
    protocols.map((protocol) => failureOf(async () => call(clientOf(service, protocol)))),
  );
  expect(service.requestLines().slice(before)).toEqual([]);
  expect(json?.message).toBe(grpc?.message);
  return json as PaymentIntentsError;
}

export async function all<Item>(list: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of list) items.push(item);
  return items;
}

/** Returns a resource as JSON. */
export const written = (resource: unknown) => JSON.parse(JSON.stringify(resource));
