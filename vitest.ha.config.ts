import { defineConfig } from 'vitest/config';

/**
 * `npm run test:ha`: faults of a cluster as `ops/ha/up.sh` starts it, one after the other. It needs the packages that
 * up.sh names, and about an hour.
 */
export default defineConfig({
  test: {
    include: ['test/ha/*.test.ts'],
    fileParallelism: false,
    testTimeout: 3_600_000,
    hookTimeout: 300_000,
  },
});
