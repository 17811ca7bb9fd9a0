// Reads protobuf's own JSON mapping, as Connect and gRPC with JSON send it, as strictly as the public JSON.
// protobuf-es has no strict mode, so it reads what the strict decoder has read.

import { type DescMessage, type MessageShape, toJsonString } from '@bufbuild/protobuf';
import { createStandardJsonDecoder } from '../../contract/json/json-codec.ts';
import { refuseInvalid } from '../../requests/errors.ts';
import { parseJsonBody } from '../public/json-body.ts';

/**
 * Creates the decoder of a message's JSON, for use by Connect's serialization as a TextDecoder. It returns
 * JSON text that protobuf-es reads without rounding, or throws a refusal that lists every violation of shape.
 */
export function createProtoJsonDecoder<Desc extends DescMessage>(desc: Desc) {
  const decode = createStandardJsonDecoder(desc);
  return {
    decode(bytes: Uint8Array = new Uint8Array()): string {
      const { message, violations } = decode(parseJsonBody(bytes));
      refuseInvalid(violations);
      return toJsonString(desc, message as MessageShape<Desc>);
    },
  };
}
