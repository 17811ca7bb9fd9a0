// Endpoints, events and a receiver for the webhook benchmarks.

import { setTimeout as sleep } from 'node:timers/promises';
import { Webhook } from 'standardwebhooks';
import { parseKeyRing } from '../src/config/key-ring.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { createMerchant } from '../src/merchants/administration.ts';
import { createExpiry } from '../src/payment-intents/expire-payment-intents.ts';
import { createDeliveries } from '../src/webhooks/delivery-queue.ts';
import { createEndpoint } from '../src/webhooks/endpoints.ts';
import { fillPaymentIntents } from './fill.ts';
import { type PreparedDatabase, type Running, startContender } from './setting.ts';

/** What the receiver has received since `forget`. */
export interface Arrivals {
  /** Requests that were answered. */
  count: number;
  /** Requests that are never answered. */
  hanging: number;
  /** Milliseconds since 1970; 0 if nothing has arrived. */
  firstAtMs: number;
  lastAtMs: number;
  /** The first arrival of each event that was answered, by its public id, in milliseconds since 1970. */
  byEvent: Record<string, number>;
  /** Some of the answered requests. */
  kept: { path: string; headers: Record<string, string>; body: string }[];
}

export interface Receiver extends Running {
  /** The URL of an endpoint that answers, or of one that never does. */
  url(kind: 'answers' | 'hangs', name: string | number): string;
  counts(): Promise<Pick<Arrivals, 'count' | 'hanging'>>;
  arrivals(): Promise<Arrivals>;
  forget(): Promise<void>;
}

/** Lets the service send to this machine. */
export const loopbackAllowed = { WEBHOOK_ALLOW: '127.0.0.0/8' };

export async function startReceiver(): Promise<Receiver> {
  const running = await startContender('bench/receiver.ts', {});
  const origin = `http://127.0.0.1:${running.port}`;
  const get = async (path: string) => (await fetch(origin + path)).json();
  return {
    ...running,
    url: (kind, name) => `${origin}/${kind}/${name}`,
    counts: () => get('/counts') as Promise<Arrivals>,
    arrivals: () => get('/all') as Promise<Arrivals>,
    async forget() {
      await fetch(`${origin}/forget`, { method: 'POST' });
    },
  };
}

/** Creates merchants and returns their ids, as UUIDs. */
export async function createMerchants({ orm }: PreparedDatabase, count: number): Promise<string[]> {
  const wallet = `0x${'1'.repeat(40)}` as const;
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const id = await createMerchant(orm.em, `Bench ${i}`, 'testnet', { base: wallet });
    ids.push(parseIdentifier('mer', id) ?? '');
  }
  return ids;
}

/** Creates endpoints of a merchant for every event. Returns their secrets by the path of their URL. */
export async function createEndpoints(
  { orm, environment }: PreparedDatabase,
  merchantId: string,
  urls: readonly string[],
): Promise<Map<string, string>> {
  const keys = parseKeyRing(environment.WEBHOOK_SECRET_KEYS ?? '');
  const secrets = new Map<string, string>();
  for (const url of urls) {
    const settings = { url, eventTypes: ['*'], enabled: true, description: '' };
    const { secret } = await createEndpoint(orm.em, keys, { merchantId, mode: 'testnet' }, settings);
    secrets.set(new URL(url).pathname, secret);
  }
  return secrets;
}

/** Records this many events of each merchant, as the service would, and makes their deliveries. */
export async function makeDeliveries(
  { orm }: PreparedDatabase,
  merchantIds: readonly string[],
  eventsEach: number,
): Promise<void> {
  await fillPaymentIntents(orm.em, merchantIds, 'overdue', merchantIds.length * eventsEach);
  const expire = createExpiry(orm.em, (_, reason) => {
    throw reason;
  });
  while ((await expire()).expired > 0);
  await createPositioner(orm.em, createDeliveries).positionAll();
  await orm.em.execute('vacuum analyze webhook_deliveries, events');
}

/** Resolves when `count` requests have been answered. Throws if no more arrive for ten seconds. */
export async function untilAnswered(receiver: Receiver, count: number): Promise<void> {
  let last = -1;
  let changedAtMs = performance.now();
  for (;;) {
    const { count: answered } = await receiver.counts();
    if (answered >= count) return;
    if (answered !== last) changedAtMs = performance.now();
    else if (performance.now() - changedAtMs > 10_000)
      throw new Error(`only ${answered} of ${count} deliveries have arrived`);
    last = answered;
    await sleep(50);
  }
}

/** Throws if a kept request was not signed with the secret of its endpoint. Returns how many there were. */
export function verifyKept({ kept }: Arrivals, secrets: ReadonlyMap<string, string>): number {
  for (const { path, headers, body } of kept) new Webhook(secrets.get(path) ?? '').verify(body, headers);
  return kept.length;
}
