import { type DescMethod, getOption } from '@bufbuild/protobuf';
import { Access, access } from './gen/payments/v1/access_pb.ts';

export { Access };

/** What a session of the console needs to call the method: an operator's, if the method does not say. */
export function accessOf(method: DescMethod): Access {
  const given = getOption(method, access);
  return given === Access.UNSPECIFIED ? Access.OPERATE : given;
}
