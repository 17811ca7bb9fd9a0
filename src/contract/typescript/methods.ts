// The client's methods: their types with the contract's comments, and the table that both protocols work from.

import type { DescField } from '@bufbuild/protobuf';
import { type HttpRoute, takesIdempotencyKey } from '../http-routes.ts';
import { isRequiredField } from '../json/field-rules.ts';
import { givenFields, hasMetadata, requestFieldsOf, requestTables, requestType } from './requests.ts';
import { fieldsOf, formAnswered, formInside, resourceTables, sourceOf } from './resources.ts';
import { type Contract, docComment, fileHead, isAnswer } from './text.ts';

/** The tables of fields that both protocols work from. */
export function fieldsSource(contract: Contract): string {
  const head = fileHead([
    "import * as words from '../../src/contract/gen/words.ts';",
    "import type { Fields } from '../resource-fields.ts';",
  ]);
  return head + [...resourceTables(contract), ...requestTables(contract)].join('\n');
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
      ? [`request: fields.${requestFieldsOf(input)}`, `isRequestOptional: ${isOptional}`]
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
