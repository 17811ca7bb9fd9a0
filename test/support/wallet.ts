// A wallet in Chromium. Its keys, signatures and transactions are those of `@johanneskares/wallet-mock`. The announcement
// to the page, the codes of errors, the list of chains that it knows, and all misbehaviour are ours: that package always
// has the same name, knows every chain, cannot be installed twice, and loses the code of an error on the way to the page.

import { EventEmitter, once } from 'node:events';
import { createWallet } from '@johanneskares/wallet-mock';
import type { BrowserContext } from 'playwright-core';
import { custom, type Hex, http, numberToHex, type RpcRequestError } from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import { mainnet } from 'viem/chains';

export interface WalletInfo {
  uuid: string;
  name: string;
  icon: string;
  rdns: string;
}

export interface WalletOptions {
  account: PrivateKeyAccount;
  /** URLs of nodes by chain id. Only Ethereum mainnet, where the wallet can do nothing, needs none. */
  nodes: Readonly<Record<number, string>>;
  /** Its initial chain. Default: the first of `nodes`. */
  chainId?: number;
  /** Chains that it can switch to before a page adds another. Default: all of `nodes`. */
  knownChainIds?: readonly number[];
  /** How a page finds it. Default: EIP-6963. With `nothing`, it is not found before `announce`. */
  announcedBy?: 'eip6963' | 'window.ethereum' | 'nothing';
  info?: Partial<WalletInfo>;
}

export interface WalletRequest {
  method: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
  params: any[];
}

/** What the wallet does with a request, instead of `carryOut`. It may throw a `WalletError`. */
export type WalletAnswer = (carryOut: () => Promise<unknown>, request: WalletRequest) => unknown;

