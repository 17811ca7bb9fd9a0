// openapi-typescript needs the JavaScript API of TypeScript 5, which TypeScript 7 does not have. This uses the one that
// @bufbuild/protoplugin depends on: preload this file with `node --import`.

import { createRequire, registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

const pluginRequire = createRequire(createRequire(import.meta.url).resolve('@bufbuild/protoplugin'));
const url = pathToFileURL(pluginRequire.resolve('typescript')).href;

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'typescript' ? { url, shortCircuit: true } : next(specifier, context),
});
