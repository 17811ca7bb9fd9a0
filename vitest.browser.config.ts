import { defineConfig } from 'vitest/config';
import shared from './vitest.config.ts';

/**
 * `npm run test:browser`: the pages in Chromium and the checkout in Firefox and WebKit, a third of the time of all tests. What needs
 * a browser that is not installed is skipped.
 */
export default defineConfig({
  test: { ...shared.test, include: ['test/browser/*.test.ts'] },
});
