import type { Hex } from 'viem';
import type { TestAmount } from './parts.tsx';

/**
 * Pays from the wallet of the chain on this machine, which the service has in the embedded mode only. Returns the hash of
 * the transaction, or nothing for a payment by a signature.
 */
export async function payFromTestWallet(clientSecret: string, amount: TestAmount): Promise<Hex | undefined> {
  const response = await fetch('/checkout/test-wallet', {
    method: 'POST',
    headers: { Authorization: `Bearer ${clientSecret}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ amount }),
  });
  if (!response.ok) throw new Error(`answered ${response.status}`);
  const { transaction_hash } = await response.json();
  return transaction_hash;
}
