// The client's methods and their requests: types with the contract's comments, and the tables that both protocols work
// from. The id is an argument of its own, and pages are asked for by their token.

import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { type HttpRoute, takesIdempotencyKey } from '../http-routes.ts';
import { enumWords, isRequiredField } from '../json/field-rules.ts';
import { schemaOptionsOf } from '../openapi/schemas.ts';
import { fieldsOf, formAnswered, formInside, resourceTables, sourceOf, valueSource } from './resources.ts';
import { type Contract, docComment, fileHead, isAnswer, tableSource } from './text.ts';

/** The tables of fields that both protocols work from. */
export function fieldsSource(contract: Contract): string {
  const head = fileHead([
    "import * as words from '../../src/contract/gen/words.ts';",
    "import type { Fields } from '../resource-fields.ts';",
  ]);
  const requestTables = requestsOf(contract).map(({ desc, fields }) =>
    tableSource(fieldsOf(requestType(desc)), fields, rowOf),
  );
  return head + [...resourceTables(contract), ...requestTables].join('\n');
}

export function methodsSource(contract: Contract): string {
  const signatures = contract.routes.map((route) => ({ route, ...signatureOf(route) }));
  const types = signatures.map(({ route, name, typeParameter, parameters, returns }) => {
    // The client makes keys and asks for pages without being told.
    const about = contract
      .clientParagraphsOf(route.method)
      .filter((text) => !/`Idempotency-Key`|`nextPageToken`/.test(text));
    return `${docComment(about, 2)}  ${name}${typeParameter}(${parameters.join(', ')}): ${returns};\n`;
  });
  return (
    fileHead([
      "import type { List } from '../list.ts';",
      "import type { CallOptions, CreateOptions } from '../options.ts';",
      "import type { Method } from '../protocol.ts';",
      "import * as fields from './fields.ts';",
      "import type * as requests from './requests.ts';",
      "import type * as resources from './resources.ts';",
    ]) +
    `/** The methods that a merchant's key calls. */\nexport interface Methods {\n${types.join('\n')}}\n\n` +
    `export const methods: Readonly<Record<keyof Methods, Method>> = {\n${signatures.map(({ row }) => row).join('')}};\n`
  );
}

/** What a method takes and returns, as the client has it. */
function signatureOf(route: HttpRoute) {
  const { method, pathFields, httpMethod, path, successStatus } = route;
  const { input } = method;
  const name = method.localName.replace(/^get/, 'retrieve');
  const given = givenFields(route);
  const isList = method.output.fields.some((field) => field.name === 'next_page_token');
  // What changes a resource has to say what.
  const isOptional = !given.some(isRequiredField) && httpMethod !== 'PATCH';
  const options = takesIdempotencyKey(route) ? 'CreateOptions' : 'CallOptions';
  const argument = isList
    ? 'filters'
    : httpMethod === 'PATCH'
      ? 'change'
      : (/^[a-z]+/.exec(name)?.[0] ?? 'request');
  const typeParameter = hasMetadata(input) ? '<Metadata extends object>' : '';
  const type = `requests.${requestType(input)}${typeParameter && '<Metadata>'}`;
  const answer = answerOf(route);
  const facts = [
    `rpc: '${method.localName}'`,
    `http: '${httpMethod} ${path}'`,
    `status: ${successStatus}`,
    `takesId: ${pathFields.length > 0}`,
    `takesKey: ${takesIdempotencyKey(route)}`,
    ...(given.length > 0
      ? [`request: fields.${fieldsOf(requestType(input))}`, `isRequestOptional: ${isOptional}`]
      : []),
    `answer: fields.${fieldsOf(answer.form)}`,
    ...(answer.field === undefined ? [] : [`${isList ? 'lists' : 'returns'}: '${answer.field.localName}'`]),
    ...(answer.type === 'void' ? ['returns: null'] : []),
  ];
  return {
    name,
    typeParameter,
    parameters: [
      ...(pathFields.length > 0 ? ['id: string'] : []),
      ...(given.length > 0 ? [`${argument}${isOptional ? '?' : ''}: ${type}`] : []),
      `options?: ${options}`,
    ],
    returns: isList ? `List<${answer.type}>` : `Promise<${answer.type}>`,
    row: `  ${name}: {\n${facts.map((fact) => `    ${fact},\n`).join('')}  },\n`,
  };
}

/** What the client returns of an answer: its resource, or the one field of an answer that is none. */
function answerOf(route: HttpRoute): { form: string; type: string; field?: DescField } {
  const { output } = route.method;
  if (!isAnswer(output)) {
    const form = formAnswered(route);
    // The forms that have a secret say so themselves.
    const isPlain = takesIdempotencyKey(route) && form === formInside(output);
    return { form, type: `resources.${form}${isPlain ? ' & { replayed: boolean }' : ''}` };
  }
  const [field] = output.fields;
  const form = output.name;
  if (field === undefined) return { form, type: 'void' };
  if (field.message === undefined) return { form, type: sourceOf(field).type, field };
  const item = `resources.${formInside(field.message)}`;
  return { form, type: output.fields.length > 1 ? item : `${item}[]`, field };
}

/** The name of a request's type: what its method does. */
const requestType = ({ name }: DescMessage) => name.replace(/Request$/, '');

/** The fields that the caller gives besides the id. */
const givenFields = ({ method, pathFields }: HttpRoute) =>
  method.input.fields.filter((field) => !pathFields.includes(field) && field.name !== 'page_token');

/** True for a request with JSON of the caller's own, whose type it keeps. */
const hasMetadata = ({ fields }: DescMessage) => fields.some(isStruct);

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
