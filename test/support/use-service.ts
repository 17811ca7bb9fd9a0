import { afterAll, afterEach, beforeEach, expect } from 'vitest';
import { startChain, type TestChain } from './chain.ts';
import { startService, type TestService } from './service.ts';

/** Starts a service for the tests of a file or block, and closes it after them. */
export async function useService(...options: Parameters<typeof startService>): Promise<TestService> {
  const service = await startService(...options);
  afterAll(() => service.close());
  return service;
}

/** Resets the chain to its current state, plus a block of now, before each test. Ends it after the tests. */
export async function useChain(starting: TestChain | Promise<TestChain> = startChain()): Promise<TestChain> {
  const chain = await starting;
  const goBack = await chain.checkpoint();
  beforeEach(async () => {
    await goBack();
    // The chain's clock was reset, too, and blocks would be older than the intents that they pay.
    await chain.mine(1, { timestamp: Math.ceil(Date.now() / 1_000) });
  });
  afterAll(() => chain.stop());
  return chain;
}

/** After each test, the log has neither errors nor warnings. */
export function expectNoComplaints({ log }: TestService): void {
  afterEach(() => expect(log.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]));
}
