// Payments by signature (EIP-3009, x402): the wallet signs one, and the service has it sent. One at a time,
// and not while a transfer may arrive; `facts.signing` holds the progress. The signature is remembered until
// the service has answered: sent again, it still pays only once. Also pays from the test wallet.

import { fromString, toUUIDBytes } from 'typeid-js';
import type { Hex } from 'viem';
import { bytesToHex, hexToNumber, hexToString, isHex } from 'viem/utils';
import { authorizationTypes, nameSelector, versionSelector } from '../../src/contract/eip-3009.ts';
import { type PaymentRequirements, type RefusalReason, timeoutSeconds } from '../../src/contract/x402.ts';
import { type Checkout, missingUnits } from './checkout.ts';
import type { TestAmount } from './parts.tsx';
import { type Facts, isConnectedTo, isSettling, offeringViews, type ViewName, viewOf } from './state.ts';
import { memoryOf, storedTransfers, withWalletLock } from './transfer.ts';
import { inTime, isRefusal, refusalOf, type Wallet } from './wallets.ts';

/** Longer than the service lets a request wait for the chain. */
const timeoutMs = 35_000;
const retryMs = 3_000;

/** What each way to pay needs. */
interface PayingContext {
  facts: Facts;
  secret: () => string;
  change(changes: Partial<Facts>): void;
  /** Fetches the checkout. Resolves when it has arrived. */
  refresh(): Promise<void>;
  /** Reads what this browser has stored; `resume` also reads what was signed. */
  readMemory(intentId: string): Promise<void>;
  serverNowMs(): number;
}

export function createSigning({ facts, secret, change, refresh, readMemory, serverNowMs }: PayingContext) {
  /** Increases when the payer gives up a request. */
  let number = 0;
  /** Releases the lock, which a wallet that never answers would hold. */
  let onGiveUp = (): void => {};

  const send = async (intentId: string, signature: Signature): Promise<void> => {
    change({ signing: 'sending', failure: undefined });
    const failure = await sendSignature(secret(), signature, serverNowMs);
    // The service's answer first, so that nothing is offered in between.
    await refresh();
    while (facts.connection !== 'ok' && !facts.isInvalid) {
      await new Promise((resolve) => setTimeout(resolve, retryMs));
      await refresh();
    }
    storedSignatures.set(intentId, undefined);
    const { checkout } = facts;
    const isAccepted = checkout === undefined || isSettling(checkout) || checkout.authorization !== undefined;
    // The service has accepted nothing: it no longer has a facilitator.
    const isLost = failure === undefined && !isAccepted;
    change({ signing: 'none', failure: isLost ? 'sign-refused' : failure });
  };

  /** True while as much is missing, nothing else may arrive, and the page would show one of `views`. */
  const isOpen = (then: Checkout, views: readonly ViewName[]): boolean => {
    const now = facts.checkout;
    return (
      now !== undefined &&
      missingUnits(now) === missingUnits(then) &&
      storedTransfers.get(then.id) === undefined &&
      views.includes(viewOf({ ...facts, signing: 'none' }))
    );
  };

  const ask = async (wallet: Wallet, account: `0x${string}`, checkout: Checkout): Promise<void> => {
    const own = number;
    change({ signing: 'asking', failure: undefined });
    // Gets the service's newest answer, right before asking.
    await refresh();
    if (own !== number) return;
    const isSame =
      facts.connection === 'ok' &&
      isConnectedTo(facts.session, wallet.id, account) &&
      storedSignatures.get(checkout.id) === undefined &&
      isOpen(checkout, ['ready-to-sign']);
    if (!isSame) {
      change({ signing: 'none', failure: facts.connection === 'ok' ? 'changed' : 'not-asked' });
      return readMemory(checkout.id);
    }
    const signature = await askToSign(wallet, account, checkout, serverNowMs());
    await refresh();
    if (own !== number) return;
    // Something else may pay now, such as a reorged payment that returns. What is not sent cannot pay.
    if (!isOpen(checkout, [...offeringViews, 'connecting', 'loading'])) {
      return change({ signing: 'none', failure: 'changed' });
    }
    try {
      storedSignatures.set(checkout.id, signature);
    } catch {
      // Nothing was sent. Without a memory, a reload could lead to a second payment.
      return change({ signing: 'none', failure: 'storage' });
    }
    await send(checkout.id, signature);
  };

  /** Resumes with a signature that this browser has stored. */
  const resume = (intentId: string): void => {
    const signature = storedSignatures.get(intentId);
    if (signature !== undefined && facts.signing === 'none') void send(intentId, signature);
  };

  return {
    /** Asks the session's wallet for a signature, unless another tab is asking, and has the payment sent. */
    async sign(wallet: Wallet | undefined): Promise<void> {
      const { checkout, signing, session } = facts;
      if (!wallet || !checkout || session.step !== 'connected' || signing !== 'none') return;
      const own = number;
      const asked = () =>
        ask(wallet, session.account, checkout).catch((reason) => {
          if (own !== number) return;
          // What the wallet has not signed cannot be sent.
          change({ signing: 'none', failure: isRefusal(reason) ? refusalOf(reason) : 'sign-wallet' });
        });
      const givenUp = () => new Promise<void>((resolve) => (onGiveUp = resolve));
      const failure = await withWalletLock(checkout.id, () => Promise.race([asked(), givenUp()]));
      if (failure === undefined) return;
      await readMemory(checkout.id);
      if (facts.transfer === undefined && facts.signing === 'none') change({ failure });
    },
    /** The payer says that the wallet asks nothing. A signature that comes later is dropped. */
    giveUp() {
      number++;
      onGiveUp();
      change({ signing: 'none' });
    },
    resume,
  };
}

