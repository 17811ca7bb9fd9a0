// The process that takes signatures is killed: before it has stored one, between storing it and asking the
// facilitator, and while it waits. The payer sends the same signature again, and pays once.

import { setTimeout as sleep } from 'node:timers/promises';
import { numberToHex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { PaymentRequired } from '../../src/contract/x402.ts';
import { startChain, type TestChain } from '../support/chain.ts';
import { startPostgresProxy } from '../support/postgres-proxy.ts';
import {
  gaslessLine,
  paymentHeader,
  sign,
  startTestFacilitator,
  type TestFacilitator,
} from '../support/x402.ts';
import { endAll, logLines, type ServiceProcess, startProcess, useCluster } from './support/process.ts';
import { random } from './support/seed.ts';

/** `KILLS=100 npm run test:faults -- authorizations` is the soak. */
const kills = Number(process.env.KILLS ?? 3);

let chain: TestChain;
let facilitator: TestFacilitator;

const cluster = useCluster();

beforeEach(async () => {
  chain = await startChain();
  facilitator = await startTestFacilitator(chain);
});

afterEach(async () => {
  await endAll();
  await facilitator.close();
  await chain.stop();
});

async function startApi(env: Record<string, string> = {}): Promise<ServiceProcess> {
  const known = logLines().length;
  const api = await startProcess(cluster, {
    ...env,
    ROLES: 'api',
    RPC_URL_BASE_SEPOLIA: chain.url,
    X402_FACILITATOR_URL_BASE_SEPOLIA: facilitator.url,
  });
  while (
    !logLines()
      .slice(known)
      .some(({ message }) => message === gaslessLine)
  )
    await sleep(20);
  return api;
}

const createIntent = async (api: ServiceProcess) =>
  (await api.call('createPaymentIntent', { amount_units: 1_000, chain: 'base' })).json.client_secret;

const pay = (api: ServiceProcess, secret: string, header?: string) =>
  fetch(`${api.publicUrl}/v1/checkout/pay`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, ...(header && { 'payment-signature': header }) },
  });

test('a signature that is sent again after each kill pays once', {
  timeout: 60_000 + kills * 20_000,
}, async () => {
  const watcher = await startProcess(cluster, {
    ROLES: 'watcher,expiry',
    RPC_URL_BASE_SEPOLIA: chain.url,
  });
  let api = await startApi();
  let isMining = true;
  const mining = (async () => {
    while (isMining) {
      await chain.mine();
      await sleep(100);
    }
  })();
  for (let i = 0; i < kills; i++) {
    const payer = privateKeyToAccount(numberToHex(7_000_000 + i, { size: 32 }));
    await chain.mint(payer.address, 2_000n);
    const secret = await createIntent(api);
    const { accepts } = (await (await pay(api, secret)).json()) as PaymentRequired;
    const [offer] = accepts;
    if (offer === undefined) throw new Error('nothing is offered');
    // The chain would refuse the authorization before the payer has the money.
    await chain.mine();
    const signed = await sign(payer, offer);
    const header = paymentHeader(signed, offer);
    const verified = facilitator.asked.length;
    const lost = pay(api, secret, header).catch(() => undefined);
    // The signature is not stored yet, stored, or with the facilitator.
    await sleep(((i % 3) + random.fraction()) * 20);
    await api.end('SIGKILL');
    await lost;
    api = await startApi();
    // The facilitator may send a signature that it was given. Otherwise nobody can, and the payer waits.
    if (facilitator.asked.length > verified + 1) await facilitator.send(signed).catch(() => undefined);
    const again = pay(api, secret, header);
    const answered = await Promise.race([again, sleep(3_000)]);
    if (answered?.status !== 200) await facilitator.send(signed).catch(() => undefined);
    expect([200, 202]).toContain((await again).status);
    for (;;) {
      const [row] = await cluster.query<{ status: string }>(
        'select status from payment_intents order by id desc limit 1',
      );
      if (row?.status === 'succeeded') break;
      await sleep(50);
    }
  }
  isMining = false;
  await mining;
  await watcher.end('SIGTERM');
  const rows = await cluster.query(
    `select i.amount_received_units as received, i.payments_count as payments,
            (select string_agg(a.status::text, ' ') from authorizations a where a.payment_intent = i.id) as signed
       from payment_intents i`,
  );
  expect(rows).toEqual(Array(kills).fill({ received: '1000', payments: 1, signed: 'landed' }));
});

test('a signature is sent although the answer to storing it is lost', async () => {
  let isLost = false;
  const proxy = await startPostgresProxy(cluster.socket, cluster.location.user, () => {
    let isStoring = false;
    return ({ type, body }) => {
      // RowDescription has the names of the columns. The commit is done once the server is ready for a statement.
      if (type === 'T') isStoring = body.includes('given_id');
      if (type !== 'Z' || !isStoring || isLost) return 'forward';
      isLost = true;
      return 'cut';
    };
  });
  await startProcess(cluster, { ROLES: 'watcher', RPC_URL_BASE_SEPOLIA: chain.url });
  const api = await startApi({ DATABASE_URL: proxy.url });
  const payer = privateKeyToAccount(numberToHex(6_000_000, { size: 32 }));
  await chain.mint(payer.address, 2_000n);
  await chain.mine();
  const secret = await createIntent(api);
  const { accepts } = (await (await pay(api, secret)).json()) as PaymentRequired;
  const [offer = expect.fail()] = accepts;
  const header = paymentHeader(await sign(payer, offer), offer);
  const sent = facilitator.nextSent();
  const paid = pay(api, secret, header);
  await sent;
  await chain.mine();
  expect((await paid).status).toBe(200);
  expect(isLost).toBe(true);
  await proxy.close();
});
