// The wallets of this browser, and the requests to them. Another way to reach wallets, such as WalletConnect,
// would be another source of `Wallet`: no other part of the page knows where a wallet comes from.

import { type EIP1193Provider, type EIP6963ProviderDetail, requestProviders } from 'mipd';
import { concat, hexToBigInt, isAddress, isHex, numberToHex, pad, stringToHex } from 'viem/utils';
import { type Checkout, chainFacts, missingUnits } from './checkout.ts';
import type { Funds, WalletLabel } from './state.ts';

type Hex = `0x${string}`;
type Address = Hex;
type Call = { to: Address; data: Hex };

const answerMs = 10_000;
/** Wallets have this long to announce themselves before the page says that there is none. */
const announceMs = 400;
/** Some apps on phones inject `window.ethereum` late. */
const lookEveryMs = 500;
const lookForMs = 10_000;
const maxNameLength = 40;

/**
 * Finds wallets by EIP-6963, or `window.ethereum` if none announces itself in time. That one then stays,
 * since the payer may have chosen it. Calls back at once and at each change.
 */
export function findWallets(onWallets: (wallets: readonly Wallet[], hasLooked: boolean) => void): void {
  const details: EIP6963ProviderDetail[] = [];
  let hasLooked = false;
  let isLegacyShown = false;
  const report = () => {
    const ids = new Set<string>();
    const announced = details.map(({ info: { rdns, uuid, name, icon }, provider }) => {
      // The name survives a reload. A later wallet with the name of another gets an id of its own.
      const id = textOf(rdns) === '' || ids.has(rdns) ? `${textOf(rdns)}#${textOf(uuid)}` : rdns;
      ids.add(id);
      return new Wallet({ id, name, icon }, provider);
    });
    const legacy = legacyProvider();
    if (announced.length === 0 && hasLooked && legacy) isLegacyShown = true;
    const others =
      isLegacyShown && legacy ? [new Wallet({ id: '', name: 'Wallet of this browser' }, legacy)] : [];
    onWallets([...others, ...announced], hasLooked);
  };
  requestProviders((detail) => {
    if (!isProvider(detail) || details.some(({ info }) => info.uuid === detail.info.uuid)) return;
    details.push(detail);
    report();
  });
  report();
  setTimeout(() => {
    hasLooked = true;
    report();
  }, announceMs);
  const looking = setInterval(() => {
    if (!isLegacyShown && 'ethereum' in window) report();
  }, lookEveryMs);
  setTimeout(clearInterval, lookForMs, looking);
}

/** `window.ethereum`, if it can be asked. What an extension has put there may throw when it is read. */
function legacyProvider(): EIP1193Provider | undefined {
  try {
    const { ethereum } = window as { ethereum?: EIP1193Provider };
    return typeof ethereum?.request === 'function' ? ethereum : undefined;
  } catch {
    return undefined;
  }
}

/** Any script of the page may announce anything. */
function isProvider(detail: EIP6963ProviderDetail | null): detail is EIP6963ProviderDetail {
  return typeof detail?.info === 'object' && typeof detail.provider?.request === 'function';
}

/** A wallet may give any value here, and converting it to text may throw. */
function textOf(said: unknown): string {
  return typeof said === 'string' ? said : '';
}

/** A wallet that can be asked. */
export class Wallet implements WalletLabel {
  readonly id: string;
  readonly name: string;
  /** An inline image: nothing is loaded from elsewhere. */
  readonly icon?: string;
  readonly #provider: EIP1193Provider;

  constructor({ id, name, icon }: WalletLabel, provider: EIP1193Provider) {
    this.id = id;
    this.name = textOf(name).trim().slice(0, maxNameLength) || 'Unnamed wallet';
    if (icon !== undefined && textOf(icon).startsWith('data:image/')) this.icon = icon;
    this.#provider = provider;
  }

