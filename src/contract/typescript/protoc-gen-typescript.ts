#!/usr/bin/env node
// The plugin with which `buf generate` writes what TypeScript needs of the contract besides its messages: the words of
// its enums, the client's resources, requests and methods, and the checkout's JSON. None of it imports protobuf.

import { createEcmaScriptPlugin, runNodeJs } from '@bufbuild/protoplugin';
import manifest from '../../../package.json' with { type: 'json' };
import { checkoutSource } from './checkout.ts';
import { methodsSource } from './methods.ts';
import { requestsSource } from './requests.ts';
import { resourcesSource } from './resources.ts';
import { createContract } from './text.ts';
import { wordsSource } from './words.ts';

runNodeJs(
  createEcmaScriptPlugin({
    name: 'protoc-gen-typescript',
    version: manifest.version,
    generateTs(schema) {
      const contract = createContract(schema.files);
      const write = (path: string, source: string) => schema.generateFile(path).print(source);
      write('src/contract/gen/words.ts', wordsSource(contract));
      write('client/gen/resources.ts', resourcesSource(contract));
      write('client/gen/requests.ts', requestsSource(contract));
      write('client/gen/methods.ts', methodsSource(contract));
      write('checkout/sdk/gen/checkout.ts', checkoutSource(contract));
    },
  }),
);
