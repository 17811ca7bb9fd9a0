// The accounts and contracts of a test's chain.

import { gunzipSync, gzipSync } from 'node:zlib';
import { type Address, bytesToHex, type Hex, hexToBytes, toHex } from 'viem';
import { mnemonicToAccount, privateKeyToAccount } from 'viem/accounts';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import type { ChainClient } from '../../src/embedded/chain-client.ts';
import {
  assertSucceeded,
  deployAt,
  initializeUsdc,
  readArtifact,
  usualDeployments,
} from '../../src/embedded/contracts.ts';
import {
  createSimpleAccounts,
  entryPointDeployments,
  factoryDeployments,
  type Owners,
  type SimpleAccounts,
} from './entry-points.ts';
import { type Safe, safeDeployments, setUpSafe } from './safe.ts';

/** Anvil's default, which is public. */
const mnemonic = 'test test test test test test test test test test test junk';
const accountAt = (addressIndex: number) => {
  const { privateKey } = mnemonicToAccount(mnemonic, { addressIndex }).getHdKey();
  return privateKeyToAccount(toHex(privateKey as Uint8Array));
};
/** Accounts with keys, which anvil has unlocked and given 10,000 ETH each. */
export const accounts = [
  accountAt(0),
  accountAt(1),
  accountAt(2),
  accountAt(3),
  accountAt(4),
  accountAt(5),
] as const;
/** Has Circle's roles. */
export const issuer = accountAt(6).address;
export const deployer = accountAt(7).address;
/** Sends bundles, multicalls and authorizations signed by others. */
export const relayer = accountAt(8).address;
/** Owners of the contracts that hold money. */
const owners: Owners = [accounts[0], accounts[1], accounts[2]];

/** The canonical address of Simple7702Account, which lets an account of EIP-7702 call several contracts at once. */
export const delegateAddress = '0xe6Cae83BdE06E4c305530e199D7217f42808555B';

export interface Contracts {
  simpleAccounts: SimpleAccounts;
  safe: Safe;
}

/** The first deployment in this process, by the address of USDC. Anvil loads it in 10 ms instead of 300. */
const deployed = new Map<Address, { state: Hex; contracts: Contracts }>();

/** Deploys every contract on a new chain. Mines three blocks. */
export async function deployContracts(client: ChainClient, usdc: Address): Promise<Contracts> {
  const before = deployed.get(usdc);
  if (before === undefined) {
    const contracts = await deploy(client, usdc);
    deployed.set(usdc, { state: withoutBlocks(await client.dumpState()), contracts });
    return contracts;
  }
  await client.loadState({ state: before.state });
  await client.mine({ blocks: 3 });
  return before.contracts;
}

function withoutBlocks(dump: Hex): Hex {
  const state = JSON.parse(gunzipSync(hexToBytes(dump)).toString());
  for (const name of ['block', 'best_block_number', 'historical_states']) state[name] = null;
  for (const name of ['blocks', 'transactions']) state[name] = [];
  return bytesToHex(gzipSync(JSON.stringify(state)));
}

async function deploy(client: ChainClient, usdc: Address): Promise<Contracts> {
  const tokens = { USDC: usdc, 'USDC.e': bridgedUsdcAddresses.usdcE, USDbC: bridgedUsdcAddresses.usdbC };
  await deployAt(client, deployer, [...usualDeployments(Object.values(tokens)), ...entryPointDeployments()]);
  const hashes: Hex[] = [];
  for (const [symbol, token] of Object.entries(tokens)) {
    hashes.push(...(await initializeUsdc(client, token, issuer, { tokenSymbol: symbol, decimals: 6 })));
  }
  await deployAt(client, deployer, [
    ...factoryDeployments(),
    ...safeDeployments(),
    {
      address: delegateAddress,
      artifact: readArtifact('@account-abstraction/contracts/artifacts/Simple7702Account.json'),
    },
  ]);
  const created = await createSimpleAccounts(client, owners, deployer);
  const { safe, hash } = await setUpSafe(client, accounts[0], deployer);
  await client.mine({ blocks: 1 });
  for (const each of [...hashes, ...created.hashes, hash]) await assertSucceeded(client, each);
  return { simpleAccounts: created.simpleAccounts, safe };
}
