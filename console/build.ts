// `node console/build.ts [FOLDER]`: bundles the console's pages into the files that its door serves.

import { join } from 'node:path';
import { buildPage } from '../checkout/build-page.ts';

const source = import.meta.dirname;
await buildPage(source, process.argv[2] ?? join(source, '../src/console/gen'), 'es2023');
