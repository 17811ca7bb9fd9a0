import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { create as createMessage } from '@bufbuild/protobuf';
import type { MikroORM } from '@mikro-orm/postgresql';
import type { Config, SecretName } from '../config/config.ts';
import type { KeyRing } from '../config/key-ring.ts';
import { createLink } from '../console/sessions.ts';
import { Chain } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { CreatePaymentIntentRequestSchema } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import { chainNames } from '../contract/words.ts';
import { maxExpiryMinutes } from '../database/entities/payment-intent.ts';
import { createApiKey, createMerchant, merchantExists, type Wallets } from '../merchants/administration.ts';
import { uuidOf } from '../merchants/operator-ids.ts';
import { createPaymentIntentStore } from '../payment-intents/insert-or-replay.ts';
import { createPaymentIntent } from '../payment-intents/payment-intent-methods.ts';
import { type Identity, newRequestContext } from '../requests/request-context.ts';
import { readIfThere, writeOnce } from './write-once.ts';

/** The demo merchant of an embedded database, as stored in `demo.json`. Test money only. */
interface Demo {
  merchant_id: string;
  testnet_key: string;
  wallet_address: string;
  /** The private key of a wallet made only for this demo. It should hold only test money. */
  wallet_private_key: string;
}

/** An embedded database that is open, with its secrets. */
interface Database {
  orm: MikroORM;
  keyRing(name: SecretName): KeyRing;
}

/** Returns the demo merchant of this database. Makes it, with a testnet wallet and key, if there is none. */
export async function ensureDemo(database: Database, dataDir: string): Promise<Demo> {
  const file = join(dataDir, 'demo.json');
  const existing = await readIfThere(file);
  if (existing !== undefined) {
    const demo: Demo = JSON.parse(existing);
    if (await merchantExists(database.orm.em, demo.merchant_id)) return demo;
    // It belongs to a database that no longer exists.
    await rm(file);
  }

  // Loaded here because only a first start needs it. It takes a tenth of a second.
  const { generatePrivateKey, privateKeyToAccount } = await import('viem/accounts');
  const wallet_private_key = generatePrivateKey();
  const wallet_address = privateKeyToAccount(wallet_private_key).address;
  const { em } = database.orm;
  const merchant_id = await createMerchant(em, 'Demo merchant', 'testnet', onEveryChain(wallet_address));
  const { apiKey } = await createApiKey(em, database.keyRing('API_KEY_PEPPERS'), merchant_id, 'testnet');
  const demo: Demo = { merchant_id, testnet_key: apiKey, wallet_address, wallet_private_key };
  // If another process wrote the file first, its content wins and the merchant just made is never used.
  return JSON.parse(await writeOnce(file, `${JSON.stringify(demo, null, 2)}\n`));
}

/** The payment of the demo checkout: 12.50 USDC on Base, for as long as an intent can be open. */
const demoPayment = { amountUnits: 12_500_000n, chain: Chain.BASE, expiresInMinutes: maxExpiryMinutes };
/** The idempotency keys of its intents: this and a number. */
const demoKeyPrefix = 'demo-checkout-';
const consoleMs = 12 * 3_600_000;

/** Returns the code of a link that opens the console for the person at this terminal. */
export async function demoConsoleCode({ orm: { em }, keyRing }: Database): Promise<string> {
  const link = { name: 'You', isReadOnly: false, lastsMs: consoleMs };
  return (await createLink(em, keyRing('API_KEY_PEPPERS'), link)).code;
}

/** A printed link works for at least this long. */
const minOpenMinutes = 10;

/** Returns the client secret of the open demo intent, or of a new one. Concurrent calls get the same. */
export async function demoClientSecret({ orm: { em }, keyRing }: Database, { queue }: Config, demo: Demo) {
  const merchantId = uuidOf('mer', demo.merchant_id);
  // The number is the count of ended intents. If there is an intent with that key, it is open.
  const [{ ended }] = await em.fork().execute<[{ ended: string }]>(
    `select count(*) as ended from payment_intents
      where merchant_id = ? and mode = 'testnet' and starts_with(idempotency_key, ?)
        and (status <> 'requires_payment' or expires_at < now() + make_interval(mins => ?))`,
    [merchantId, demoKeyPrefix, minOpenMinutes],
  );
  const wallet = demo.wallet_address as WalletAddress;
  const identity: Identity = {
    merchantId,
    merchantTypeId: demo.merchant_id,
    keyTypeId: 'demo',
    mode: 'testnet',
    payoutWallets: onEveryChain(wallet),
  };
  const create = createPaymentIntent(
    createPaymentIntentStore(em, queue),
    keyRing('CLIENT_SECRET_KEYS'),
    // Even without a chain, the checkout can be looked at.
    { allows: () => true },
  );
  const call = {
    context: newRequestContext('public'),
    header: new Headers({ 'idempotency-key': `${demoKeyPrefix}${ended}` }),
  };
  const request = createMessage(CreatePaymentIntentRequestSchema, demoPayment);
  return (await create.run(request, identity, call)).clientSecret;
}

function onEveryChain(wallet: WalletAddress): Wallets {
  return Object.fromEntries(chainNames.map((chain) => [chain, wallet]));
}
