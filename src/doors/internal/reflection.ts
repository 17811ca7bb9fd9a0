// gRPC server reflection (v1 and v1alpha) over Connect, which has none for Node. Tools need no proto files.

import { setImmediate } from 'node:timers/promises';
import type { DescExtension, DescFile, DescService, MessageInitShape, Registry } from '@bufbuild/protobuf';
import { createRegistry, toBinary } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { Code, type ConnectRouter } from '@connectrpc/connect';
import {
  type ServerReflectionRequest,
  type ServerReflectionResponseSchema,
  ServerReflection as ServerReflectionV1,
} from '../../contract/gen/grpc/reflection/v1/reflection_pb.ts';
import { ServerReflection as ServerReflectionV1Alpha } from '../../contract/gen/grpc/reflection/v1alpha/reflection_pb.ts';
import { ServiceError } from '../../requests/errors.ts';

/** Most messages of one stream. Each has an answer of up to 32 KB, and none needs a key. */
const maxReflectionMessages = 1_000;
const tooManyMessages = `A reflection stream carries at most ${maxReflectionMessages} messages. Open another one.`;

/** Registers reflection of the services, of itself, and of unreferenced files, such as error details. */
export function registerReflection(
  router: ConnectRouter,
  services: readonly DescService[],
  otherFiles: readonly DescFile[],
): void {
  const all = [...services, ServerReflectionV1, ServerReflectionV1Alpha];
  const answer = createAnswers(all, otherFiles);
  let turn = Promise.resolve();
  /**
   * Resolves in a turn of the event loop in which no other message is answered. One read may bring thousands
   * on each stream, and other calls are served in between.
   */
  const nextTurn = () => {
    turn = turn.then(() => setImmediate());
    return turn;
  };
  for (const service of [ServerReflectionV1, ServerReflectionV1Alpha]) {
    router.service(service, {
      async *serverReflectionInfo(requests: AsyncIterable<ServerReflectionRequest>) {
        let messages = 0;
        for await (const request of requests) {
          if (++messages > maxReflectionMessages) {
            throw new ServiceError('rate_limited', { message: tooManyMessages });
          }
          await nextTurn();
          yield answer(request);
        }
      },
      // The two services' types differ; their fields do not.
    } as never);
  }
}

type Answer = MessageInitShape<typeof ServerReflectionResponseSchema>;

/** The two protocol versions differ only in package name, so the same fields serve both. */
function createAnswers(services: readonly DescService[], otherFiles: readonly DescFile[]) {
  const files = new Map<string, DescFile>();
  for (const file of [...services.map((service) => service.file), ...otherFiles]) collect(file, files);
  const registry = createRegistry(...files.values());
  const fileNames = fileNamesBySymbol(registry);
  const serialize = createSerializer();
  const names = services.map(({ typeName }) => ({ name: typeName }));
  const extensions = [...registry].filter((desc): desc is DescExtension => desc.kind === 'extension');

  return ({ host, messageRequest }: ServerReflectionRequest): Answer => {
    const respond = (messageResponse: Answer['messageResponse']): Answer => ({
      validHost: host,
      originalRequest: { host, messageRequest },
      // The initialisers of a oneof: the compiler cannot follow the union through the outer message.
      messageResponse: messageResponse as never,
    });
    const refuse = (errorCode: Code, errorMessage: string) =>
      respond({ case: 'errorResponse', value: { errorCode, errorMessage } });
    const notFound = (what: string) => refuse(Code.NotFound, `${what} not found`);
    const withFile = (file: DescFile | undefined, what: string) =>
      file === undefined
        ? notFound(what)
        : respond({ case: 'fileDescriptorResponse', value: { fileDescriptorProto: serialize(file) } });

    switch (messageRequest.case) {
      case 'listServices':
        return respond({ case: 'listServicesResponse', value: { service: names } });
      case 'fileByFilename':
        return withFile(files.get(messageRequest.value.replace(/\.proto$/, '')), 'file');
      case 'fileContainingSymbol':
        return withFile(files.get(fileNames.get(messageRequest.value) ?? ''), 'symbol');
      case 'fileContainingExtension': {
        const { containingType, extensionNumber } = messageRequest.value;
        const extension = extensions.find(
          (desc) => desc.extendee.typeName === containingType && desc.number === extensionNumber,
        );
        return withFile(extension && files.get(extension.file.name), 'extension');
      }
      case 'allExtensionNumbersOfType': {
        const typeName = messageRequest.value;
        if (registry.getMessage(typeName) === undefined) return notFound('type');
        const own = extensions.filter((desc) => desc.extendee.typeName === typeName);
        const value = { baseTypeName: typeName, extensionNumber: own.map((desc) => desc.number) };
        return respond({ case: 'allExtensionNumbersResponse', value });
      }
      default:
        return refuse(Code.InvalidArgument, 'the request asks for nothing');
    }
  };
}

function collect(file: DescFile, files: Map<string, DescFile>): void {
  if (files.has(file.name)) return;
  for (const dependency of file.dependencies) collect(dependency, files);
  files.set(file.name, file);
}

/** The names of the files that declare messages, enums, services, extensions, or their fields and methods. */
function fileNamesBySymbol(registry: Registry): Map<string, string> {
  const declared = [...registry].flatMap((desc) => {
    const ofMessage = desc.kind === 'message' ? [...desc.fields, ...desc.oneofs] : [];
    const members = desc.kind === 'service' ? desc.methods : ofMessage;
    const symbols = [desc.typeName, ...members.map(({ name }) => `${desc.typeName}.${name}`)];
    return symbols.map((symbol) => [symbol, desc.file.name] as const);
  });
  return new Map(declared);
}

/** Returns a function that serializes a file after all its imports. Each file is serialized once. */
function createSerializer(): (file: DescFile) => Uint8Array[] {
  const serialized = new Map<DescFile, Uint8Array>();
  const bytesOf = (file: DescFile) => {
    const bytes = serialized.get(file) ?? toBinary(FileDescriptorProtoSchema, file.proto);
    serialized.set(file, bytes);
    return bytes;
  };
  return (file) => {
    const files = new Map<string, DescFile>();
    collect(file, files);
    return [...files.values()].map(bytesOf);
  };
}
