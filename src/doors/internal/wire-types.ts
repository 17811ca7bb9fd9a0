// protobuf-es reads a field by its number, whatever its wire type. Every other implementation treats a field with the
// wrong wire type as unknown. Without this check, bytes that they refuse could become an amount here.

import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

interface KnownField {
  wireTypes: readonly WireType[];
  /** For a field whose bytes are a message. */
  message?: () => KnownFields;
}

interface KnownFields {
  fields: Map<number, KnownField>;
  /** True for a message that protobuf-es turns into JSON, and for a map entry. Both lose unknown fields. */
  isClosed: boolean;
  /** Fields of which at least one must be present. */
  required: readonly number[];
}

/** Throws an Error that describes what is wrong with the bytes of a message. */
export type WireTypeCheck = (bytes: Uint8Array) => void;

/** The same depth limit as protobuf-es. */
const maxDepth = 100;

/**
 * Creates a check of the wire types of a message and all messages in it. The check throws an Error if a known field has
 * the wrong wire type, if the bytes are not a message, or if a Struct holds something that JSON cannot: unknown fields
 * or a value of no kind. Other unknown fields are left to the reader.
 */
export function createWireTypeCheck(desc: DescMessage): WireTypeCheck {
  const known = fieldsOf(desc);
  return (bytes) => {
    const reader = new BinaryReader(bytes);
    checkFields(reader, reader.len, known, 1);
  };
}

function checkFields(reader: BinaryReader, end: number, known: KnownFields, depth: number): void {
  if (depth > maxDepth) throw new Error(`messages are nested more than ${maxDepth} deep`);
  let isComplete = known.required.length === 0;
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    const field = known.fields.get(number);
    if (field === undefined && known.isClosed) throw new Error(`field ${number} is not known here`);
    isComplete ||= known.required.includes(number);
    if (field !== undefined && !field.wireTypes.includes(wireType)) {
      throw new Error(`field ${number} has wire type ${wireType}, not ${field.wireTypes.join(' or ')}`);
    }
    if (field?.message !== undefined && wireType === WireType.LengthDelimited) {
      const length = reader.uint32();
      checkFields(reader, reader.pos + length, field.message(), depth + 1);
    } else {
      reader.skip(wireType, number);
    }
  }
  if (reader.pos > end) throw new Error('a message is longer than it says');
  if (!isComplete) throw new Error(`none of the fields ${known.required.join(', ')} is there`);
}

const compiled = new WeakMap<DescMessage, KnownFields>();

/** Messages that protobuf-es turns into JSON as it reads. */
const jsonMessages = ['google.protobuf.Struct', 'google.protobuf.Value', 'google.protobuf.ListValue'];

function fieldsOf(desc: DescMessage): KnownFields {
  const before = compiled.get(desc);
  if (before !== undefined) return before;
  const known: KnownFields = {
    fields: new Map(),
    isClosed: jsonMessages.includes(desc.typeName),
    required: desc.typeName === 'google.protobuf.Value' ? desc.fields.map(({ number }) => number) : [],
  };
  // Stored before it is filled, because messages can be recursive.
  compiled.set(desc, known);
  for (const field of desc.fields) known.fields.set(field.number, knownField(field));
  return known;
}

function knownField(field: DescField): KnownField {
  const delimited = [WireType.LengthDelimited];
  switch (field.fieldKind) {
    case 'scalar':
      return { wireTypes: [wireTypeOf(field.scalar)] };
    case 'enum':
      return { wireTypes: [WireType.Varint] };
    case 'message':
      return messageField(field.message, field.delimitedEncoding);
    case 'list':
      if (field.listKind === 'message') return messageField(field.message, field.delimitedEncoding);
      // Unpacked or packed: readers accept both.
      return {
        wireTypes: [field.listKind === 'enum' ? WireType.Varint : wireTypeOf(field.scalar), ...delimited],
      };
    case 'map': {
      const value: KnownField =
        field.mapKind === 'message'
          ? messageField(field.message, false)
          : { wireTypes: [field.mapKind === 'enum' ? WireType.Varint : wireTypeOf(field.scalar)] };
      const entry: KnownFields = {
        fields: new Map([
          [1, { wireTypes: [wireTypeOf(field.mapKey)] }],
          [2, value],
        ]),
        isClosed: true,
        // A missing value in an entry means an empty value, but google.protobuf.Value must not be empty.
        required: field.parent.typeName === 'google.protobuf.Struct' ? [2] : [],
      };
      return { wireTypes: delimited, message: () => entry };
    }
  }
}

function messageField(desc: DescMessage, isGroup: boolean): KnownField {
  return isGroup
    ? { wireTypes: [WireType.StartGroup] }
    : { wireTypes: [WireType.LengthDelimited], message: () => fieldsOf(desc) };
}

function wireTypeOf(scalar: ScalarType): WireType {
  switch (scalar) {
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return WireType.Bit64;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return WireType.Bit32;
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return WireType.LengthDelimited;
    default:
      return WireType.Varint;
  }
}
