// protobuf-es turns a google.protobuf.Struct into JSON as it reads it: a field that it does not know is gone, and a value
// of no kind is null. Neither can be seen afterwards, so their bytes are looked at before.

import type { DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { StructSchema } from '@bufbuild/protobuf/wkt';

/** A message, by what its fields hold: another one, or anything else. */
interface Shape {
  fields: Record<number, Shape | 'scalar'>;
  /** The fields of which at least one must be there. */
  required: readonly number[];
}

const value: Shape = { fields: {}, required: [1, 2, 3, 4, 5, 6] };
const entry: Shape = { fields: { 1: 'scalar', 2: value }, required: [2] };
const struct: Shape = { fields: { 1: entry }, required: [] };
const list: Shape = { fields: { 1: value }, required: [] };
Object.assign(value.fields, { 1: 'scalar', 2: 'scalar', 3: 'scalar', 4: 'scalar', 5: struct, 6: list });

/** The same depth limit as protobuf-es. */
const maxDepth = 100;

/** Throws an Error that describes what is wrong with the bytes of a message. */
export type StructCheck = (bytes: Uint8Array) => void;

/**
 * Creates a check of the Structs among a message's own fields, which throws an Error if JSON cannot hold all of one;
 * undefined if the message has none.
 */
export function createStructCheck({ fields }: DescMessage): StructCheck | undefined {
  const numbers = fields
    .filter(({ message }) => message?.typeName === StructSchema.typeName)
    .map(({ number }) => number);
  if (numbers.length === 0) return undefined;
  return (bytes) => {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [number, wireType] = reader.tag();
      if (!numbers.includes(number)) reader.skip(wireType, number);
      else checkNested(reader, number, wireType, struct, 1);
    }
  };
}

function checkNested(
  reader: BinaryReader,
  number: number,
  wireType: WireType,
  shape: Shape,
  depth: number,
): void {
  if (wireType !== WireType.LengthDelimited) throw new Error(`field ${number} is no message`);
  if (depth > maxDepth) throw new Error(`messages are nested more than ${maxDepth} deep`);
  const length = reader.uint32();
  const end = reader.pos + length;
  let isComplete = shape.required.length === 0;
  while (reader.pos < end) {
    const [inner, innerType] = reader.tag();
    const held = shape.fields[inner];
    if (held === undefined) throw new Error(`field ${inner} is not known here`);
    isComplete ||= shape.required.includes(inner);
    if (held === 'scalar') reader.skip(innerType, inner);
    else checkNested(reader, inner, innerType, held, depth + 1);
  }
  if (reader.pos > end) throw new Error('a message is longer than it says');
  if (!isComplete) throw new Error(`none of the fields ${shape.required.join(', ')} is there`);
}
