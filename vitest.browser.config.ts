import { defineConfig } from 'vitest/config';
import shared from './vitest.config.ts';

/** `npm run test:browser`: the pages in Chromium, which take a third of the time of all tests. Skipped without one. */
export default defineConfig({
  test: { ...shared.test, include: ['test/browser/*.test.ts'] },
});
