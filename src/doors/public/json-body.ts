import { IJsonSyntaxError, type IJsonValue, NestingError, parseIJson } from '../../contract/json/i-json.ts';
import { ServiceError } from '../../requests/errors.ts';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses the JSON of a request strictly. Throws `invalid_body` with the problem and its position. */
export function parseJsonBody(body: Uint8Array): IJsonValue {
  let text: string;
  try {
    text = utf8.decode(body);
  } catch (cause) {
    throw new ServiceError('invalid_body', { message: 'The request body is not UTF-8 text.', cause });
  }
  try {
    return parseIJson(text);
  } catch (cause) {
    if (cause instanceof NestingError) {
      throw new ServiceError('invalid_body', { message: `The request body is ${cause.message}.`, cause });
    }
    if (!(cause instanceof IJsonSyntaxError)) throw cause;
    throw new ServiceError('invalid_body', {
      message: `The request body is not valid JSON. ${cause.message}.`,
      cause,
    });
  }
}
