import { defineConfig } from 'vitest/config';

/**
 * `npm run test:ha`: faults of a cluster started by `ops/ha/up.sh`, one after the other. Needs the packages
 * that up.sh names, and about an hour.
 */
export default defineConfig({
  test: {
    include: ['test/ha/*.test.ts'],
    fileParallelism: false,
    testTimeout: 3_600_000,
    hookTimeout: 300_000,
  },
});
