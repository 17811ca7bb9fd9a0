#!/usr/bin/env node

// The `buf generate` plugin for what is made from the contract besides its messages: the OpenAPI document,
// with the contract's comments and the introduction; the words of enums; the client's resources, requests and
// methods; and the checkout's JSON. None of these files imports protobuf.

import { readFileSync } from 'node:fs';
import type { DescEnum, DescField, DescFile, DescMessage } from '@bufbuild/protobuf';
import { getOption, hasOption, ScalarType } from '@bufbuild/protobuf';
import { createEcmaScriptPlugin, getComments, runNodeJs } from '@bufbuild/protoplugin';
import manifest from '../../package.json' with { type: 'json' };
import { eventDescriptions } from './event-types.ts';
import { http } from './gen/google/api/annotations_pb.ts';
import { json_field } from './gen/payments/v1/json_pb.ts';
import { enumWords, mayBeAbsent } from './json/field-rules.ts';
import { createOpenApi } from './openapi/openapi.ts';
import { clientFiles } from './typescript/client.ts';
import { type Contract, createContract, docComment, fileHead, isOurs } from './typescript/text.ts';

/** The table of event types, for its place in the introduction. */
const eventTable = [
  '| type | what has happened |',
  '| ---- | ----------------- |',
  ...Object.entries(eventDescriptions).map(([type, text]) => `| \`${type}\` | ${text} |`),
].join('\n');

const description = readFileSync(new URL('./openapi/introduction.md', import.meta.url), 'utf8')
  .trim()
  .replace('<!-- table of event types -->', eventTable);

/** The service that most readers look for. The others follow in the order of their files. */
const firstService = 'PaymentIntentService';

function openApiSource(files: readonly DescFile[], event: DescMessage): string {
  const services = files
    .flatMap((file) => file.services)
    // The console's own service is not served over the public API.
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
      const files = {
        'src/contract/gen/openapi.json': openApiSource(schema.files, contract.message('Event')),
        ...clientFiles(contract),
        'checkout/sdk/gen/checkout.ts': checkoutSource(contract),
      };
      for (const [path, source] of Object.entries(files)) schema.generateFile(path).print(source);
    },
  }),
);

// The types of the checkout's JSON, for the page and the package that open it.

/** A name of the contract as the checkout's package exports it. */
const exported = (name: string) => `Checkout${name.replace(/^PaymentIntent|^Checkout/, '')}`;

function checkoutSource(contract: Contract): string {
  const checkout = contract.message('Checkout');
  const inside = checkout.fields.flatMap(({ message }) =>
    message !== undefined && isOurs(message) ? [message] : [],
  );
  const messages = [checkout, ...inside];
  const enums = new Set(messages.flatMap(({ fields }) => fields.flatMap((field) => field.enum ?? [])));
  const enumSource = (desc: DescEnum) => {
    const words = enumWords(desc).map(
      ({ word, value }) => `${docComment(contract.paragraphsOf(value), 2)}  | '${word}'\n`,
    );
    const about = docComment(contract.paragraphsOf(desc));
    return `${about}export type ${exported(desc.name)} = OrNewer<\n${words.join('')}>;\n`;
  };
  const typeSource = (desc: DescMessage) =>
    `${docComment(contract.paragraphsOf(desc))}export interface ${exported(desc.name)} {\n` +
    `${desc.fields.map((field) => memberSource(contract, field)).join('')}}\n`;
  return (
    fileHead([]) +
    '/** One of the known values, or one that a newer service has added. */\n' +
    'export type OrNewer<Known extends string> = Known | (string & Record<never, never>);\n\n' +
    [...[...enums].map(enumSource), ...messages.map(typeSource)].join('\n')
  );
}

function memberSource(contract: Contract, field: DescField): string {
  const isOptional = mayBeAbsent(field) && !getOption(field, json_field).required;
  const type = field.fieldKind === 'list' ? `${typeOf(field)}[]` : typeOf(field);
  return `${docComment(contract.paragraphsOf(field), 2)}  ${field.name}${isOptional ? '?' : ''}: ${type};\n`;
}

function typeOf(field: DescField): string {
  if (field.message !== undefined) return isOurs(field.message) ? exported(field.message.name) : 'string';
  if (field.enum !== undefined) return exported(field.enum.name);
  if (field.scalar === ScalarType.STRING) return 'string';
  return field.scalar === ScalarType.BOOL ? 'boolean' : 'number';
}
