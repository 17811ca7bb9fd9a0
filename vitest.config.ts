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
    // A worker loads the modules once for all of its files: that is a quarter of the work. A file sets up its own world.
    isolate: false,
    // A worker that runs many files holds half a gigabyte, and its young objects fill the default space at once.
    execArgv: ['--max-semi-space-size=64'],
    // Two more than can run at once: some tests wait for a process or for a time to pass.
    maxWorkers: availableParallelism() + 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // What is awaited may be another process's, on a busy machine.
    expect: { poll: { timeout: 20_000 } },
  },
});
