import { defineConfig } from 'vitest/config';
import shared from './vitest.config.ts';

/**
 * `npm run test:interop`: tests that need other languages, shells or servers, an image build, or
 * test/interop/package.json, which the script installs first. A test is skipped if its tools are missing.
 */
export default defineConfig({
  test: { ...shared.test, include: ['test/interop/*.test.ts'], testTimeout: 120_000 },
});
