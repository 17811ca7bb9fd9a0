import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/support/longest-first.ts';

/** These are measured on a machine that does nothing else. */
const measured = [
  'failover',
  'hanging-endpoints',
  'hostile-clients',
  'overload',
  'shutdown',
  'unread-log',
].map((name) => `test/faults/${name}.test.ts`);

const common = {
  isolate: false,
  testTimeout: 120_000,
  hookTimeout: 60_000,
  globalSetup: ['test/support/postgres.ts'],
  expect: { poll: { timeout: 20_000 } },
};

/** `npm run test:faults`: first what may run side by side, then one after the other. */
export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...common,
          name: 'together',
          include: ['test/faults/*.test.ts'],
          exclude: measured,
          // One more than can run at once: some wait for a process or for a time to pass.
          maxWorkers: availableParallelism() + 1,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...common,
          name: 'alone',
          include: measured,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
