// What this browser remembers of an intent, for all its tabs; above all the transfer that a wallet was asked
// for, until its outcome is known: while it may still arrive, the page offers no other. It holds no secret.

import type { Transfer } from './state.ts';

/** What this browser stores for each intent. Anything that is not valid was stored by something else. */
export function memoryOf<Kept extends object>(name: string, isValid: (found: Kept) => boolean) {
  const keyOf = (intentId: string) => `${name}:${intentId}`;
  return {
    keyOf,
    get(intentId: string): Kept | undefined {
      try {
        const found = JSON.parse(localStorage.getItem(keyOf(intentId)) ?? '');
        return isValid(found) ? found : undefined;
      } catch {
        return undefined;
      }
    },
    /** Stores it, or forgets it. Throws if this browser stores nothing. */
    set(intentId: string, kept: Kept | undefined): void {
      if (kept === undefined) localStorage.removeItem(keyOf(intentId));
      else localStorage.setItem(keyOf(intentId), JSON.stringify(kept));
    },
  };
}

export const storedTransfers = memoryOf<Transfer>(
  'payment-intents-checkout',
  ({ from, askedAtMs }) => typeof from === 'string' && typeof askedAtMs === 'number',
);

/** Calls back when another tab changes an intent's transfer or signature, until what it returns is called. */
export function onChangeOfAnotherTab(intentId: string, callback: () => void): () => void {
  const onStorage = ({ key }: StorageEvent) => {
    if (key?.endsWith(`:${intentId}`)) callback();
  };
  addEventListener('storage', onStorage);
  return () => removeEventListener('storage', onStorage);
}

/**
 * Runs `ask`, or resolves with why not: another tab of this browser asks a wallet for the same intent, or this
 * browser stores nothing.
 */
export async function withWalletLock(
  intentId: string,
  ask: () => Promise<void>,
): Promise<'wallet-busy' | 'storage' | undefined> {
  const name = storedTransfers.keyOf(intentId);
  try {
    const probe = `${name}:probe`;
    localStorage.setItem(probe, '');
    localStorage.removeItem(probe);
  } catch {
    // It may refuse locks, too.
    return 'storage';
  }
  const run = async (lock: Lock | null | undefined) => {
    if (lock === null) return 'wallet-busy';
    await ask();
    return undefined;
  };
  // Pages without TLS have no locks.
  return navigator.locks?.request(name, { ifAvailable: true }, run) ?? run(undefined);
}

/** True while a tab of this browser is asking a wallet for this intent. */
export async function isBeingAsked(intentId: string): Promise<boolean> {
  const { held = [] } = (await navigator.locks?.query().catch(() => undefined)) ?? {};
  return held.some(({ name }) => name === storedTransfers.keyOf(intentId));
}
