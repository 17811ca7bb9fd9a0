import { afterAll, afterEach, expect } from 'vitest';
import { startService, type TestService } from './service.ts';

/** Starts a service for the tests of a file or block, and closes it after them. */
export async function useService(...options: Parameters<typeof startService>): Promise<TestService> {
  const service = await startService(...options);
  afterAll(() => service.close());
  return service;
}

/** After each test, the log has neither errors nor warnings. */
export function expectNoComplaints({ log }: TestService): void {
  afterEach(() => expect(log.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]));
}
