// Pays by signature, one at a time, and not while a transfer may arrive. `facts.signing` holds the progress.
// Also pays from the test wallet.

import type { Hex } from 'viem';
import { type Checkout, missingUnits } from './checkout.ts';
import type { TestAmount } from './parts.tsx';
import type { Signature } from './sign.ts';
import { askToSign, rememberedSignature, rememberSignature, retryMs, sendSignature } from './sign.ts';
import { type Facts, isConnectedTo, isSettling, offeringViews, type ViewName, viewOf } from './state.ts';
import { rememberedTransfer, withWalletLock } from './transfer.ts';
import { isRefusal, refusalOf, type Wallet } from './wallets.ts';

/** What each way to pay needs. */
export interface PayingContext {
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
    rememberSignature(intentId, undefined);
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
      rememberedTransfer(then.id) === undefined &&
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
      rememberedSignature(checkout.id) === undefined &&
      isOpen(checkout, ['ready-to-sign']);
    if (!isSame) {
      change({ signing: 'none', failure: 'changed' });
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
      rememberSignature(checkout.id, signature);
    } catch {
      // Nothing was sent. Without a memory, a reload could lead to a second payment.
      return change({ signing: 'none', failure: 'storage' });
    }
    await send(checkout.id, signature);
  };

  /** Resumes with a signature that this browser has stored. */
  const resume = (intentId: string): void => {
    const signature = rememberedSignature(intentId);
    if (signature !== undefined && facts.signing === 'none') void send(intentId, signature);
  };

  return {
    /** Asks the session's wallet for a signature, unless another tab is asking, and has the payment sent. */
    async sign(wallet: Wallet | undefined): Promise<void> {
      const { checkout, signing, session } = facts;
      if (wallet === undefined || checkout === undefined || session.step !== 'connected') return;
      if (signing !== 'none') return;
      const own = number;
      const account = session.account as `0x${string}`;
      const asked = () =>
        ask(wallet, account, checkout).catch((reason) => {
          if (own !== number) return;
          // What the wallet has not signed cannot be sent.
          change({ signing: 'none', failure: isRefusal(reason) ? refusalOf(reason) : 'sign-wallet' });
        });
      const givenUp = () => new Promise<void>((resolve) => (onGiveUp = resolve));
      const isAlone = await withWalletLock(checkout.id, () => Promise.race([asked(), givenUp()]));
      if (isAlone) return;
      await readMemory(checkout.id);
      if (facts.transfer === undefined && facts.signing === 'none') change({ failure: 'wallet-busy' });
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

/** Pays from the local chain's test wallet, which exists in embedded mode only; one payment at a time. */
export function createTestWallet({ facts, secret, change, refresh, serverNowMs }: PayingContext) {
  let isPaying = false;
  return async (amount: TestAmount): Promise<void> => {
    if (facts.checkout === undefined || isPaying) return;
    isPaying = true;
    change({ failure: undefined, ...(amount === 'signed' && { signing: 'sending' }) });
    try {
      const hash = await payFromTestWallet(secret(), amount);
      const transfer = { from: '', wallet: '', askedAtMs: serverNowMs(), paidBefore: [] };
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
