// Pays by a signature: one at a time, and none while a transfer may arrive. What is going on is in `facts.signing`. Or from
// the test wallet.

import type { Hex } from 'viem';
import { type Checkout, missingUnits } from './checkout.ts';
import type { TestAmount } from './parts.tsx';
import type { Signature } from './sign.ts';
import { askToSign, rememberedSignature, rememberSignature, retryMs, sendSignature } from './sign.ts';
import { type Facts, isConnectedTo, isSettling, offeringViews, type ViewName, viewOf } from './state.ts';
import { askAlone, rememberedTransfer } from './transfer.ts';
import { isRefusal, refusalOf, type Wallet } from './wallets.ts';

/** What every way to pay works with. */
export interface PayingContext {
  facts: Facts;
  secret: () => string;
  change(changes: Partial<Facts>): void;
  /** Asks for the checkout, and resolves when it is there. */
  refresh(): Promise<void>;
  /** Adopts what this browser remembers, by `resume` also what was signed. */
  readMemory(intentId: string): Promise<void>;
  serverNowMs(): number;
}

export function createSigning({ facts, secret, change, refresh, readMemory, serverNowMs }: PayingContext) {
  /** Increases when the payer gives a request up. */
  let number = 0;
  /** Lets go of the lock, which a wallet that never answers would hold. */
  let onGiveUp = (): void => {};

  const send = async (intentId: string, signature: Signature): Promise<void> => {
    change({ signing: 'sending', failure: undefined });
    const failure = await sendSignature(secret(), signature, serverNowMs);
    // First the service's word, so that nothing is offered in between.
    await refresh();
    while (facts.connection !== 'ok' && !facts.isInvalid) {
      await new Promise((resolve) => setTimeout(resolve, retryMs));
      await refresh();
    }
    rememberSignature(intentId, undefined);
    const { checkout } = facts;
    const isTaken = checkout === undefined || isSettling(checkout) || checkout.authorization !== undefined;
    // The service has taken nothing: it has no facilitator any more.
    const isLost = failure === undefined && !isTaken;
    change({ signing: 'none', failure: isLost ? 'sign-refused' : failure });
  };

  /** True while as much is missing as then, nothing else may arrive, and the page would show one of these views. */
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
    // The newest word of the service, right before.
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
    // Something else may pay meanwhile, such as a payment that a reorganisation has taken. What is not sent cannot pay.
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

  /** Goes on with a signature that this browser remembers. */
  const resume = (intentId: string): void => {
    const signature = rememberedSignature(intentId);
    if (signature !== undefined && facts.signing === 'none') void send(intentId, signature);
  };

  return {
    /** Asks the wallet of the session for a signature, unless another tab asks one, and has the payment sent. */
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
      const isAlone = await askAlone(checkout.id, () => Promise.race([asked(), givenUp()]));
      if (isAlone) return;
      await readMemory(checkout.id);
      if (facts.transfer === undefined && facts.signing === 'none') change({ failure: 'wallet-busy' });
    },
    /** The payer says that the wallet asks nothing. What it signs after all is dropped. */
    giveUp() {
      number++;
      onGiveUp();
      change({ signing: 'none' });
    },
    resume,
  };
}

/** Pays from the wallet of the chain on this machine, which the service has in the embedded mode only; one at a time. */
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

/** Returns the hash of the transaction, or nothing for a payment by a signature. */
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