/** What was signed. It can only pay this intent. */
interface Signature {
  /** The header `PAYMENT-SIGNATURE`. */
  header: string;
  /** Milliseconds since 1970. */
  validUntilMs: number;
}

export const storedSignatures = memoryOf<Signature>(
  'payment-intents-signature',
  ({ header, validUntilMs }) => typeof header === 'string' && typeof validUntilMs === 'number',
);

const post = (secret: string, signature: string) =>
  fetch('/v1/checkout/pay', {
    method: 'POST',
    headers: { Authorization: `Bearer ${secret}`, 'PAYMENT-SIGNATURE': signature },
    cache: 'no-store',
    credentials: 'omit',
    // A payer may close the page at once.
    keepalive: true,
    signal: AbortSignal.timeout(timeoutMs),
  });

/** x402's payment terms, built here: a browser would log the 402 answer with them as an error. */
async function offerOf(wallet: Wallet, checkout: Checkout, nowMs: number): Promise<PaymentRequirements> {
  const [name, version] = await Promise.all([
    textOf(wallet, checkout.token_address, nameSelector),
    textOf(wallet, checkout.token_address, versionSelector),
  ]);
  return {
    scheme: 'exact',
    network: `eip155:${checkout.chain_id}`,
    amount: String(missingUnits(checkout)),
    asset: checkout.token_address,
    payTo: checkout.expected_wallet,
    maxTimeoutSeconds: timeoutSeconds(Date.parse(checkout.expires_at), nowMs),
    extra: { name, version, assetTransferMethod: 'eip3009' },
  };
}

/** Reads a text from a token by a call without arguments. */
async function textOf(wallet: Wallet, to: string, data: string): Promise<string> {
  const answer = await inTime(wallet.request('eth_call', [{ to, data }, 'latest']));
  if (!isHex(answer)) throw new Error('no text');
  const length = hexToNumber(`0x${answer.slice(2 + 64, 2 + 128)}`);
  return hexToString(`0x${answer.slice(2 + 128, 2 + 128 + 2 * length)}`);
}

