// The transfer that a wallet was asked for, remembered until its outcome is known: while it may still arrive,
// the page offers no other. Every tab of this browser sees it. It holds no secret.

import type { Transfer } from './state.ts';

const keyOf = (intentId: string) => `payment-intents-checkout:${intentId}`;

export function rememberedTransfer(intentId: string): Transfer | undefined {
  try {
    const transfer = JSON.parse(localStorage.getItem(keyOf(intentId)) ?? 'null');
    return typeof transfer?.from === 'string' && typeof transfer.askedAtMs === 'number'
      ? { paidBefore: [], ...transfer }
      : undefined;
  } catch {
    return undefined;
  }
}

/** Remembers the transfer, or forgets it. Throws if this browser stores nothing. */
export function rememberTransfer(intentId: string, transfer: Transfer | undefined): void {
  if (transfer === undefined) localStorage.removeItem(keyOf(intentId));
  else localStorage.setItem(keyOf(intentId), JSON.stringify(transfer));
}

/** Calls back when another tab changes an intent's transfer or signature, until what it returns is called. */
export function onChangeOfAnotherTab(intentId: string, callback: () => void): () => void {
  const onStorage = ({ key }: StorageEvent) => {
    if (key?.endsWith(`:${intentId}`)) callback();
  };
  addEventListener('storage', onStorage);
  return () => removeEventListener('storage', onStorage);
}

/** Runs `ask`, or resolves with false if another tab of this browser asks a wallet for the same intent. */
export async function withWalletLock(intentId: string, ask: () => Promise<void>): Promise<boolean> {
  // Pages without TLS have no locks.
  if (navigator.locks === undefined) {
    await ask();
    return true;
  }
  return navigator.locks.request(keyOf(intentId), { ifAvailable: true }, async (lock) => {
    if (lock === null) return false;
    await ask();
    return true;
  });
}

/** True while a tab of this browser is asking a wallet for this intent. */
export async function isBeingAsked(intentId: string): Promise<boolean> {
  const { held = [] } = (await navigator.locks?.query()) ?? {};
  return held.some(({ name }) => name === keyOf(intentId));
}
