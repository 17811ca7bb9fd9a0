import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/support/longest-first.ts';
import { prepareTestEnvironment } from './test/support/test-environment.ts';

prepareTestEnvironment(process.env);

const filesOf = (...names: string[]) => names.map((name) => `test/faults/${name}.test.ts`);
/** These measure how long others wait, so no tests run beside them. */
const measured = filesOf('hostile-clients', 'overload');
/** These measure times, and mostly wait. */
const waiting = filesOf('failover', 'hanging-endpoints', 'shutdown', 'unread-log');

const common = {
  isolate: false,
  execArgv: ['--max-semi-space-size=64'],
  env: { PORT_OFFSET: '1000' },
  testTimeout: 120_000,
  hookTimeout: 60_000,
  globalSetup: ['test/support/postgres.ts'],
  expect: { poll: { timeout: 20_000 } },
};

/** `npm run test:faults`: first the tests that may run side by side, then the others one after the other. */
export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...common,
          name: 'together',
          include: ['test/faults/*.test.ts'],
          exclude: [...measured, ...waiting],
          // One more than can run at once: some wait for a process or for a time to pass.
          maxWorkers: availableParallelism() + 1,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...common,
          name: 'in-turn',
          include: waiting,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...common,
          name: 'alone',
          include: measured,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
