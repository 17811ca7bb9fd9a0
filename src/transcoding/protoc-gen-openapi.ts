#!/usr/bin/env node
// The plugin by which `buf generate` writes the OpenAPI document, with the contract's comments in it.

import type { DescService } from '@bufbuild/protobuf';
import { createEcmaScriptPlugin, getComments, runNodeJs } from '@bufbuild/protoplugin';
import manifest from '../../package.json' with { type: 'json' };
import { createOpenApi } from './openapi.ts';

const description = `Ask to be paid in USDC on Base or Polygon: your server creates a payment intent, your frontend gets its \`client_secret\` and nothing else.

**API keys belong on servers.** Never put one into a web page, an app or anything else that a payer can open: a request that comes from a browser is refused.

Amounts are integers in the token's smallest unit: 12500000 is 12.50 USDC. Send an \`Idempotency-Key\` with every request, and repeat a request whose answer you never saw with the same key: it answers the intent that it made the first time. Retry \`429\`, \`500\`, \`503\` and broken connections like that, and nothing else.`;

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
