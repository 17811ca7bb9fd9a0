// The client's source. For answers: a type and a table of fields for each form of each message. For methods
// and requests: types with the contract's comments, and the tables that both protocols work from. The id is
// an argument of its own, and the client asks for pages by token.

import { type DescEnum, type DescField, type DescMessage, getOption, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { json_field, json_method } from '../gen/payments/v1/json_pb.ts';
import { type HttpRoute, takesIdempotencyKey } from '../http-routes.ts';
import { enumWords, isRequiredField } from '../json/field-rules.ts';
import { schemaOptionsOf } from '../openapi/schemas.ts';
import { type Contract, docComment, fileHead, isOurs } from './text.ts';

/** The files of the client by their paths, and the words that it shares with the server. */
export function clientFiles(contract: Contract): Record<string, string> {
  return {
    'src/contract/gen/words.ts': wordsSource(contract),
    'client/gen/resources.ts': resourcesSource(contract),
    'client/gen/requests.ts': requestsSource(contract),
    'client/gen/fields.ts': fieldsSource(contract),
    'client/gen/methods.ts': methodsSource(contract),
  };
}

/** A field's type in the client, and its row in a table, as client/resource-fields.ts reads it. */
interface FieldSource {
  type: string;
  row: string;
}

/** One form of a message in answers. */
interface Form {
  name: string;
  /** The form that it extends. */
  base?: string;
  /** What the form is, if the message's comment does not say so. */
  about?: string;
  fields: readonly DescField[];
  /** The fields that its base lacks. */
  own: readonly DescField[];
  isReplayable?: boolean;
  /** True if other forms extend it but no answer has it. */
  isBase?: boolean;
}

/** True for a message that is not a resource, only the answer of a method. */
const isAnswer = ({ name }: DescMessage) => /^(?!Watch).*Response$/.test(name);

/** True for a field that only some answers have. */
const isSecret = (field: DescField) => getOption(field, json_field).secret;

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
  const base = `Any${name}`;
  return [
    { name: base, about: 'What is known from creation on.', fields: atOnce, own: atOnce, isBase: true },
    {
      name,
      base,
      about: 'As its creation returned it. A later call with the same key returns the same again.',
      fields: fields.filter((field) => !isLater(field)),
      own: secrets,
      isReplayable: true,
    },
    {
      name: `${name}State`,
      base,
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
function formInside(desc: DescMessage): string {
  const forms = formsOf(desc);
  return (forms.find(({ name }) => name.endsWith('State')) ?? forms[0])?.name ?? desc.name;
}

/** The form of the message that a method returns. */
function formAnswered(route: HttpRoute): string {
  const { method } = route;
  const { output } = method;
  if (!getOption(method, json_method).answersSecret) return formInside(output);
  if (!output.fields.some(isLater)) return `${output.name}WithSecret`;
  return takesIdempotencyKey(route) ? output.name : `Retrieved${output.name}`;
}

/** The source of a table of fields, with the row that `rowOf` returns for each. */
function tableSource(name: string, fields: readonly DescField[], rowOf: (field: DescField) => string) {
  const rows = fields.map((field) => `  ${field.localName}: { ${rowOf(field)} },\n`);
  return `export const ${name}: Fields = {\n${rows.join('')}};\n`;
}

const lowerFirst = (name: string) => name.charAt(0).toLowerCase() + name.slice(1);

/** The name of a form's table. */
const fieldsOf = (form: string) => `${lowerFirst(form)}Fields`;

function resourcesSource(contract: Contract): string {
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

function resourceTables(contract: Contract): string[] {
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

/** Texts whose known values have a type. */
const namedTexts: Readonly<Record<string, string>> = {
  type: 'EventType',
  event_type: 'EventType',
  event_types: 'EventType',
  labels: 'Label',
};

/** True for a text that callers store or decide by: if it were empty, they would lose money or events. */
const isKept = (field: DescField) => isSecret(field) || ['id', 'type', 'position'].includes(field.name);

function sourceOf(field: DescField): FieldSource {
  const { type, row } = valueSource(field);
  const as = (presence: string) => `${row}, presence: '${presence}'`;
  const { required, omitEmpty, keepEmpty } = getOption(field, json_field);
  if (field.fieldKind === 'list') return { type: `${type}[]`, row: as(keepEmpty ? 'keptList' : 'list') };
  if (omitEmpty) return { type: `${type} | undefined`, row: as('omitted') };
  // Without metadata it is an empty object.
  if (field.presence === FeatureSet_FieldPresence.IMPLICIT || type === 'JsonObject') return { type, row };
  if (required) return { type, row: as('required') };
  return { type: `${type} | undefined`, row: as('optional') };
}

/** The source of the field's value, or of each in its list. */
function valueSource(field: DescField): FieldSource {
  if (field.message !== undefined) return messageSource(field.message);
  if (field.enum !== undefined) {
    const row = `type: 'word', words: words.${wordsOf(field.enum)}`;
    return { type: `words.${field.enum.name} | Unknown`, row };
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
    default: {
      const row = isKept(field) ? "type: 'filledText'" : "type: 'text'";
      return { type: namedTexts[field.name] ?? 'string', row };
    }
  }
}

function messageSource(desc: DescMessage): FieldSource {
  if (desc.typeName === 'google.protobuf.Timestamp') return { type: 'Date', row: "type: 'moment'" };
  if (!isOurs(desc)) return { type: 'JsonObject', row: "type: 'metadata'" };
  const form = formInside(desc);
  return { type: form, row: `type: 'resource', fields: ${fieldsOf(form)}` };
}

// The words of the contract's enums: the one table for database, doors, clients and checkout.

/** The name of the table of an enum's words. */
const wordsOf = ({ name }: DescEnum) => `${lowerFirst(name)}Words`;

function wordsSource(contract: Contract): string {
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

/** The tables of fields that both protocols work from. */
function fieldsSource(contract: Contract): string {
  const head = fileHead([
    "import * as words from '../../src/contract/gen/words.ts';",
    "import type { Fields } from '../resource-fields.ts';",
  ]);
  const requestTables = requestsOf(contract).map(({ desc, fields }) =>
    tableSource(fieldsOf(requestType(desc)), fields, rowOf),
  );
  return head + [...resourceTables(contract), ...requestTables].join('\n');
}

function methodsSource(contract: Contract): string {
  const signatures = contract.routes.map((route) => ({ route, ...signatureOf(route) }));
  const types = signatures.map(({ route, name, typeParameter, parameters, returns }) => {
    // The client creates keys and asks for pages by itself.
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

/** The client's signature of a method. */
function signatureOf(route: HttpRoute) {
  const { method, pathFields, httpMethod, path, successStatus } = route;
  const { input } = method;
  const name = method.localName.replace(/^get/, 'retrieve');
  const given = givenFields(route);
  const isList = method.output.fields.some((field) => field.name === 'next_page_token');
  // A change must say what to change.
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

/** What the client returns: the answer, if it is a resource, or else its first field. */
function answerOf(route: HttpRoute): { form: string; type: string; field?: DescField } {
  const { output } = route.method;
  if (!isAnswer(output)) {
    const form = formAnswered(route);
    // The forms with a secret have `replayed` already.
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

/** The name of a request's type, which is what its method does. */
const requestType = ({ name }: DescMessage) => name.replace(/Request$/, '');

/** The fields that the caller gives besides the id. */
const givenFields = ({ method, pathFields }: HttpRoute) =>
  method.input.fields.filter((field) => !pathFields.includes(field) && field.name !== 'page_token');

/** True for a request with JSON of the caller's own, whose type the client keeps. */
const hasMetadata = ({ fields }: DescMessage) => fields.some(isStruct);

const isStruct = ({ message }: DescField) => message?.typeName === 'google.protobuf.Struct';

const requestsOf = ({ routes }: Contract) =>
  routes
    .map((route) => ({ desc: route.method.input, fields: givenFields(route) }))
    .filter(({ fields }) => fields.length > 0);

function requestsSource(contract: Contract): string {
  return (
    fileHead([
      "import type * as words from '../../src/contract/gen/words.ts';",
      "import type { EventType, JsonCompatible } from '../values.ts';",
    ]) +
    requestsOf(contract)
      .map(({ desc, fields }) => requestSource(contract, desc, fields))
      .join('\n')
  );
}

function requestSource(contract: Contract, desc: DescMessage, fields: readonly DescField[]): string {
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

/** A field's row, as client/request-fields.ts reads it. */
function rowOf(field: DescField): string {
  if (field.fieldKind === 'list') return sourceOf(field).row;
  const row = valueRowOf(field);
  return isRequiredField(field) ? `${row}, presence: 'required'` : row;
}

function valueRowOf(field: DescField): string {
  const { row } = valueSource(field);
  // Without presence, zero over gRPC means that the field was not given.
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