/** An error as in EIP-1193. */
export class WalletError extends Error {
  readonly code: number;
  readonly data: unknown;
  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** The answer of a payer who presses "Reject". */
export const reject: WalletAnswer = () => {
  throw new WalletError(4001, 'User rejected the request.');
};

/** Carries out what was asked, and never answers. */
export const sendSilently: WalletAnswer = async (carryOut) => {
  await carryOut();
  await new Promise(() => {});
};

/** Returns an answer that waits until it is let go. */
export function holdBack() {
  const { promise, resolve } = Promise.withResolvers<WalletAnswer>();
  const answer: WalletAnswer = async (carryOut, request) => (await promise)(carryOut, request);
  return {
    answer,
    /** Carries out what was asked, or does something else. */
    letGo: (instead: WalletAnswer = (carryOut) => carryOut()) => resolve(instead),
  };
}

export interface TestWallet {
  rdns: string;
  /** All requests of pages, oldest first. */
  requests: WalletRequest[];
  /** The requests of one method. */
  requestsOf(method: string): WalletRequest[];
  /** Hashes of the transactions that it has sent. */
  sent: Hex[];
  /** From now on a method is answered like this; without an answer, honestly again. */
  answer(method: string, answer?: WalletAnswer): void;
  /** Resolves once this method has been requested that many times in all. */
  asked(method: string, times?: number): Promise<void>;
  /** The chain that it is on. */
  chainId(): number;
  /** The payer chooses another chain in the wallet. */
  switchChain(chainId: number): Promise<void>;
  /** The payer chooses another account in the wallet. */
  changeAccount(account: PrivateKeyAccount): Promise<void>;
  /** Announces itself by EIP-6963, like a wallet that was started late. */
  announce(): Promise<void>;
  /** Puts itself into `window.ethereum`, late. */
  inject(): Promise<void>;
  /** The payer disconnects the page in the wallet. */
  disconnect(): Promise<void>;
}

/** Puts the wallet into every page that the context opens from now on. */
export async function installWallet(context: BrowserContext, options: WalletOptions): Promise<TestWallet> {
  const { nodes, announcedBy = 'eip6963' } = options;
  const [firstChainId = mainnet.id] = Object.keys(nodes).map(Number);
  const known = new Set(options.knownChainIds ?? [...Object.keys(nodes).map(Number), mainnet.id]);
  const transports = Object.fromEntries(Object.entries(nodes).map(([id, url]) => [id, http(url)]));
  const walletOf = (owner: PrivateKeyAccount) =>
    createWallet(owner, { [mainnet.id]: unreachable, ...transports }, mainnet);
  let { account } = options;
  let wallet = walletOf(account);
  const answers = new Map<string, WalletAnswer>();
  const requests: WalletRequest[] = [];
  const requested = new EventEmitter().setMaxListeners(0);
  const sent: Hex[] = [];
  let isConnected = false;
  let chainId = mainnet.id as number;

  const info: WalletInfo = {
    ...{ uuid: crypto.randomUUID(), name: 'Test wallet', icon: plainIcon, rdns: 'com.example.test-wallet' },
    ...options.info,
  };
  const binding = `testWallet${crypto.randomUUID().replaceAll('-', '')}`;

  /** Emits the event in every page of the context. */
  async function emit(event: string, value: unknown): Promise<void> {
    const said = context.pages().map((page) =>
      // A page that is being left gets no event.
      page.evaluate(sayInPage, { binding, event, value }).catch(() => {}),
    );
    await Promise.all(said);
  }

  const tell = (wanted: number) =>
    wallet.request({ method: 'wallet_switchEthereumChain', params: [{ chainId: numberToHex(wanted) }] });

  async function moveTo(wanted: number): Promise<void> {
    await tell(wanted);
    if (chainId === wanted) return;
    chainId = wanted;
    await emit('chainChanged', numberToHex(wanted));
  }

  async function carryOut({ method, params }: WalletRequest): Promise<unknown> {
    switch (method) {
      case 'eth_chainId':
        return numberToHex(chainId);
      case 'eth_accounts':
        return isConnected ? [account.address] : [];
      case 'eth_requestAccounts':
        isConnected = true;
        return wallet.request({ method, params });
      case 'wallet_switchEthereumChain': {
        const wanted = Number(params[0].chainId);
        if (!known.has(wanted)) throw new WalletError(4902, 'Unrecognized chain ID.');
        await moveTo(wanted);
        return null;
      }
      case 'wallet_addEthereumChain':
        known.add(Number(params[0].chainId));
        await moveTo(Number(params[0].chainId));
        return null;
      case 'eth_sendTransaction': {
        // Its viem wants the value as a bigint, which no page sends.
        const [{ value = '0x0', ...transaction }] = params;
        const sending = { method, params: [{ ...transaction, value: BigInt(value) }] };
        const hash = (await wallet.request(sending)) as Hex;
        sent.push(hash);
        return hash;
      }
      // That package does not sign typed data. Like MetaMask, signs only for the chain that the wallet is on.
      case 'eth_signTypedData_v4': {
        const { types, ...typedData } = JSON.parse(params[1]);
        const { EIP712Domain: _, ...others } = types;
        if (Number(typedData.domain.chainId) !== chainId) throw new WalletError(-32603, 'another chain');
        return account.signTypedData({ ...typedData, types: others });
      }
      default:
        return wallet.request({ method, params });
    }
  }

  async function handle(request: WalletRequest): Promise<unknown> {
    requests.push(request);
    requested.emit('request');
    const answer = answers.get(request.method);
    return answer === undefined ? carryOut(request) : answer(() => carryOut(request), request);
  }

  await moveTo(options.chainId ?? firstChainId);
  await context.exposeBinding(binding, async (_, { method, params = [] }: WalletRequest) => {
    try {
      return { result: await handle({ method, params }) };
    } catch (error) {
      // An error that crosses into the page keeps its message only.
      return { error: partsOf(error) };
    }
  });
  await context.addInitScript(announceInPage, { binding, announcedBy, info });

  return {
    rdns: info.rdns,
    requests,
    requestsOf: (method) => requests.filter((request) => request.method === method),
    sent,
    answer(method, answer) {
      if (answer === undefined) answers.delete(method);
      else answers.set(method, answer);
    },
    async asked(method, times = 1) {
      while (requests.filter((request) => request.method === method).length < times) {
        await once(requested, 'request');
      }
    },
    chainId: () => chainId,
    switchChain: moveTo,
    async changeAccount(other) {
      account = other;
      wallet = walletOf(account);
      await tell(chainId);
      await emit('accountsChanged', [account.address]);
    },
    announce: () => emit('announce', undefined),
    inject: () => emit('inject', undefined),
    async disconnect() {
      isConnected = false;
      await emit('accountsChanged', []);
    },
  };
}

/** No node of Ethereum mainnet may be used here. */
const unreachable = custom({
  async request() {
    throw new WalletError(-32603, 'this chain is not reachable');
  },
});

interface ErrorParts {
  code: number;
  message: string;
  data?: unknown;
  /** The page's `fetch` fails with a TypeError. */
  isTypeError?: boolean;
}

/** An error as a page sees it. The error of a node is passed on unchanged. */
function partsOf(error: unknown): ErrorParts {
  // By its name: the wallet loads a copy of viem of its own, the one for CommonJS.
  for (
    let cause = error as RpcRequestError | undefined;
    cause !== undefined;
    cause = cause.cause as typeof cause
  ) {
    if (cause.name === 'RpcRequestError')
      return { code: cause.code, message: cause.details, data: cause.data };
  }
  const { code = -32603, message, data } = error as WalletError;
  return { code, message, data, isTypeError: error instanceof TypeError };
}

const plainIcon =
  'data:image/svg+xml,%3Csvg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"%3E%3Ccircle cx="4" cy="4" r="4" fill="%23c60"/%3E%3C/svg%3E';

// Everything below runs in the page.

interface InPage {
  binding: string;
  announcedBy: 'eip6963' | 'window.ethereum' | 'nothing';
  info: WalletInfo;
}

type PageGlobals = Record<string, unknown> & {
  addEventListener(type: string, listener: () => void): void;
  dispatchEvent(event: unknown): void;
};

function announceInPage({ binding, announcedBy, info }: InPage): void {
  const page = globalThis as unknown as PageGlobals;
  const carry = page[binding] as (request: object) => Promise<{ result: unknown; error?: ErrorParts }>;
  const listeners = new Map<string, Set<(value: unknown) => void>>();
  const provider = {
    async request({ method, params }: { method: string; params?: unknown[] }) {
      const { result, error } = await carry({ method, params });
      if (error?.isTypeError) throw new TypeError(error.message);
      if (error !== undefined) throw Object.assign(new Error(error.message), error);
      return result;
    },
    on(event: string, listener: (value: unknown) => void) {
      listeners.set(event, (listeners.get(event) ?? new Set()).add(listener));
      return provider;
    },
    removeListener(event: string, listener: (value: unknown) => void) {
      listeners.get(event)?.delete(listener);
      return provider;
    },
  };
  const announce = () => {
    const detail = Object.freeze({ info, provider });
    page.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail }));
  };
  page[`${binding}Say`] = (event: string, value: unknown) => {
    if (event === 'announce') announce();
    if (event === 'inject') page.ethereum = provider;
    for (const listener of listeners.get(event) ?? []) listener(value);
  };
  if (announcedBy === 'window.ethereum') page.ethereum = provider;
  if (announcedBy !== 'eip6963') return;
  page.addEventListener('eip6963:requestProvider', announce);
  announce();
}

function sayInPage({ binding, event, value }: { binding: string; event: string; value: unknown }): void {
  const say = (globalThis as unknown as PageGlobals)[`${binding}Say`] as (
    event: string,
    value: unknown,
  ) => void;
  say(event, value);
}
