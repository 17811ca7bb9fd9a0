// The contract's rules for the public JSON of fields and enums: which fields are required, which may be
// absent, and their words and ranges.

import type { DescEnum, DescEnumValue, DescField, DescMessage } from '@bufbuild/protobuf';
import { getOption, hasOption, ScalarType } from '@bufbuild/protobuf';
import { FeatureSet_FieldPresence } from '@bufbuild/protobuf/wkt';
import { json_field, json_word } from '../gen/payments/v1/json_pb.ts';

/** True if a request must have the field, and an answer always does, except perhaps that of creation. */
export function isRequiredField(field: DescField): boolean {
  return getOption(field, json_field).required;
}

/** True if a request has a required field other than those in `without`. */
export function hasRequiredField(desc: DescMessage, without: readonly DescField[]): boolean {
  return desc.fields.some((field) => isRequiredField(field) && !without.includes(field));
}

/** True if an answer may leave the field out. */
export function mayBeAbsent(field: DescField): boolean {
  const { omitEmpty, keepEmpty, secret } = getOption(field, json_field);
  if (field.fieldKind === 'list') return !keepEmpty;
  return omitEmpty || secret || field.presence !== FeatureSet_FieldPresence.IMPLICIT;
}

/** True if a request must not have an empty list in this field. */
export function refusesEmptyList(field: DescField): boolean {
  return getOption(field, json_field).refuseEmpty;
}

/** Returns the JSON schema keywords that the contract gives the field. */
export function schemaOf(field: DescField): { examples?: unknown[]; maximum?: number; enum?: unknown } {
  return JSON.parse(getOption(field, json_field).schema || '{}');
}

/** The words of an enum in the public JSON, in the contract's order. Zero, "unspecified", has none. */
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

/** Returns the range of an integer scalar, or undefined if the public JSON does not support the scalar. */
export const integerRangeOf = (scalar: ScalarType): IntegerRange | undefined => integerRanges[scalar];
