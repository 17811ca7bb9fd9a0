// What the contract says of the public JSON of its fields and enums: which are required, which may be absent, their
// words and ranges.

import type { DescEnum, DescEnumValue, DescField, DescMessage } from '@bufbuild/protobuf';
import { getOption, hasOption, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { json_field, json_word } from '../gen/payments/v1/json_pb.ts';

/** True if the field is required in a request, or always in an answer but that of creation. */
export function isRequiredField(field: DescField): boolean {
  return getOption(field, json_field).required;
}

/** True if a request has a required field besides those in `without`. */
export function hasRequiredField(desc: DescMessage, without: readonly DescField[]): boolean {
  return desc.fields.some((field) => isRequiredField(field) && !without.includes(field));
}

/** True if an answer leaves the field out where there is nothing to say. */
export function mayBeAbsent(field: DescField): boolean {
  const { omitEmpty, keepEmpty, secret } = getOption(field, json_field);
  if (field.fieldKind === 'list') return !keepEmpty;
  return omitEmpty || secret || field.presence !== FeatureSet_FieldPresence.IMPLICIT;
}

/** True if a request may not have the list empty. */
export function refusesEmptyList(field: DescField): boolean {
  return getOption(field, json_field).refuseEmpty;
}

/** What the contract's JSON schema of the field says. */
export function schemaOf(field: DescField): { examples?: unknown[]; maximum?: number } {
  return JSON.parse(getOption(field, json_field).schema || '{}');
}

/** How to write the field in JSON, for an error message: `, such as ["*"]`. Empty if the contract has no example. */
export function suchAs(field: DescField): string {
  const [example] = schemaOf(field).examples ?? [];
  return example === undefined ? '' : `, such as ${JSON.stringify(example)}`;
}

/** The words of an enum in the public JSON, in the contract's order. Zero, "unspecified", has none: JSON omits the field. */
export function enumWords(desc: DescEnum): { word: string; value: DescEnumValue }[] {
  return desc.values
    .filter(({ number }) => number !== 0)
    .map((value) => ({
      value,
      word: hasOption(value, json_word)
        ? getOption(value, json_word)
        : value.name.slice(desc.sharedPrefix?.length ?? 0).toLowerCase(),
    }));
}

export interface IntegerRange {
  min: bigint;
  max: bigint;
}

const integerRanges: Partial<Record<ScalarType, IntegerRange>> = {
  [ScalarType.INT32]: { min: -(2n ** 31n), max: 2n ** 31n - 1n },
  [ScalarType.INT64]: { min: -(2n ** 63n), max: 2n ** 63n - 1n },
};

/** The range of an integer scalar, or undefined if the scalar is not an integer that the contract has. */
export const integerRangeOf = (scalar: ScalarType): IntegerRange | undefined => integerRanges[scalar];
