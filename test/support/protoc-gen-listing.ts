// A plugin of `buf generate` that records its input, used if the real plugins cannot be reached.

import { createHash } from 'node:crypto';
import { readFileSync, writeSync } from 'node:fs';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  CodeGeneratorRequestSchema,
  CodeGeneratorResponse_Feature,
  CodeGeneratorResponseSchema,
} from '@bufbuild/protobuf/wkt';

const request = fromBinary(CodeGeneratorRequestSchema, readFileSync(0));
const listing = {
  files: request.fileToGenerate,
  goPackages: Object.fromEntries(request.protoFile.map(({ name, options }) => [name, options?.goPackage])),
};
const response = create(CodeGeneratorResponseSchema, {
  supportedFeatures: BigInt(CodeGeneratorResponse_Feature.PROTO3_OPTIONAL),
  // One file for each input of the template.
  file: [
    {
      name: `listings/${createHash('sha256').update(listing.files.join()).digest('hex')}.json`,
      content: JSON.stringify(listing),
    },
  ],
});
writeSync(1, toBinary(CodeGeneratorResponseSchema, response));
