// A service whose payers pay by signatures, for the tests of a file. The chain, the facilitator and the
// watcher act only when the test says so.

import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach } from 'vitest';
import type { PaymentRequirements, SettleResponse } from '../../src/contract/x402.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { startChain } from './chain.ts';
import { startLyingNode } from './lying-node.ts';
import { httpRequest, startService, type TestService } from './service.ts';
import { createTestWatcher } from './settlement.ts';
import { gaslessLine, startTestFacilitator } from './x402.ts';

// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
export type Json = any;

export interface PayAnswer {
  status: number;
  json: Json;
  /** From `PAYMENT-RESPONSE`. */
  settled: SettleResponse | undefined;
}

/** An intent, its payment requirements, and a payer who has the money. */
export interface Order {
  id: string;
  secret: string;
  offer: PaymentRequirements;
  account: PrivateKeyAccount;
}

/** The amount of each order. */
export const amount = 1_000_000;

export async function useGasless(roles: string) {
  const chain = await startChain();
  const facilitator = await startTestFacilitator(chain);
  const node = await startLyingNode(chain.url);
  /** Starts another service beside the first, with these nodes. */
  const start = async (
    nodes: string,
    { beside, facilitatorUrl = facilitator.url }: { beside?: TestService; facilitatorUrl?: string } = {},
  ): Promise<TestService> => {
    const env = {
      ROLES: beside ? 'api' : roles,
      RPC_URL_BASE_SEPOLIA: nodes,
      X402_FACILITATOR_URL_BASE_SEPOLIA: facilitatorUrl,
      RATE_LIMIT_CHECKOUT: '0',
    };
    const started = await startService(env, beside ? { beside } : {});
    await started.loggedLine(({ message }) => message === gaslessLine);
    return started;
  };
  const service = await start(node.url);
  const watcher = createTestWatcher(service, { urls: [chain.url] });
  await watcher.catchUp();
  afterAll(async () => {
    await service.close();
    await Promise.all([facilitator.close(), node.close()]);
    await chain.stop();
  });
  afterEach(() => {
    facilitator.behaviour = {};
  });

  async function pay(secret: string, signature?: string, at = service): Promise<PayAnswer> {
    const headers = {
      authorization: `Bearer ${secret}`,
      ...(signature !== undefined && { 'payment-signature': signature }),
    };
    const answer = await httpRequest(`${at.publicUrl}/v1/checkout/pay`, { headers });
    const response = answer.headers['payment-response'];
    const settled = response && JSON.parse(Buffer.from(String(response), 'base64').toString());
    return { status: answer.status, json: JSON.parse(answer.body), settled };
  }

  async function newAccount(units = 10n * BigInt(amount)): Promise<PrivateKeyAccount> {
    const account = privateKeyToAccount(generatePrivateKey());
    await chain.mint(account.address, units);
    await chain.mine();
    return account;
  }

  async function createIntent(fields: object = {}, options: { apiKey?: string } = {}) {
    const request = { amount_units: amount, ...fields };
    const { json } = await service.call('createPaymentIntent', request, options);
    return { id: json.id as string, secret: json.client_secret as string };
  }

  async function newOrder(fields: object = {}, options: { apiKey?: string } = {}): Promise<Order> {
    const [intent, account] = [await createIntent(fields, options), await newAccount()];
    const { json } = await pay(intent.secret);
    return { ...intent, offer: json.accepts[0], account };
  }

  /** The statuses of an intent's authorizations, oldest first. */
  async function statusesOf(id: string): Promise<string[]> {
    const rows = await service.query<{ status: string }>(
      'select status from authorizations where payment_intent = $1 order by id',
      [parseIdentifier('pi', id)],
    );
    return rows.map(({ status }) => status);
  }

  async function readBlock(blocks = 1): Promise<void> {
    await watcher.catchUp(chain.mine(blocks));
  }

  return {
    statusesOf,
    readBlock,
    chain,
    facilitator,
    node,
    service,
    watcher,
    start,
    pay,
    newAccount,
    createIntent,
    newOrder,
  };
}