  /** As in EIP-1193. */
  async request(method: string, params?: readonly unknown[]): Promise<unknown> {
    const call = { method, ...(params && { params }) };
    return this.#provider.request(call as Parameters<EIP1193Provider['request']>[0]);
  }

  /** Calls back when the wallet has changed its account or its chain. */
  onChange(callback: () => void): void {
    this.#provider.on?.('accountsChanged', callback);
    this.#provider.on?.('chainChanged', callback);
  }

  /** The account that the payer lets this page see. With `isSilent`, the payer is not asked. */
  async account(isSilent = false): Promise<Address | undefined> {
    const accounts = await this.request(isSilent ? 'eth_accounts' : 'eth_requestAccounts');
    const [account] = Array.isArray(accounts) ? accounts : [];
    if (account === undefined && isSilent) return undefined;
    if (typeof account !== 'string' || !isAddress(account, { strict: false })) throw new Error('nonsense');
    return account;
  }

  async chainId(): Promise<number> {
    // Some wallets answer with a number, or with its digits.
    const id = Number(await this.request('eth_chainId'));
    if (!Number.isSafeInteger(id) || id <= 0) throw new Error('nonsense');
    return id;
  }

  /** Asks the wallet to switch to a chain, which is added if the wallet does not know it. */
  async switchChain(chainId: number): Promise<void> {
    const { name, feeToken, publicRpcUrl, explorer } = chainFacts(chainId);
    try {
      await this.request('wallet_switchEthereumChain', [{ chainId: numberToHex(chainId) }]);
    } catch (reason) {
      if (codeOf(reason) !== unknownChain) throw reason;
      const chain = {
        chainId: numberToHex(chainId),
        chainName: name,
        nativeCurrency: { name: feeToken, symbol: feeToken, decimals: 18 },
        rpcUrls: [publicRpcUrl],
        blockExplorerUrls: [explorer],
      };
      await this.request('wallet_addEthereumChain', [chain]);
    }
  }

  /** True for a contract, such as a multi-owner wallet, but not for a key that delegates to code. */
  async isContract(account: Address): Promise<boolean> {
    const code = await this.#hex('eth_getCode', account, 'latest');
    return code !== '0x' && !code.startsWith('0xef0100');
  }

  /** Whether the account can pay what is missing: its balance, the token's restrictions, and the fee. */
  async fundsFor(checkout: Checkout, account: Address): Promise<Funds> {
    const balanceData = concat([balanceSelector, pad(account, { size: 32 })]);
    const balanceCall = { to: checkout.token_address, data: balanceData };
    const balanceUnits = hexToBigInt(await this.#hex('eth_call', balanceCall, 'latest'));
    if (balanceUnits < BigInt(missingUnits(checkout))) return { kind: 'too-little-token', balanceUnits };
    const call = { from: account, ...paymentCall(checkout) };
    const gas = await this.#hex('eth_estimateGas', call).catch((reason) => {
      const words = wordsOf(reason);
      if (/blacklist/i.test(words)) return 'blacklisted';
      if (/paused/i.test(words)) return 'paused';
      if (/insufficient funds|gas required exceeds|upfront cost|insufficient maxfeepergas/i.test(words))
        return 'no-gas';
      if (/revert/i.test(words)) return 'other';
      return refusedToSay(reason);
    });
    if (gas === undefined) return { kind: 'enough' };
    if (gas === 'no-gas') return { kind: 'too-little-gas' };
    if (gas === 'blacklisted' || gas === 'paused' || gas === 'other') return { kind: 'refused', reason: gas };
    // Whatever gas costs, an account without any coin cannot pay for it.
    const [price = '0x1', balance] = await Promise.all([
      this.#hex('eth_gasPrice').catch(refusedToSay),
      this.#hex('eth_getBalance', account, 'latest').catch(refusedToSay),
    ]);
    const isTooLittle = balance !== undefined && hexToBigInt(balance) < hexToBigInt(gas) * hexToBigInt(price);
    return { kind: isTooLittle ? 'too-little-gas' : 'enough' };
  }

  /** Asks the wallet to send a transaction without any of the chain's own coin. Resolves with its hash. */
  async send(call: Call, account: Address, chainId: number): Promise<string> {
    const transaction = { from: account, ...call, value: '0x0', chainId: numberToHex(chainId) };
    const hash = await this.request('eth_sendTransaction', [transaction]);
    if (!isHex(hash) || hash.length !== 66) throw new Error('nonsense');
    return hash.toLowerCase();
  }

  /** True if a transaction has reverted, and so moved no token. */
  async isReverted(hash: string): Promise<boolean> {
    const receipt = await this.request('eth_getTransactionReceipt', [hash]);
    return (receipt as { status?: unknown } | null)?.status === '0x0';
  }

  async #hex(method: string, ...params: readonly unknown[]): Promise<Hex> {
    const answer = await this.request(method, params);
    if (!isHex(answer)) throw new Error('nonsense');
    return answer;
  }
}

