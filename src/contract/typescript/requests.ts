// What the caller gives to the client's methods: a type and a table of fields for each request. The id is an argument of
// its own, and pages are asked for by their token.

import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import type { HttpRoute } from '../http-routes.ts';
import { enumWords, isRequiredField } from '../json/field-rules.ts';
import { schemaOptionsOf } from '../openapi/schemas.ts';
import { sourceOf, valueSource } from './resources.ts';
import { type Contract, docComment, fileHead, lowerFirst, tableSource } from './text.ts';

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

const requestsOf = ({ routes }: Contract) =>
  routes
    .map((route) => ({ desc: route.method.input, fields: givenFields(route) }))
    .filter(({ fields }) => fields.length > 0);

export function requestsSource(contract: Contract): string {
  return (
    fileHead([
      "import type * as words from '../../src/contract/gen/words.ts';",
      "import type { EventType, JsonCompatible } from '../values.ts';",
    ]) +
    requestsOf(contract)
      .map(({ desc, fields }) => typeSource(contract, desc, fields))
      .join('\n')
  );
}

export function requestTables(contract: Contract): string[] {
  return requestsOf(contract).map(({ desc, fields }) => tableSource(requestFieldsOf(desc), fields, rowOf));
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

/** The words that a field takes, if not all of its enum's. */
const someWords = (field: DescField) => schemaOptionsOf(field).enum as string[] | undefined;

function typeOf(field: DescField): string {
  const { type } = valueSource(field);
  if (field.fieldKind === 'list') return `readonly ${type}[]`;
  if (field.fieldKind === 'enum') {
    const words = someWords(field)?.map((word) => `'${word}'`);
    return words?.join(' | ') ?? `words.${field.enum.name}`;
  }
  if (isStruct(field)) return '(Metadata & JsonCompatible<Metadata>)';
  return field.scalar === ScalarType.INT64 ? 'number | bigint' : type;
}

/** What a field's row says, as client/request-fields.ts reads it. */
function rowOf(field: DescField): string {
  if (field.fieldKind === 'list') return sourceOf(field).row;
  const row = valueRowOf(field);
  return isRequiredField(field) ? `${row}, presence: 'required'` : row;
}

function valueRowOf(field: DescField): string {
  const { row } = valueSource(field);
  // Without presence, over gRPC the field's zero means that it was not given.
  const isFilled = field.presence === FeatureSet_FieldPresence.IMPLICIT;
  if (field.scalar === ScalarType.STRING) return isFilled ? "type: 'filledText'" : "type: 'text'";
  if (field.scalar === ScalarType.INT32) {
    const { minimum = isFilled ? 1 : undefined } = schemaOptionsOf(field);
    return minimum === undefined ? row : `${row}, min: ${minimum}`;
  }
  const some = someWords(field);
  if (field.fieldKind !== 'enum' || some === undefined) return row;
  const words = enumWords(field.enum).filter(({ word }) => some.includes(word));
  return `type: 'word', words: { ${words.map(({ word, value }) => `${word}: ${value.number}`).join(', ')} }`;
}
