import { defineConfig } from 'vitest/config';
import shared from './vitest.config.ts';

/** `npm run test:interop`: what needs other languages, other shells, or to build an image. Each is skipped without its tools. */
export default defineConfig({
  test: { ...shared.test, include: ['test/interop/*.test.ts'], testTimeout: 120_000 },
});
