import { type DescMethod, getOption } from '@bufbuild/protobuf';
import { Access, access } from './gen/payments/v1/access_pb.ts';

export { Access };

/** Returns the access that a console session needs to call the method. The default is an operator's. */
export function accessOf(method: DescMethod): Access {
  const given = getOption(method, access);
  return given === Access.UNSPECIFIED ? Access.OPERATE : given;
}
