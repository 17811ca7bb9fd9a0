// The examples of the OpenAPI document, from those of the contract's fields.

import { type DescField, type DescMessage, getOption } from '@bufbuild/protobuf';
import { json_field, json_method } from '../gen/payments/v1/json_pb.ts';
import type { HttpRoute } from '../http-routes.ts';
import { enumWords, isRequiredField } from '../json/field-rules.ts';
import { type JsonSchema, schemaOptionsOf } from './schemas.ts';

/** Shows required fields and those with a default. Others, such as another payout wallet, need thought before copying. */
export function requestExample({ method, pathFields }: HttpRoute): JsonSchema {
  return Object.fromEntries(
    method.input.fields
      .filter((field) => !pathFields.includes(field))
      .map((field) => [field, schemaOptionsOf(field)] as const)
      .filter(([field, keywords]) => isRequiredField(field) || 'default' in keywords)
      .map(([field, keywords]) => [field.name, keywords.examples?.[0]]),
  );
}

export function answerExample({ method, successStatus }: HttpRoute): JsonSchema {
  const { example: replaced, answersSecret } = getOption(method, json_method);
  const isShown = (field: DescField) => {
    const { afterCreation, secret } = getOption(field, json_field);
    return (successStatus !== 201 || !afterCreation) && (answersSecret || !secret);
  };
  return withoutNulls({
    ...exampleOfMessage(method.output, isShown),
    ...(replaced !== '' && JSON.parse(replaced)),
  });
}

const withoutNulls = (example: JsonSchema): JsonSchema =>
  Object.fromEntries(Object.entries(example).filter(([, value]) => value !== null));

const isAlwaysThere = (field: DescField) => {
  const { omitEmpty, secret } = getOption(field, json_field);
  return !omitEmpty && !secret;
};

/** The fields that have an example, as an answer shows them. Messages inside it do not have the fields it may leave out. */
function exampleOfMessage(
  desc: DescMessage,
  isShown: (field: DescField) => boolean = () => true,
): JsonSchema {
  const exampleValueOf = (field: DescField): unknown => {
    const [example] = schemaOptionsOf(field).examples ?? [];
    const { message } = field;
    if (message === undefined || message.typeName.startsWith('google.protobuf.')) return example;
    // A message is shown if the contract says so: an event is about one of several.
    if (field.fieldKind === 'message' && example === undefined) return undefined;
    const inside = {
      ...exampleOfMessage(message, isAlwaysThere),
      ...(example as JsonSchema | undefined),
    };
    if (field.fieldKind !== 'list') return inside;
    return getOption(field, json_field).keepEmpty ? [inside] : undefined;
  };
  return Object.fromEntries(
    desc.fields
      .filter(isShown)
      .map((field) => [field.name, exampleValueOf(field)] as const)
      .filter(([, value]) => value !== undefined),
  );
}

/** The example of an event of that type: about the one resource that the type is named after. */
export function exampleOfEvent(message: DescMessage, type: string): JsonSchema {
  const kinds = message.fields.find(({ name }) => name === 'data')?.message?.fields;
  const [resource = '', word = ''] = type.split('.');
  const field = kinds?.find(({ name }) => name === resource);
  if (field?.message === undefined) throw new Error(`no field of the event's data is called ${resource}`);
  const status = field.message.fields.find(({ name }) => name === 'status');
  const words = status?.fieldKind === 'enum' ? enumWords(status.enum).map((value) => value.word) : [];
  const example = exampleOfMessage(field.message, isAlwaysThere);
  const ended = words.includes(word) ? { status: word, ...endOf(field.message, word) } : {};
  const data = { [resource]: { ...example, ...ended } };
  // Only the events of an intent are counted.
  const counted = resource === 'payment_intent' ? {} : { sequence: null };
  return withoutNulls({ ...exampleOfMessage(message), type, data, ...counted });
}

/** The moment at which a resource got a status, if it has a field for it. */
function endOf({ fields }: DescMessage, word: string): JsonSchema {
  const name = `${word}_at`;
  return fields.some((field) => field.name === name) ? { [name]: '2026-11-21T12:04:02.000Z' } : {};
}
