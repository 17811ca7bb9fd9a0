import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/support/longest-first.ts';
import { prepareTestEnvironment } from './test/support/test-environment.ts';

prepareTestEnvironment(process.env);

export default defineConfig({
  test: {
    include: ['test/*.test.ts'],
    sequence: { sequencer: LongestFirst },
    globalSetup: ['test/support/postgres.ts'],
    // A worker loads the modules once for all of its files: a quarter of the work. A file sets up its world.
    isolate: false,
    // A worker with many files holds half a gigabyte. Its young objects fill the default space at once.
    execArgv: ['--max-semi-space-size=64'],
    // Two more than can run at once: some tests wait for a process or for a time to pass.
    maxWorkers: availableParallelism() + 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // On a busy machine, a test may wait for another process.
    expect: { poll: { timeout: 20_000 } },
  },
});
