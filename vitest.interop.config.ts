import { defineConfig } from 'vitest/config';
import shared from './vitest.config.ts';

/**
 * `npm run test:interop`: what needs other languages, shells or servers, to build an image, or test/interop/package.json,
 * which the script installs first. Each is skipped without its tools.
 */
export default defineConfig({
  test: { ...shared.test, include: ['test/interop/*.test.ts'], testTimeout: 120_000 },
});
