import { hash } from 'node:crypto';
import { stringify as uuidOfBytes, parse as uuidToBytes } from 'uuid';
import { invalidField, type ServiceError } from './errors.ts';

/** First byte of every token, so that a later format can be distinguished. */
const version = 1;
const filterBytes = 6;

/**
 * Returns the token of the page after `cursor`. It contains a digest of the filter (everything that selects
 * rows except the page), so that the token is refused with another filter.
 */
export function pageTokenOf(filter: readonly unknown[], cursor: Uint8Array): string {
  return Buffer.concat([Buffer.of(version), digestOf(filter), cursor]).toString('base64url');
}

/**
 * Returns a token's cursor. Throws `invalid_body` for `page_token` unless it has this filter and one of these
 * sizes. It may be forged, so any value must be harmless. The filter binds it to its merchant and mode.
 */
export function cursorOf(token: string, filter: readonly unknown[], ...cursorBytes: number[]): Buffer {
  const bytes = Buffer.from(token, 'base64url');
  const isOne =
    cursorBytes.includes(bytes.length - 1 - filterBytes) &&
    bytes[0] === version &&
    bytes.toString('base64url') === token;
  if (!isOne) throw unknownToken();
  if (!bytes.subarray(1, 1 + filterBytes).equals(digestOf(filter))) {
    throw invalidField('page_token', 'was issued for other filters: send those of the page before');
  }
  return bytes.subarray(1 + filterBytes);
}

function unknownToken(): ServiceError {
  return invalidField('page_token', 'is not a token that this list returned');
}

const uuidBytes = 16;

/** The token of the page after the row with this UUID; empty if undefined. */
export function uuidPageTokenOf(filter: readonly unknown[], uuid: string | undefined): string {
  return uuid === undefined ? '' : pageTokenOf(filter, uuidToBytes(uuid));
}

/** The UUID after which a token's page begins; undefined if the token is empty. Throws like `cursorOf`. */
export function uuidCursorOf(token: string, filter: readonly unknown[]): string | undefined {
  if (token === '') return undefined;
  const bytes = cursorOf(token, filter, uuidBytes);
  try {
    return uuidOfBytes(bytes);
  } catch {
    throw unknownToken();
  }
}

function digestOf(filter: readonly unknown[]): Buffer {
  const text = JSON.stringify(filter, (_, value) => (typeof value === 'bigint' ? String(value) : value));
  return hash('sha256', text, 'buffer').subarray(0, filterBytes);
}

const defaultPageSize = 20;
const maxPageSize = 100;

/** Returns the violations of a `page_size`. 0 means the default. */
export function pageSizeViolations(pageSize: number): { field: string; message: string }[] {
  return pageSize >= 0 && pageSize <= maxPageSize
    ? []
    : [{ field: 'page_size', message: `must be an integer from 1 to ${maxPageSize}` }];
}

export function pageSizeOf(pageSize: number): number {
  return pageSize === 0 ? defaultPageSize : pageSize;
}
