#!/usr/bin/env node
// The plugin with which `buf generate` writes the OpenAPI document, including the contract's comments and the
// introduction.

import { readFileSync } from 'node:fs';
import type { DescService } from '@bufbuild/protobuf';
import { createEcmaScriptPlugin, getComments, runNodeJs } from '@bufbuild/protoplugin';
import manifest from '../../../package.json' with { type: 'json' };
import { createOpenApi } from './openapi.ts';

const description = readFileSync(new URL('./introduction.md', import.meta.url), 'utf8').trim();

runNodeJs(
  createEcmaScriptPlugin({
    name: 'protoc-gen-openapi',
    version: manifest.version,
    generateTs(schema) {
      const services = schema.files.flatMap((file): DescService[] => file.services);
      const document = createOpenApi({
        title: 'Payment intents',
        version: manifest.version,
        description,
        services,
        commentOf: (desc) => (getComments(desc).leading ?? '').replace(/^ /gm, '').trim(),
      });
      schema.generateFile('openapi.json').print(JSON.stringify(document, null, 2));
    },
  }),
);
