import type { Hex } from 'viem';
import type { TestAmount } from './parts.tsx';
import type { PayingContext } from './signing.ts';

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
