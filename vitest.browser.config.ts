import { defineConfig } from 'vitest/config';
import shared from './vitest.config.ts';

/**
 * `npm run test:browser`: the pages in Chromium, and the checkout in Firefox and WebKit; a third of the time
 * of all tests. Tests whose browser is not installed are skipped.
 */
export default defineConfig({
  test: { ...shared.test, include: ['test/browser/*.test.ts'] },
});
