#!/usr/bin/env node
// The plugin with which `buf generate` writes what is made of the contract besides its messages: the OpenAPI document, with
// the contract's comments and the introduction; the words of enums; the client's resources, requests and methods; and the
// checkout's JSON. None of it imports protobuf.

import { readFileSync } from 'node:fs';
import { type DescFile, type DescMessage, hasOption } from '@bufbuild/protobuf';
import { createEcmaScriptPlugin, getComments, runNodeJs } from '@bufbuild/protoplugin';
import manifest from '../../package.json' with { type: 'json' };
import { eventDescriptions } from './event-types.ts';
import { http } from './gen/google/api/annotations_pb.ts';
import { createOpenApi } from './openapi/openapi.ts';
import { checkoutSource } from './typescript/checkout.ts';
import { fieldsSource, methodsSource, requestsSource } from './typescript/methods.ts';
import { resourcesSource } from './typescript/resources.ts';
import { createContract } from './typescript/text.ts';
import { wordsSource } from './typescript/words.ts';

/** The table of event types, where the introduction asks for it. */
const eventTable = [
  '| type | what has happened |',
  '| ---- | ----------------- |',
  ...Object.entries(eventDescriptions).map(([type, text]) => `| \`${type}\` | ${text} |`),
].join('\n');

const description = readFileSync(new URL('./openapi/introduction.md', import.meta.url), 'utf8')
  .trim()
  .replace('<!-- table of event types -->', eventTable);

/** What a reader comes for. The others follow in the order of their files. */
const firstService = 'PaymentIntentService';

function openApiSource(files: readonly DescFile[], event: DescMessage): string {
  const services = files
    .flatMap((file) => file.services)
    // The console's own is not served here.
    .filter(({ methods }) => methods.some((method) => hasOption(method, http)))
    .sort((a, b) => Number(b.name === firstService) - Number(a.name === firstService));
  const document = createOpenApi({
    title: 'Payment intents',
    version: manifest.version,
    description,
    services,
    webhooks: { message: event, descriptions: eventDescriptions },
    commentOf: (desc) => (getComments(desc).leading ?? '').replace(/^ /gm, '').trim(),
  });
  return JSON.stringify(document, null, 2);
}

runNodeJs(
  createEcmaScriptPlugin({
    name: 'protoc-gen-contract',
    version: manifest.version,
    generateTs(schema) {
      const contract = createContract(schema.files);
      const write = (path: string, source: string) => schema.generateFile(path).print(source);
      write('src/contract/gen/openapi.json', openApiSource(schema.files, contract.message('Event')));
      write('src/contract/gen/words.ts', wordsSource(contract));
      write('client/gen/resources.ts', resourcesSource(contract));
      write('client/gen/requests.ts', requestsSource(contract));
      write('client/gen/fields.ts', fieldsSource(contract));
      write('client/gen/methods.ts', methodsSource(contract));
      write('checkout/sdk/gen/checkout.ts', checkoutSource(contract));
    },
  }),
);