async function askToSign(wallet: Wallet, account: `0x${string}`, checkout: Checkout, nowMs: number) {
  const offer = await offerOf(wallet, checkout, nowMs);
  const validBefore = Math.floor(nowMs / 1_000) + offer.maxTimeoutSeconds;
  const authorization = {
    from: account,
    to: offer.payTo,
    value: offer.amount,
    validAfter: '0',
    validBefore: String(validBefore),
    nonce: nonceFor(checkout.id),
  };
  const { name, version } = offer.extra;
  const typedData = {
    domain: { name, version, chainId: checkout.chain_id, verifyingContract: offer.asset },
    types: { EIP712Domain: domainType, ...authorizationTypes },
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  };
  const params = [account, JSON.stringify(typedData)];
  const signature = await wallet.request('eth_signTypedData_v4', params);
  if (!isHex(signature)) throw new Error('no signature');
  // Some wallets, such as Ledger's, use 0 or 1 as the recovery id; the token's contract takes 27 and 28.
  const normalized = signature.replace(/^(0x.{128})0([01])$/, (_, rs, v) => `${rs}1${v === '0' ? 'b' : 'c'}`);
  const payment = { x402Version: 2, accepted: offer, payload: { signature: normalized, authorization } };
  return { header: btoa(JSON.stringify(payment)), validUntilMs: validBefore * 1_000 };
}

const domainType = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
];

/** The intent's UUID and 16 random bytes, so that the chain shows which intent is paid. */
function nonceFor(intentId: string): string {
  const bytes = new Uint8Array(32);
  bytes.set(toUUIDBytes(fromString(intentId)));
  crypto.getRandomValues(bytes.subarray(16));
  return bytesToHex(bytes);
}

/**
 * Sends a signature until the service gives a final answer. Returns why it cannot pay, or undefined if the
 * checkout shows the outcome: it may have paid, or no facilitator was given it.
 */
async function sendSignature(
  secret: string,
  { header, validUntilMs }: Signature,
  serverNowMs: () => number,
): Promise<Facts['failure']> {
  for (;;) {
    const response = await post(secret, header).catch(() => undefined);
    const status = response?.status ?? 0;
    if (status === 402) return failureOf(await response?.json().catch(() => undefined));
    // Another payment is on its way, or the intent has ended: the checkout says which.
    if ([200, 202, 409].includes(status)) return undefined;
    if (status >= 400 && status < 500 && status !== 429) return 'sign-refused';
    if (serverNowMs() > validUntilMs) return 'sign-lapsed';
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}

function failureOf(response: { errorReason?: RefusalReason } | undefined): Facts['failure'] {
  switch (response?.errorReason) {
    case 'invalid_exact_evm_insufficient_balance':
      return 'sign-too-little';
    case 'invalid_exact_evm_signature':
    case 'invalid_exact_evm_payload_undeployed_smart_wallet':
      return 'sign-contract';
    // Part of the amount has arrived since.
    case 'invalid_exact_evm_authorization_value':
      return 'changed';
    // The wallet took too long.
    case 'invalid_exact_evm_payload_authorization_valid_before':
    case 'authorization_released':
      return 'sign-lapsed';
    // No facilitator was given it: the checkout says so, and offers another try.
    case 'facilitator_unreachable':
      return undefined;
    default:
      return 'sign-refused';
  }
}

/** Pays from the local chain's test wallet, which exists in embedded mode only; one payment at a time. */
export function createTestWallet({ facts, secret, change, refresh, serverNowMs }: PayingContext) {
  let isPaying = false;
  return async (amount: TestAmount): Promise<void> => {
    if (facts.checkout === undefined || isPaying) return;
    isPaying = true;
    change({ failure: undefined, ...(amount === 'signed' && { signing: 'sending' }) });
    try {
      const hash = await payFromTestWallet(secret(), amount);
      const transfer = { from: '', wallet: '', askedAtMs: serverNowMs() };
      if (hash !== undefined) change({ transfer: { ...transfer, hash }, transferPhase: 'sent' });
      await refresh();
    } catch {
      change({ failure: 'test-wallet' });
    } finally {
      isPaying = false;
      change({ signing: 'none' });
    }
  };
}

/** Returns the hash of the transaction, or undefined for a payment by signature. */
async function payFromTestWallet(clientSecret: string, amount: TestAmount): Promise<Hex | undefined> {
  const response = await fetch('/checkout/test-wallet', {
    method: 'POST',
    headers: { Authorization: `Bearer ${clientSecret}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ amount }),
  });
  if (!response.ok) throw new Error(`answered ${response.status}`);
  const { transaction_hash } = await response.json();
  return transaction_hash;
}
