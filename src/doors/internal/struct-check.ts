// protobuf-es reads a google.protobuf.Struct as JSON: unknown fields are dropped, and a value of no kind is
// null. Neither can be detected later, so the bytes are checked first. It also reads fields by number,
// whatever the wire type. Such bytes are refused, or it would read other Structs than were checked.

import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { StructSchema } from '@bufbuild/protobuf/wkt';

/** A message, by its fields: each holds another message that is checked, or anything of a wire type. */
interface Shape {
  fields: Record<number, Shape | WireType>;
  /** True if protobuf-es would drop its unknown fields. */
  isClosed: boolean;
  /** At least one of these fields must be present. */
  required: readonly number[];
}

const scalars = { 1: WireType.Varint, 2: WireType.Bit64, 3: WireType.LengthDelimited, 4: WireType.Varint };
const value: Shape = { fields: scalars, isClosed: true, required: [1, 2, 3, 4, 5, 6] };
const entry: Shape = { fields: { 1: WireType.LengthDelimited, 2: value }, isClosed: true, required: [2] };
const struct: Shape = { fields: { 1: entry }, isClosed: true, required: [] };
const list: Shape = { fields: { 1: value }, isClosed: true, required: [] };
value.fields[5] = struct;
value.fields[6] = list;

/** The same depth limit as protobuf-es. */
const maxDepth = 100;

/** Throws an Error that describes what is wrong with the bytes of a message. */
export type StructCheck = (bytes: Uint8Array) => void;

/** Creates the check of a message that has a Struct among its own fields; undefined if it has none. */
export function createStructCheck({ fields }: DescMessage): StructCheck | undefined {
  if (!fields.some(isStruct)) return undefined;
  const own = Object.fromEntries(
    fields.map((field) => [field.number, isStruct(field) ? struct : wireTypeOf(field)]),
  );
  const shape: Shape = { fields: own, isClosed: false, required: [] };
  return (bytes) => {
    const reader = new BinaryReader(bytes);
    checkFields(reader, reader.len, shape, 1);
  };
}

const isStruct = ({ message }: DescField) => message?.typeName === StructSchema.typeName;

/** The contract's messages with a Struct have no list and no fixed-size scalar: both would be refused. */
function wireTypeOf(field: DescField): WireType {
  return field.scalar === ScalarType.STRING || field.message !== undefined
    ? WireType.LengthDelimited
    : WireType.Varint;
}

function checkFields(reader: BinaryReader, end: number, shape: Shape, depth: number): void {
  if (depth > maxDepth) throw new Error(`messages are nested more than ${maxDepth} deep`);
  let isComplete = shape.required.length === 0;
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    const held = shape.fields[number];
    if (held === undefined && shape.isClosed) throw new Error(`field ${number} is not known here`);
    isComplete ||= shape.required.includes(number);
    const wanted = typeof held === 'object' ? WireType.LengthDelimited : (held ?? wireType);
    if (wireType !== wanted) throw new Error(`field ${number} has wire type ${wireType}, not ${wanted}`);
    if (typeof held !== 'object') reader.skip(wireType, number);
    else {
      const length = reader.uint32();
      checkFields(reader, reader.pos + length, held, depth + 1);
    }
  }
  if (reader.pos > end) throw new Error('a message is longer than it says');
  if (!isComplete) throw new Error(`none of the fields ${shape.required.join(', ')} is there`);
}
