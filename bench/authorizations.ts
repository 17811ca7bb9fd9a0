// Payments by signature: how many a second pass the route, its checks, the chain's node and the store, if the
// facilitator answers at once; and how much a hundred a second slow down creates.

import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Hex, numberToHex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { PaymentRequired } from '../src/contract/x402.ts';
import { mintCall } from '../src/embedded/contracts.ts';
import { startChain, type TestChain } from '../test/support/chain.ts';
import { issuer } from '../test/support/chain-contracts.ts';
import { listen } from '../test/support/listen.ts';
import { paymentHeader, sign } from '../test/support/x402.ts';
import { loadByH2load, requireTools } from './load.ts';
import {
  inTurn,
  median,
  onThisMachine,
  prepareDatabase,
  publish,
  type Running,
  ratiosOf,
  spread,
  startOurs,
  table,
  warmUpSeconds,
  withSetting,
} from './setting.ts';

const atOnce = 2_000;
const besidePerSecond = 100;
const inFlight = 64;
const amountUnits = 1_000_000;

export async function measureAuthorizations({
  rounds,
  seconds,
}: {
  rounds: number;
  seconds: number;
}): Promise<void> {
  await requireTools(['h2load']);
  const chain = await startChain();
  const network = `eip155:${chain.network.chainId}`;
  // The same answer to everything, a refusal: without one, a request would wait for the chain.
  const answer = JSON.stringify({ isValid: false, kinds: [{ x402Version: 2, scheme: 'exact', network }] });
  const facilitator = await listen(createServer((_, response) => response.end(answer)));
  try {
    await withSetting(async ({ folder, postgres }) => {
      const { environment, apiKey, orm } = await prepareDatabase(postgres);
      const own = {
        ...environment,
        ROLES: 'api',
        RATE_LIMIT_CHECKOUT: '0',
        RPC_URL_BASE_SEPOLIA: chain.url,
        X402_FACILITATOR_URL_BASE_SEPOLIA: facilitator.url,
      };
      const server = await startOurs(own, 'HTTP_PORT');
      const rates: number[] = [];
      // The first round is not counted: it warms the service up.
      for (let round = -1; round < rounds; round++) {
        const payments = await makePayments(chain, server, apiKey, atOnce);
        const beganAtMs = performance.now();
        await inPool(payments, (payment) => send(server, payment));
        if (round >= 0) rates.push(atOnce / ((performance.now() - beganAtMs) / 1_000));
      }
      const load = { port: server.port, apiKey, inFlight: 32, seconds };
      await loadByH2load(folder, 'http', { ...load, seconds: warmUpSeconds });
      const creates = { alone: [] as number[], beside: [] as number[] };
      for (let round = 0; round < rounds; round++) {
        for (const state of inTurn(['alone', 'beside'] as const, round)) {
          const count = state === 'beside' ? besidePerSecond * (seconds + 2) : 0;
          const payments = await makePayments(chain, server, apiKey, count);
          const paying = pace(server, payments);
          creates[state].push((await loadByH2load(folder, 'http', load)).perSecond);
          await paying;
        }
      }
      await server.stop();
      await orm.close();
      await publish(
        'results-authorizations.md',
        `# Payments by a signature

\`npm run bench -- --authorizations\` ${onThisMachine()}; ${rounds} rounds. The chain (anvil), the database, the facilitator and the clients share the processors with the one process of the service.

${table(
  ['', ''],
  [
    ['authorizations a second through route, checks and store (target: 500)', Math.round(median(rates))],
    [
      `creates beside ${besidePerSecond} a second / without (target: 0.95)`,
      spread(ratiosOf(creates.beside, creates.alone)),
    ],
  ],
)}
`,
      );
    });
  } finally {
    await facilitator.close();
    await chain.stop();
  }
}

interface SignedPayment {
  secret: string;
  header: string;
}

let payersMade = 0;

/** Intents, each with its own payer, who has the money and has signed. */
async function makePayments(
  chain: TestChain,
  server: Running,
  apiKey: string,
  count: number,
): Promise<SignedPayment[]> {
  if (count === 0) return [];
  const payers = Array.from({ length: count }, () =>
    privateKeyToAccount(numberToHex(5_000_000 + payersMade++, { size: 32 })),
  );
  const mints = payers.map(({ address }) => ({
    to: chain.usdc,
    data: mintCall(address, BigInt(amountUnits)) as Hex,
  }));
  await chain.sendMany(issuer, mints);
  await chain.mine();
  return inPool(payers, async (payer) => {
    const intent = await fetch(`http://127.0.0.1:${server.port}/v1/payment_intents`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ amount_units: amountUnits }),
    });
    const { client_secret: secret } = (await intent.json()) as { client_secret: string };
    const { accepts } = JSON.parse(await post(server, secret, 402)) as PaymentRequired;
    const [offer] = accepts;
    if (offer === undefined) throw new Error('nothing is offered');
    return { secret, header: paymentHeader(await sign(payer, offer), offer) };
  });
}

async function post({ port }: Running, secret: string, expected: number, header?: string): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${port}/v1/checkout/pay`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, ...(header && { 'payment-signature': header }) },
  });
  const text = await answer.text();
  if (answer.status !== expected) throw new Error(`answered ${answer.status}: ${text}`);
  return text;
}

const send = (server: Running, { secret, header }: SignedPayment) => post(server, secret, 202, header);

/** Does the work for each item, a limited number at a time. */
async function inPool<T, U>(items: readonly T[], work: (item: T) => Promise<U>): Promise<U[]> {
  const results: U[] = [];
  let next = 0;
  const one = async () => {
    while (next < items.length) {
      const place = next++;
      results[place] = await work(items[place] as T);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  return results;
}

/** Sends the payments at `besidePerSecond`. */
async function pace(server: Running, payments: readonly SignedPayment[]): Promise<void> {
  const beganAtMs = performance.now();
  const sent: Promise<string>[] = [];
  for (const [i, payment] of payments.entries()) {
    const waitMs = beganAtMs + (1_000 * i) / besidePerSecond - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    sent.push(send(server, payment));
  }
  await Promise.all(sent);
}
