import { defineConfig } from 'vitest/config';

/** `npm run test:faults`: one after the other, because each breaks what the next would be measured on. */
export default defineConfig({
  test: {
    include: ['test/faults/*.test.ts'],
    globalSetup: ['test/support/postgres.ts'],
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});
