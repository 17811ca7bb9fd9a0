// `node checkout/build.ts [FOLDER]`: bundles the hosted page and the SDK into the files that the public door serves.

import { join } from 'node:path';
import { build } from 'esbuild';
import { buildPage, bundled } from './build-page.ts';

const source = import.meta.dirname;
const folder = process.argv[2] ?? join(source, '../src/checkout/gen');
// Chromium 108, Firefox 108, Safari 16.4: `light-dark` and nesting are not used.
const target = 'es2022';

await buildPage(source, folder, target);
// The package payment-intents-checkout, for shops without a build.
await build({ ...bundled, entryPoints: { sdk: join(source, 'sdk/index.ts') }, outdir: folder, target });
