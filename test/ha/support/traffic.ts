// A merchant's traffic while the cluster fails: creates with a journal, and intents that are canceled or
// paid, and followed by a stream and webhooks.

import { setTimeout as sleep } from 'node:timers/promises';
import { stringToHex } from 'viem';
import { vi } from 'vitest';
import { createPaymentIntentsClient, PaymentIntentsError } from '../../../client/index.ts';
import { isTransient, type Load, startLoad } from '../../faults/support/load.ts';
import type { TestChain } from '../../support/chain.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import type { HaCluster } from './cluster.ts';

/** The effects of a fault in one round. */
export interface Cost {
  acknowledged: number;
  lost: number;
  doubled: number;
  /** The number of answers that a client must not retry. */
  notRetryable: number;
  /** Attempts that failed and succeeded later, or were given up because they had no idempotency key. */
  failures: ReadonlyMap<string, number>;
  /** The longest time without an acknowledged create. */
  outageMs: number;
  /** The 99th percentile of acknowledged attempts. */
  p99Ms: number;
}

export interface Traffic {
  load: Load;
  /** Ends the creates, waits for the rest of the traffic, and compares it with what was seen. */
  finish(): Promise<Cost>;
}

export interface Shop {
  apiKey: string;
  receiver: Receiver;
  chain: TestChain;
}

const wallet = `0x${'1'.repeat(40)}` as const;

/** Makes a merchant. Returns its API key. */
export async function createMerchant({ admin }: HaCluster): Promise<string> {
  const { merchant_id: id } = await admin(
    'merchant',
    'create',
    '--name=Ada',
    '--mode=testnet',
    `--wallet=${wallet}`,
  );
  const { api_key } = await admin('key', 'create', `--merchant=${id}`, '--mode=testnet');
  return api_key;
}

/** Makes a merchant with an endpoint for webhooks. */
export async function openShop(cluster: HaCluster, chain: TestChain): Promise<Shop> {
  const apiKey = await createMerchant(cluster);
  const receiver = await startReceiver();
  const payments = createPaymentIntentsClient({ baseUrl: cluster.endpoints.publicUrl, apiKey });
  await payments.createWebhookEndpoint({ url: `${receiver.url}/` });
  const [{ address }] = chain.accounts;
  await chain.mint(address, 1_000_000_000n);
  return { apiKey, receiver, chain };
}

const restMs = 80;
const callers = 12;
/** Enough blocks for every confirmation. */
const lastBlocks = 20;

export async function startTraffic(cluster: HaCluster, { apiKey, receiver, chain }: Shop): Promise<Traffic> {
  const { publicUrl, internalUrl } = cluster.endpoints;
  const tookMs: number[] = [];
  let notRetryable = 0;
  let outageMs = 0;
  let acknowledgedAtMs = performance.now();
  const load = await startLoad(cluster, {
    services: [cluster.endpoints],
    apiKey,
    callers,
    restMs,
    shareWithoutKey: 0.5,
    onFailure(failure) {
      if (isTransient(failure)) return 'retry';
      notRetryable++;
      return 'stop';
    },
    onAcknowledged(ms) {
      tookMs.push(ms);
      outageMs = Math.max(outageMs, performance.now() - acknowledgedAtMs);
      acknowledgedAtMs = performance.now();
    },
  });

  const over = { json: publicUrl, grpc: internalUrl };
  const clients = (['json', 'grpc'] as const).map((protocol) =>
    createPaymentIntentsClient({ baseUrl: over[protocol], apiKey, protocol }),
  );
  let isStopping = false;
  /** Retries until it succeeds, like a job in a queue. */
  const persist = async <T>(attempt: () => Promise<T>): Promise<T | undefined> => {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof PaymentIntentsError && error.isRetryable)) {
          console.log(error);
          notRetryable++;
          return undefined;
        }
        await sleep(100);
      }
    }
  };

  /** The last event of each intent that was acknowledged. */
  const expected = new Map<string, string>();
  const toPay: string[] = [];
  const live = async (client: (typeof clients)[number], worker: number) => {
    for (let i = 0; !isStopping; i++) {
      const idempotencyKey = `life-${worker}-${i}-${performance.now()}`;
      const intent = await persist(() =>
        client.createPaymentIntent({ amountUnits: 1_000, chain: 'base' }, { idempotencyKey }),
      );
      if (intent === undefined) continue;
      if (i % 2 === 0) {
        const canceled = await persist(() => client.cancelPaymentIntent(intent.id));
        if (canceled !== undefined) expected.set(intent.id, 'payment_intent.canceled');
      } else {
        toPay.push(intent.id);
      }
      await sleep(200);
    }
  };
  const pay = async () => {
    const [{ address: from }] = chain.accounts;
    for (;;) {
      const ids = toPay.splice(0, 50);
      await chain.sendMany(
        from,
        ids.map((id) => chain.transferCall({ to: wallet, amountUnits: 1_000n, suffix: stringToHex(id) })),
      );
      await chain.mine();
      for (const id of ids) expected.set(id, 'payment_intent.succeeded');
      if (isStopping && toPay.length === 0) return;
      await sleep(1_000);
    }
  };
  const lives = Promise.all(clients.map(live));
  const paying = pay();

  const end = new AbortController();
  const streamed: { id: string; type: string; intent: string; sequence: number }[] = [];
  const followed = (async () => {
    const client = createPaymentIntentsClient({ baseUrl: internalUrl, apiKey, protocol: 'grpc' });
    for await (const { event } of client.watchEvents({ signal: end.signal })) {
      const intent = event?.data.paymentIntent?.id;
      if (event === undefined || intent === undefined) continue;
      streamed.push({ id: event.id, type: event.type, intent, sequence: event.sequence ?? 0 });
    }
  })().catch((reason) => {
    if (!end.signal.aborted) throw reason;
  });

  return {
    load,
    async finish() {
      isStopping = true;
      await lives;
      await paying;
      await chain.mine(lastBlocks);
      const figures = await load.finish();
      const missing = () => {
        const ids = new Map(streamed.map(({ id, type, intent }) => [`${type} ${intent}`, id]));
        const received = new Set(receiver.requests.map(({ headers }) => headers['webhook-id']));
        return [...expected].filter(([intent, type]) => !received.has(ids.get(`${type} ${intent}`) ?? ''));
      };
      await vi.waitUntil(() => missing().length === 0, { timeout: 90_000, interval: 500 }).catch(() => {});
      end.abort();
      await followed;
      const ids = streamed.map(({ id }) => id);
      const places = new Set(streamed.map(({ intent, sequence }) => `${intent} ${sequence}`));
      return {
        acknowledged: figures.acknowledged + expected.size,
        lost: figures.lost + missing().length,
        doubled: figures.doubled + ids.length - places.size,
        notRetryable,
        failures: load.failures,
        outageMs: Math.round(outageMs),
        p99Ms: Math.round(tookMs.toSorted((a, b) => a - b)[Math.floor(tookMs.length * 0.99)] ?? 0),
      };
    },
  };
}
