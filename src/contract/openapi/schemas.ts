// The schemas of the OpenAPI document, from the messages of the contract.

import type {
  DescEnum,
  DescEnumValue,
  DescField,
  DescMessage,
  DescMethod,
  DescService,
} from '@bufbuild/protobuf';
import { getOption, ScalarType } from '@bufbuild/protobuf';
import { chains, networks } from '../chains.ts';
import { json_field } from '../gen/payments/v1/json_pb.ts';
import {
  enumWords,
  integerRangeOf,
  isRequiredField,
  mayBeAbsent,
  refusesEmptyList,
  schemaOf,
} from '../json/field-rules.ts';

export type JsonSchema = { [keyword: string]: unknown };
export type Direction = 'request' | 'response';

/** The state of a document that is being created. */
export interface SchemaContext {
  /** Schemas of messages by their names. */
  schemas: Map<string, { desc: DescMessage; direction: Direction; schema: JsonSchema }>;
  /** The comment above a definition in the contract; empty if there is none. */
  commentOf: (desc: DescField | DescMessage | DescEnum | DescEnumValue | DescMethod | DescService) => string;
}

/** Returns a reference to the schema of a message. Creates the schema when it is first needed. */
export function refTo(
  desc: DescMessage,
  direction: Direction,
  context: SchemaContext,
  without: readonly DescField[] = [],
): JsonSchema {
  const { schemas, commentOf } = context;
  const known = schemas.get(desc.name);
  if (known !== undefined && known.desc !== desc) {
    throw new Error(`${desc.typeName} and ${known.desc.typeName} have one name in the document: rename one`);
  }
  if (known !== undefined && known.direction !== direction) {
    throw new Error(
      `${desc.typeName} is in requests and in answers, of which only the answers may grow: use two messages`,
    );
  }
  if (known === undefined) {
    // Stored before it is filled, because a message can be recursive.
    const schema: JsonSchema = {};
    schemas.set(desc.name, { desc, direction, schema });
    const isRequired = (field: DescField) =>
      // Creation returns the same message without the fields marked `after_creation`.
      (isRequiredField(field) && !getOption(field, json_field).afterCreation) ||
      (direction === 'response' && !mayBeAbsent(field));
    const fields = desc.fields.filter((field) => !without.includes(field));
    Object.assign(schema, {
      type: 'object',
      description: commentOf(desc),
      properties: Object.fromEntries(
        fields.map((field) => [field.name, propertyOf(field, direction, context)]),
      ),
      required: fields.filter(isRequired).map(({ name }) => name),
      // A request with an unknown field is refused. An answer with a new field must stay valid.
      ...(direction === 'request' ? { additionalProperties: false } : {}),
    });
  }
  return { $ref: `#/components/schemas/${desc.name}` };
}

function propertyOf(field: DescField, direction: Direction, context: SchemaContext): JsonSchema {
  const type = typeOf(field, direction, context);
  const options = schemaOptionsOf(field);
  const taken = options.enum as readonly string[] | undefined;
  const words =
    field.fieldKind === 'enum'
      ? enumWords(field.enum)
          .filter(({ word }) => taken?.includes(word) ?? true)
          .map(({ word, value }) => `- \`${word}\`: ${context.commentOf(value)}`)
      : [];
  const listed = words.length > 0 ? [words.join('\n')] : [];
  const description = [context.commentOf(field), ...listed].join('\n\n');
  const schema: JsonSchema = { ...type, description, ...options };
  return direction === 'response' ? openToGrowth(schema) : withoutDefault(schema, isRequiredField(field));
}

/**
 * The schema of an answer's field. Its known values are listed, but later values are valid too, so that
 * neither validators nor generated types refuse them. `x-extensible-enum` is from Zalando's API guidelines.
 */
function openToGrowth({ enum: words, const: only, ...schema }: JsonSchema): JsonSchema {
  const known = words ?? (only === undefined ? undefined : [only]);
  return known === undefined ? schema : { ...schema, 'x-extensible-enum': known };
}

/**
 * The schema of a request's field. The default is in the description and under our own keyword. Type
 * generators such as openapi-typescript make a field with JSON Schema's `default` mandatory, because they do
 * not know that the schema is only for requests.
 */
function withoutDefault({ default: value, ...schema }: JsonSchema, isRequired: boolean): JsonSchema {
  const withDefault = value === undefined ? schema : { ...schema, 'x-default': value };
  if (isRequired) return withDefault;
  // `null` means absent.
  return {
    ...withDefault,
    type: [schema.type, 'null'],
    ...('enum' in schema ? { enum: [...(schema.enum as unknown[]), null] } : {}),
  };
}

export function typeOf(field: DescField, direction: Direction, context: SchemaContext): JsonSchema {
  const name = `${field.parent.typeName}.${field.name}`;
  if (field.fieldKind === 'map') throw new Error(`${name}: teach src/contract/openapi/schemas.ts about maps`);
  const type = valueTypeOf(field, direction, context);
  if (field.fieldKind !== 'list') return type;
  const isFilled = direction === 'request' && refusesEmptyList(field);
  return { type: 'array', items: type, ...(isFilled && { minItems: 1 }) };
}

/** The type of the field's value, or of each in its list. */
function valueTypeOf(
  { message, enum: words, scalar = ScalarType.BYTES, ...field }: DescField,
  direction: Direction,
  context: SchemaContext,
): JsonSchema {
  if (words !== undefined) return { type: 'string', enum: enumWords(words).map(({ word }) => word) };
  if (message?.typeName === 'google.protobuf.Struct') return { type: 'object', additionalProperties: true };
  if (message?.typeName === 'google.protobuf.Timestamp') return { type: 'string', format: 'date-time' };
  if (message !== undefined) return refTo(message, direction, context);
  if (scalar === ScalarType.STRING) return { type: 'string' };
  if (scalar === ScalarType.BOOL) return { type: 'boolean' };
  // Without it, generated clients for Java, C#, Kotlin and Rust have 32 bits: at most 2,147 USDC.
  if (scalar === ScalarType.INT64) return { type: 'integer', format: 'int64' };
  if (integerRangeOf(scalar) !== undefined) return { type: 'integer' };
  throw new Error(
    `${field.parent.typeName}.${field.name}: the public JSON has no form for ${ScalarType[scalar]}`,
  );
}

/** What the contract writes in place of the list of all chains, or of all tokens. */
const lists: Readonly<Record<string, unknown>> = {
  chain_ids: chains.map(({ chainId }) => chainId),
  tokens: [...new Set(networks.map(({ tokenSymbol }) => tokenSymbol))],
};

/** The schema keywords that the contract adds to a field. */
export function schemaOptionsOf(field: DescField): JsonSchema & { examples?: unknown[] } {
  const { schema } = getOption(field, json_field);
  if (schema === '') throw new Error(`${field.parent.typeName}.${field.name} has no (json_field).schema`);
  const { enum: values, ...options }: JsonSchema = schemaOf(field);
  return { ...options, ...(values !== undefined && { enum: lists[values as string] ?? values }) };
}
