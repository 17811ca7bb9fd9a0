// Columns that several tables have, and their types that MikroORM does not have.

import type { JsonObject } from '@bufbuild/protobuf';
import { p, Type } from '@mikro-orm/core';
import { checksum } from 'ox/Address';
import type { WalletAddress } from '../../contract/wallet-address.ts';
import { modeNames } from '../../contract/words.ts';

/** The type has the prefix of its table, because `mode` is an aggregate function of PostgreSQL. */
export const modeColumn = () => p.enum(modeNames).nativeEnumName('payment_mode');
export const jsonColumn = () => p.type(JsonTextType).$type<JsonObject>();
export const hexColumn = () => p.type(HexType).$type<string>();
export const addressColumn = () => p.type(AddressType).$type<WalletAddress>();

/**
 * JSON in a `json` column, which keeps the text as it was written. `jsonb` would sort the names and rewrite
 * the numbers, and a replayed creation would no longer return what the first one did.
 */
class JsonTextType extends Type<JsonObject, string> {
  override convertToDatabaseValue(value: JsonObject): string {
    return JSON.stringify(value);
  }
  override convertToJSValue(value: string | JsonObject): JsonObject {
    return typeof value === 'string' ? JSON.parse(value) : value;
  }
  override getColumnType(): string {
    return 'json';
  }
}

/** Bytes as hexadecimal text: making a Buffer for each would cost more than computing the hash. */
class HexType extends Type<string | null, string | null> {
  override convertToDatabaseValue(value: string | null): string | null {
    return value == null ? null : `\\x${value}`;
  }
  override convertToJSValue(value: string | Buffer | null): string | null {
    return Buffer.isBuffer(value) ? value.toString('hex') : value;
  }
  override getColumnType(): string {
    return 'bytea';
  }
}

/** The 20 bytes of an address, as text with its EIP-55 checksum. */
class AddressType extends Type<string, string> {
  override convertToDatabaseValue(value: string): string {
    return `\\x${value.slice(2)}`;
  }
  override convertToJSValue(value: string | Buffer): string {
    return Buffer.isBuffer(value) ? checksum(`0x${value.toString('hex')}`) : value;
  }
  override getColumnType(): string {
    return 'bytea';
  }
}
