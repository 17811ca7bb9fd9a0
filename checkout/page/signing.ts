// Pays by a signature: one at a time, and none while a transfer may arrive. What is going on is in `facts.signing`.

import { type Checkout, missingUnits } from './checkout.ts';
import {
  askToSign,
  type Outcome,
  rememberedSignature,
  rememberSignature,
  retryMs,
  type Signature,
  sendSignature,
} from './sign.ts';
import type { Facts, Failure } from './state.ts';
import { isRefusal, refusalOf, type Wallet } from './wallets.ts';

interface Signing {
  /** Asks the wallet for a signature, and has the payment sent. */
  sign(wallet: Wallet, account: `0x${string}`): Promise<void>;
  /** The payer says that the wallet asks nothing. What it signs after all is dropped. */
  giveUp(): void;
  /** Goes on with a signature that this browser remembers. */
  resume(intentId: string): void;
}

export interface SigningOptions {
  facts: Facts;
  secret: () => string;
  change(changes: Partial<Facts>): void;
  /** Asks for the checkout, and resolves when it is there. */
  refresh(): Promise<void>;
  serverNowMs(): number;
}

const failures: { readonly [outcome in Outcome]: Failure | undefined } = {
  taken: undefined,
  refused: 'sign-refused',
  'too-little-token': 'sign-too-little',
  'contract-refused': 'sign-contract',
  lapsed: 'sign-lapsed',
};

export function createSigning({ facts, secret, change, refresh, serverNowMs }: SigningOptions): Signing {
  /** Increases when the payer gives a request up. */
  let number = 0;

  const send = async (intentId: string, signature: Signature): Promise<void> => {
    change({ signing: 'sending', failure: undefined });
    const outcome = await sendSignature(secret(), signature, serverNowMs);
    // First the service's word, so that nothing is offered in between.
    await refresh();
    while (facts.connection !== 'ok') {
      await new Promise((resolve) => setTimeout(resolve, retryMs));
      await refresh();
    }
    rememberSignature(intentId, undefined);
    change({ signing: 'none', failure: failures[outcome] });
  };

  const ask = async (wallet: Wallet, account: `0x${string}`, checkout: Checkout): Promise<void> => {
    change({ signing: 'asking', failure: undefined });
    const before = missingUnits(checkout);
    // The newest word of the service, right before.
    await refresh();
    const now = facts.checkout;
    if (now?.status !== 'requires_payment' || now.gasless !== true || missingUnits(now) !== before) {
      return change({ signing: 'none', failure: 'changed' });
    }
    const own = number;
    const signature = await askToSign(wallet, account, now, serverNowMs());
    if (own !== number) return;
    try {
      rememberSignature(checkout.id, signature);
    } catch {
      // Nothing was sent. Without a memory, a reload could lead to a second payment.
      return change({ signing: 'none', failure: 'storage' });
    }
    await send(checkout.id, signature);
  };

  return {
    async sign(wallet, account) {
      const { checkout, signing } = facts;
      if (checkout === undefined || signing !== 'none') return;
      const own = number;
      await ask(wallet, account, checkout).catch((reason) => {
        if (own !== number) return;
        // What the wallet has not signed cannot be sent.
        const failure = isRefusal(reason) ? refusalOf(reason) : 'sign-wallet';
        change({ signing: 'none', failure });
      });
    },
    giveUp() {
      number++;
      change({ signing: 'none' });
    },
    resume(intentId) {
      const signature = rememberedSignature(intentId);
      if (signature !== undefined && facts.signing === 'none') void send(intentId, signature);
    },
  };
}
