// What the caller gives to the client's methods: a type and a table of fields for each request. The id is an argument of
// its own, and pages are asked for by their token.

import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import type { HttpRoute } from '../http-routes.ts';
import { enumWords, isRequiredField } from '../json/field-rules.ts';
import { schemaOptionsOf } from '../openapi/schemas.ts';
import { textType } from './resources.ts';
import { type Contract, docComment, fileHead, lowerFirst } from './text.ts';
import { wordsOf } from './words.ts';

/** The name of a request's type: what its method does. */
export const requestType = ({ name }: DescMessage) => name.replace(/Request$/, '');
/** The name of a request's table. */
export const requestFieldsOf = (desc: DescMessage) => `${lowerFirst(requestType(desc))}Fields`;

/** The fields that the caller gives besides the id. */
export const givenFields = ({ method, pathFields }: HttpRoute) =>
  method.input.fields.filter((field) => !pathFields.includes(field) && field.name !== 'page_token');

/** True for a request with JSON of the caller's own, whose type it keeps. */
export const hasMetadata = ({ fields }: DescMessage) => fields.some(isStruct);

const isStruct = ({ message }: DescField) => message?.typeName === 'google.protobuf.Struct';
const isMoment = ({ message }: DescField) => message?.typeName === 'google.protobuf.Timestamp';

const requestsOf = ({ routes }: Contract) =>
  routes
    .map((route) => ({ desc: route.method.input, fields: givenFields(route) }))
    .filter(({ fields }) => fields.length > 0);

export function requestsSource(contract: Contract): string {
  return (
    fileHead([
      "import type * as words from '../../src/contract/gen/words.ts';",
      "import type { JsonCompatible } from '../api-resource.ts';",
      "import type { EventType } from '../enums.ts';",
    ]) +
    requestsOf(contract)
      .map(({ desc, fields }) => typeSource(contract, desc, fields))
      .join('\n')
  );
}

export function requestTables(contract: Contract): string[] {
  return requestsOf(contract).map(({ desc, fields }) => tableSource(desc, fields));
}

function typeSource(contract: Contract, desc: DescMessage, fields: readonly DescField[]): string {
  const parameter = hasMetadata(desc) ? '<Metadata extends object = object>' : '';
  const members = fields.map((field) => {
    const type = typeOf(field);
    const given = isRequiredField(field) ? `: ${type}` : `?: ${type} | undefined`;
    return `${docComment(contract.clientParagraphsOf(field), 2)}  ${field.localName}${given};\n`;
  });
  return `${docComment(contract.clientParagraphsOf(desc))}export interface ${requestType(desc)}${parameter} {\n${members.join('')}}\n`;
}

function tableSource(desc: DescMessage, fields: readonly DescField[]): string {
  const rows = fields.map((field) => {
    const kind = inputOf(field);
    return `  ${field.localName}: ${isRequiredField(field) ? `input.required(${kind})` : kind},\n`;
  });
  return `export const ${requestFieldsOf(desc)}: input.RequestFields = {\n${rows.join('')}};\n`;
}

/** The words that a field takes, if not all of its enum's. */
const someWords = (field: DescField) => schemaOptionsOf(field).enum as string[] | undefined;

function typeOf(field: DescField): string {
  if (field.fieldKind === 'list') return `readonly ${textType(field)}[]`;
  if (field.fieldKind === 'enum') {
    return (
      someWords(field)
        ?.map((word) => `'${word}'`)
        .join(' | ') ?? `words.${field.enum.name}`
    );
  }
  if (isMoment(field)) return 'Date';
  if (isStruct(field)) return '(Metadata & JsonCompatible<Metadata>)';
  switch (field.scalar) {
    case ScalarType.BOOL:
      return 'boolean';
    case ScalarType.INT64:
      return 'number | bigint';
    case ScalarType.INT32:
      return 'number';
    default:
      return textType(field);
  }
}

/** The way in request-fields.ts in which a field is read. */
function inputOf(field: DescField): string {
  if (field.fieldKind === 'list') return 'input.filledTexts';
  if (field.fieldKind === 'enum') {
    const words = someWords(field);
    if (words === undefined) return `input.word(words.${wordsOf(field.enum)})`;
    const numbers = enumWords(field.enum).filter(({ word }) => words.includes(word));
    return `input.word({ ${numbers.map(({ word, value }) => `${word}: ${value.number}`).join(', ')} })`;
  }
  if (isMoment(field)) return 'input.moment';
  if (isStruct(field)) return 'input.metadata';
  // Without presence, over gRPC the field's zero means that it was not given.
  const hasPresence = field.presence !== FeatureSet_FieldPresence.IMPLICIT;
  const { minimum } = schemaOptionsOf(field);
  switch (field.scalar) {
    case ScalarType.BOOL:
      return 'input.flag';
    case ScalarType.INT64:
      return 'input.amount';
    case ScalarType.INT32:
      if (minimum !== undefined || !hasPresence) return `input.integerFrom(${minimum ?? 1})`;
      return 'input.clampedInteger';
    default:
      return hasPresence ? 'input.text' : 'input.filledText';
  }
}