/** The call that pays. Circle's contract accepts bytes after the arguments: they hold the intent's id. */
export function paymentCall(checkout: Checkout): Call {
  const { expected_wallet, token_address, id } = checkout;
  const amount = numberToHex(missingUnits(checkout), { size: 32 });
  const to = pad(expected_wallet.toLowerCase() as Address, { size: 32 });
  return { to: token_address, data: concat([transferSelector, to, amount, stringToHex(id)]) };
}

/** `transfer(address,uint256)` and `balanceOf(address)`. */
const transferSelector = '0xa9059cbb';
const balanceSelector = '0x70a08231';

/** Limits the wait for an answer that should be immediate: while a silent wallet is asked, no tab can pay. */
export function inTime<T>(answer: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(reject, answerMs, new Error('no answer'));
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

/** True if the wallet reads with the page's own `fetch`, as some in-app browsers do: its policy refuses that. */
export const cannotRead = (reason: unknown): boolean => reason instanceof TypeError;

/** For a question that the wallet refuses: it estimates the fee when it sends. Throws any other failure. */
function refusedToSay(reason: unknown): undefined {
  if (codeOf(reason) === undefined) throw reason;
}

const unknownChain = 4902;
const userRejected = 4001;
const alreadyPending = -32002;

/** What a wallet's refusal means. */
export function refusalOf(reason: unknown): 'rejected' | 'wallet-busy' | 'wallet-failed' | 'device-old' {
  // Ledger's Ethereum app before 1.20 does not sign a transfer with bytes after its arguments.
  if (/\b0x6a80\b/i.test(wordsOf(reason))) return 'device-old';
  const code = codeOf(reason);
  if (code === userRejected) return 'rejected';
  return code === alreadyPending ? 'wallet-busy' : 'wallet-failed';
}

/**
 * True if the wallet has certainly refused, so that nothing is sent. A wallet that already shows a request
 * has not: that may be an earlier request for the same payment, and may still be confirmed.
 */
export function isRefusal(reason: unknown): boolean {
  if (refusalOf(reason) === 'device-old') return true;
  const code = codeOf(reason);
  return code !== undefined && [userRejected, 4100, 4200, -32600, -32601, -32602].includes(code);
}

/** The error's code, which some wallets wrap, but not without end. */
function codeOf(reason: unknown, depth = 0): number | undefined {
  const { code, data, cause } = (reason ?? {}) as { code?: unknown; data?: unknown; cause?: unknown };
  const inner = (data as { originalError?: { code?: unknown } } | undefined)?.originalError?.code;
  const found = [inner, code].find((one) => typeof one === 'number');
  if (found !== undefined) return found as number;
  return cause === undefined || depth > 9 ? undefined : codeOf(cause, depth + 1);
}

function wordsOf(reason: unknown): string {
  try {
    return `${reason instanceof Error ? reason.message : ''} ${JSON.stringify(reason)}`;
  } catch {
    return '';
  }
}
