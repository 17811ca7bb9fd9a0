#!/usr/bin/env node
// The plugin with which `buf generate` writes the OpenAPI document, including the contract's comments and the
// introduction.

import { readFileSync } from 'node:fs';
import { type DescService, hasOption } from '@bufbuild/protobuf';
import { createEcmaScriptPlugin, getComments, runNodeJs } from '@bufbuild/protoplugin';
import manifest from '../../../package.json' with { type: 'json' };
import { eventDescriptions } from '../event-types.ts';
import { http } from '../gen/google/api/annotations_pb.ts';
import { createOpenApi } from './openapi.ts';

/** The table of event types, where the introduction asks for it. */
const eventTable = [
  '| type | what has happened |',
  '| ---- | ----------------- |',
  ...Object.entries(eventDescriptions).map(([type, text]) => `| \`${type}\` | ${text} |`),
].join('\n');

const description = readFileSync(new URL('./introduction.md', import.meta.url), 'utf8')
  .trim()
  .replace('<!-- table of event types -->', eventTable);

/** What a reader comes for. The others follow in the order of their files. */
const firstService = 'PaymentIntentService';

runNodeJs(
  createEcmaScriptPlugin({
    name: 'protoc-gen-openapi',
    version: manifest.version,
    generateTs(schema) {
      const services = schema.files
        .flatMap((file): DescService[] => file.services)
        // The console's own is not served here.
        .filter(({ methods }) => methods.some((method) => hasOption(method, http)))
        .sort((a, b) => Number(b.name === firstService) - Number(a.name === firstService));
      const event = schema.files
        .flatMap((file) => file.messages)
        .find(({ typeName }) => typeName === 'payments.v1.Event');
      const document = createOpenApi({
        title: 'Payment intents',
        version: manifest.version,
        description,
        services,
        ...(event && { webhooks: { message: event, descriptions: eventDescriptions } }),
        commentOf: (desc) => (getComments(desc).leading ?? '').replace(/^ /gm, '').trim(),
      });
      schema.generateFile('openapi.json').print(JSON.stringify(document, null, 2));
    },
  }),
);
