import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readIfThere, writeOnce } from '../config/write-once.ts';
import { createApiKey, createMerchant, merchantExists } from '../merchants/administration.ts';
import type { Database } from './open-database.ts';

/** The demo merchant of an embedded database, as stored in `demo.json`. Test money only. */
export interface Demo {
  merchant_id: string;
  testnet_key: string;
  wallet_address: string;
  /** The private key of a wallet made only for this demo. It should hold only test money. */
  wallet_private_key: string;
}

/** Returns the demo merchant of this database. Creates it with a new testnet wallet and key if there is none. */
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
  const merchant_id = await createMerchant(em, 'Demo merchant', 'testnet', {
    base: wallet_address,
    polygon: wallet_address,
  });
  const { apiKey } = await createApiKey(
    em,
    database.keyRing('API_KEY_PEPPERS'),
    merchant_id,
    'testnet',
    undefined,
  );
  const demo: Demo = { merchant_id, testnet_key: apiKey, wallet_address, wallet_private_key };
  // If another process wrote the file at the same moment, its content wins and the merchant just made is never used.
  return JSON.parse(await writeOnce(file, `${JSON.stringify(demo, null, 2)}\n`));
}
