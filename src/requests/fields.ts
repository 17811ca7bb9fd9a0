import type { Message } from '@bufbuild/protobuf';
import type { FieldViolation } from '../contract/error-catalogue.ts';

/** The fields of a binary request that this server does not know. Over JSON, the doors refuse them by name. */
export function unknownFieldViolations(request: Message): FieldViolation[] {
  return (request.$unknown ?? []).map(({ no }) => ({
    field: `field ${no}`,
    message: 'is not a field of this request: your contract is newer than this server, or damaged',
  }));
}
