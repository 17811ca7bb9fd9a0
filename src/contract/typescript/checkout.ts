// The types of the checkout's JSON, for the page and the package that open it.

import { type DescEnum, type DescField, type DescMessage, getOption, ScalarType } from '@bufbuild/protobuf';
import { json_field } from '../gen/payments/v1/json_pb.ts';
import { enumWords, mayBeAbsent } from '../json/field-rules.ts';
import { type Contract, docComment, fileHead, isOurs } from './text.ts';

/** A name of the contract as the checkout's package exports it. */
const exported = (name: string) => `Checkout${name.replace(/^PaymentIntent|^Checkout/, '')}`;

export function checkoutSource(contract: Contract): string {
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
