// What the client's methods return: a type and a table of fields for each message of the answers, and for each form in
// which answers have it.

import { type DescEnum, type DescField, type DescMessage, getOption, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { json_field, json_method } from '../gen/payments/v1/json_pb.ts';
import { type HttpRoute, takesIdempotencyKey } from '../http-routes.ts';
import { enumWords } from '../json/field-rules.ts';
import {
  type Contract,
  docComment,
  fileHead,
  isAnswer,
  isOurs,
  isSecret,
  lowerFirst,
  tableSource,
} from './text.ts';

/** A field's type in the client, and what its row in a table says, as client/resource-fields.ts reads it. */
interface FieldSource {
  type: string;
  row: string;
}

/** One form in which answers have a message. */
interface Form {
  name: string;
  /** The form whose fields it has besides its own. */
  base?: string;
  /** What the form is, if its message's comment does not say so. */
  about?: string;
  fields: readonly DescField[];
  /** The fields that its base lacks. */
  own: readonly DescField[];
  isReplayable?: boolean;
  /** True if only other forms have it, and no answer. */
  isBase?: boolean;
}

const isLater = (field: DescField) => getOption(field, json_field).afterCreation;

/** The forms of a message: lists and events lack its secret, and its creation lacks what comes later. */
function formsOf(desc: DescMessage): Form[] {
  const { name, fields } = desc;
  const secrets = fields.filter(isSecret);
  const plain = fields.filter((field) => !isSecret(field));
  if (secrets.length === 0) return [{ name, fields, own: fields }];
  if (!fields.some(isLater)) {
    const withSecret = { name: `${name}WithSecret`, base: name, fields, own: secrets, isReplayable: true };
    return [{ name, fields: plain, own: plain }, withSecret];
  }
  const atOnce = plain.filter((field) => !isLater(field));
  return [
    {
      name: `Any${name}`,
      about: 'What is known from creation on.',
      fields: atOnce,
      own: atOnce,
      isBase: true,
    },
    {
      name,
      base: `Any${name}`,
      about: 'As its creation returned it. A later call with the same key returns the same again.',
      fields: fields.filter((field) => !isLater(field)),
      own: secrets,
      isReplayable: true,
    },
    {
      name: `${name}State`,
      base: `Any${name}`,
      about: 'In its present state; in an event, as it was right after the change.',
      fields: plain,
      own: plain.filter(isLater),
    },
    {
      name: `Retrieved${name}`,
      base: `${name}State`,
      about: 'In its present state, with its secret: lists and events do not have that.',
      fields,
      own: secrets,
    },
  ];
}

/** The form of a message inside another. */
export function formInside(desc: DescMessage): string {
  const forms = formsOf(desc);
  return (forms.find(({ name }) => name.endsWith('State')) ?? forms[0])?.name ?? desc.name;
}

/** The form in which a method answers its message. */
export function formAnswered(route: HttpRoute): string {
  const { method } = route;
  const { output } = method;
  if (!getOption(method, json_method).answersSecret) return formInside(output);
  if (!output.fields.some(isLater)) return `${output.name}WithSecret`;
  return takesIdempotencyKey(route) ? output.name : `Retrieved${output.name}`;
}

/** The name of a form's table. */
export const fieldsOf = (form: string) => `${lowerFirst(form)}Fields`;

export function resourcesSource(contract: Contract): string {
  const forms = contract.answers
    .filter((desc) => !isAnswer(desc))
    .flatMap((desc) => formsOf(desc).map((form) => ({ desc, form })));
  return (
    fileHead([
      "import type * as words from '../../src/contract/gen/words.ts';",
      "import type { ApiResource, EventType, JsonObject, Label, Unknown } from '../values.ts';",
    ]) + forms.map(({ desc, form }) => typeSource(contract, desc, form)).join('\n')
  );
}

export function resourceTables(contract: Contract): string[] {
  return contract.answers
    .flatMap(formsOf)
    .filter(({ isBase }) => !isBase)
    .map(({ name, fields }) => tableSource(fieldsOf(name), fields, (field) => sourceOf(field).row));
}

function typeSource(contract: Contract, desc: DescMessage, form: Form): string {
  const [first = '', ...others] = contract.clientParagraphsOf(desc);
  const members = form.own.map((field) => {
    const isEnum = field.fieldKind === 'enum';
    const newer = isEnum ? ' A value newer than this client is an {@link Unknown}.' : '';
    const [text = '', ...more] = contract.clientParagraphsOf(field);
    return `${docComment([text + newer, ...more], 2)}  ${field.localName}: ${sourceOf(field).type};\n`;
  });
  if (form.isReplayable) {
    members.push(
      `${docComment(
        ['True if an earlier call with the same idempotency key did this, and this one only found it.'],
        2,
      )}  replayed: boolean;\n`,
    );
  }
  const about = docComment(form.about === undefined ? [first, ...others] : [first, form.about]);
  return `${about}export interface ${form.name} extends ${form.base ?? 'ApiResource'} {\n${members.join('')}}\n`;
}

/** Texts of which the known ones have a type. */
const namedTexts: Readonly<Record<string, string>> = {
  type: 'EventType',
  event_type: 'EventType',
  event_types: 'EventType',
  labels: 'Label',
};

/** True for a text that callers keep to go on with, or decide by: an empty one would lose money or events. */
const isKept = (field: DescField) => isSecret(field) || ['id', 'type', 'position'].includes(field.name);

export function sourceOf(field: DescField): FieldSource {
  const { type, row } = valueSource(field);
  const as = (presence: string) => `${row}, presence: '${presence}'`;
  if (field.fieldKind === 'list') return { type: `${type}[]`, row: as('list') };
  const { required, omitEmpty } = getOption(field, json_field);
  if (omitEmpty) return { type: `${type} | undefined`, row: as('omitted') };
  // No metadata is an empty object.
  if (field.presence === FeatureSet_FieldPresence.IMPLICIT || type === 'JsonObject') return { type, row };
  if (required) return { type, row: as('required') };
  return { type: `${type} | undefined`, row: as('optional') };
}

/** The source of the field's value, or of each in its list. */
export function valueSource(field: DescField): FieldSource {
  if (field.message !== undefined) return messageSource(field.message);
  if (field.enum !== undefined) {
    return {
      type: `words.${field.enum.name} | Unknown`,
      row: `type: 'word', words: words.${wordsOf(field.enum)}`,
    };
  }
  switch (field.scalar) {
    case ScalarType.BOOL:
      return { type: 'boolean', row: "type: 'flag'" };
    case ScalarType.INT32:
      return { type: 'number', row: "type: 'integer'" };
    case ScalarType.INT64:
      // Amounts are exact. Other integers of this width, such as the number of a block, are small.
      return field.name.endsWith('_units')
        ? { type: 'bigint', row: "type: 'units'" }
        : { type: 'number', row: "type: 'integer'" };
    default:
      return {
        type: namedTexts[field.name] ?? 'string',
        row: `type: '${isKept(field) ? 'filledText' : 'text'}'`,
      };
  }
}

function messageSource(desc: DescMessage): FieldSource {
  if (desc.typeName === 'google.protobuf.Timestamp') return { type: 'Date', row: "type: 'moment'" };
  if (!isOurs(desc)) return { type: 'JsonObject', row: "type: 'metadata'" };
  const form = formInside(desc);
  return { type: form, row: `type: 'resource', fields: ${fieldsOf(form)}` };
}

// The words of the contract's enums: the only table of them, for the database, the doors, the clients and the checkout.

/** The name of the table of an enum's words. */
const wordsOf = ({ name }: DescEnum) => `${lowerFirst(name)}Words`;

export function wordsSource(contract: Contract): string {
  const sourceOf = (desc: DescEnum) => {
    const words = enumWords(desc);
    const union = words
      .map(({ word, value }) => `${docComment(contract.paragraphsOf(value), 2)}  | '${word}'\n`)
      .join('');
    const table = words.map(({ word, value }) => `  ${word}: ${value.number},\n`).join('');
    return (
      `${docComment(contract.paragraphsOf(desc))}export type ${desc.name} =\n${union.trimEnd()};\n\n` +
      `/** The numbers of a {@link ${desc.name}} in messages. */\n` +
      `export const ${wordsOf(desc)} = {\n${table}} as const satisfies Record<${desc.name}, number>;\n`
    );
  };
  return fileHead([]) + contract.enums.map(sourceOf).join('\n');
}
