// A second implementation of the create request, written only from the contract: a different JSON reader (the
// engine's), its own protobuf reader, and none of the service's code. If the service and this model disagree,
// one of them is wrong.

import { getAddress, isAddress } from 'viem';

/** The meaning of an accepted request, with defaults; `wallet` is undefined if none is given. */
export interface Meaning {
  amountUnits: bigint;
  chain: 'base' | 'polygon';
  lane: 'sdk' | 'manual';
  expiresInMinutes: number;
  wallet: string | undefined;
  metadata: Record<string, unknown>;
}

const fields = ['amount_units', 'chain', 'wallet_address', 'expires_in_minutes', 'lane', 'metadata', 'token'];
const maxSafe = 2n ** 53n - 1n;
const tokens = [
  '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
  '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
  '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174',
  '0xd9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA',
].map((address) => address.toLowerCase());

/** A number as written in the text. */
class Numeral {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
}

/** Returns the meaning of a request's body, or undefined if it must be refused. */
export function meaningOfJson(text: string): Meaning | undefined {
  if (text.startsWith('\uFEFF')) return undefined;
  let body: unknown;
  try {
    body = JSON.parse(text, ((_: string, value: unknown, context: { source?: string }) =>
      typeof value === 'number' ? new Numeral(context.source ?? '') : value) as never);
  } catch {
    return undefined;
  }
  if (!isObject(body) || Object.keys(body).some((name) => !fields.includes(name))) return undefined;
  const integer = (value: unknown) => (value instanceof Numeral ? exactInteger(value.source) : undefined);
  const word = <T extends string>(value: unknown, words: readonly T[]) =>
    value == null ? words[0] : words.find((known) => known === value);
  const wallet = body.wallet_address ?? undefined;
  const metadata = body.metadata == null ? {} : plain(body.metadata);
  return meaning({
    amountUnits: integer(body.amount_units),
    chain: word(body.chain, ['base', 'polygon']),
    lane: word(body.lane, ['sdk', 'manual']),
    token: word(body.token, ['USDC']),
    minutes: body.expires_in_minutes == null ? 30n : integer(body.expires_in_minutes),
    wallet,
    metadata,
  });
}

/** Returns the meaning of a message, or undefined if it must be refused. */
export function meaningOfMessage(bytes: Uint8Array): Meaning | undefined {
  try {
    const request = readMessage(Buffer.from(bytes), {
      1: 'int64',
      2: 'int32',
      3: 'string',
      4: 'int32',
      5: 'int32',
      6: 'message',
      7: 'int32',
    });
    const last = (number: number) => request.findLast((field) => field.number === number)?.value;
    const int32 = (number: number) => Number(last(number) ?? 0n);
    // Parts of a message are merged: its maps have the entries of all parts.
    const structs = request.flatMap(({ number, value }) => (number === 6 ? [value as Buffer] : []));
    return meaning({
      amountUnits: (last(1) ?? 0n) as bigint,
      chain: (['base', 'base', 'polygon'] as const)[int32(2)],
      lane: (['sdk', 'sdk', 'manual'] as const)[int32(5)],
      token: (['USDC', 'USDC'] as const)[int32(7)],
      minutes: (last(4) ?? 30n) as bigint,
      wallet: last(3),
      metadata: readStruct(Buffer.concat(structs)),
    });
  } catch {
    return undefined;
  }
}

type FieldType = 'int64' | 'int32' | 'bool' | 'double' | 'string' | 'message';
type FieldValue = bigint | number | string | Buffer;

/** Returns the fields of a message in order; throws if the bytes are not such a message. */
function readMessage(
  bytes: Buffer,
  types: Readonly<Record<number, FieldType>>,
): { number: number; value: FieldValue }[] {
  let at = 0;
  const take = (length: number) => {
    if (length > bytes.length - at) throw new Error('truncated');
    at += length;
    return bytes.subarray(at - length, at);
  };
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = take(1)[0] as number;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
    throw new Error('a varint is longer than ten bytes');
  };
  const fields = [];
  while (at < bytes.length) {
    const tag = Number(varint());
    const [number, wireType] = [Math.floor(tag / 8), tag % 8];
    const type = types[number];
    const wanted = type && { int64: 0, int32: 0, bool: 0, double: 1, string: 2, message: 2 }[type];
    if (wireType !== wanted) throw new Error('an unknown field, or not of its type');
    if (type === 'int64') fields.push({ number, value: BigInt.asIntN(64, varint()) });
    else if (type === 'int32') fields.push({ number, value: BigInt.asIntN(32, varint()) });
    else if (type === 'bool') fields.push({ number, value: varint() === 0n ? 0n : 1n });
    else if (type === 'double') fields.push({ number, value: take(8).readDoubleLE() + 0 });
    else {
      const content = take(Number(varint()));
      fields.push({ number, value: type === 'string' ? utf8.decode(content) : content });
    }
  }
  return fields;
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function readStruct(bytes: Buffer): Record<string, unknown> {
  const entries = readMessage(bytes, { 1: 'message' }).map(({ value }) => {
    const entry = readMessage(value as Buffer, { 1: 'string', 2: 'message' });
    const key = entry.findLast(({ number }) => number === 1)?.value ?? '';
    const values = entry.flatMap((field) => (field.number === 2 ? [field.value as Buffer] : []));
    return [key as string, readValue(Buffer.concat(values))] as const;
  });
  return Object.fromEntries(entries);
}

function readValue(bytes: Buffer): unknown {
  const kinds = readMessage(bytes, {
    1: 'int32',
    2: 'double',
    3: 'string',
    4: 'bool',
    5: 'message',
    6: 'message',
  });
  // The last kind wins. Parts of a message are merged unless another kind is between them.
  const last = kinds.at(-1);
  if (last === undefined) throw new Error('a value without a kind');
  const start = kinds.findLastIndex(({ number }) => number !== last.number) + 1;
  const content = () => Buffer.concat(kinds.slice(start).map(({ value }) => value as Buffer));
  switch (last.number) {
    case 1:
      return null;
    case 4:
      return last.value === 1n;
    case 5:
      return readStruct(content());
    case 6:
      return readMessage(content(), { 1: 'message' }).map(({ value }) => readValue(value as Buffer));
    default:
      return last.value;
  }
}

function meaning(read: {
  amountUnits: bigint | undefined;
  chain: Meaning['chain'] | undefined;
  lane: Meaning['lane'] | undefined;
  token: 'USDC' | undefined;
  minutes: bigint | undefined;
  wallet: unknown;
  metadata: unknown;
}): Meaning | undefined {
  const { amountUnits, chain, lane, token, minutes, wallet, metadata } = read;
  if (amountUnits === undefined || amountUnits < 1n || amountUnits > maxSafe) return undefined;
  if (chain === undefined || lane === undefined || token === undefined || minutes === undefined)
    return undefined;
  if (wallet !== undefined && !isPayable(wallet)) return undefined;
  if (!isObject(metadata) || !isKeepable(metadata)) return undefined;
  return {
    amountUnits,
    chain,
    lane,
    expiresInMinutes: minutes < 5n ? 5 : minutes > 60n ? 60 : Number(minutes),
    wallet: wallet === undefined ? undefined : getAddress((wallet as string).toLowerCase()),
    metadata,
  };
}

/** `12`, `12.0` and `1.2e1` are the integer 12; `0.5` is not an integer. */
function exactInteger(source: string): bigint | undefined {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(source) ?? [];
  const digits = BigInt(whole + fraction);
  const shift = Number(exponent) - fraction.length;
  if (digits === 0n) return 0n;
  // Beyond any limit, so that only the sign matters.
  if (shift > 400) return sign === '-' ? -(10n ** 400n) : 10n ** 400n;
  if (shift < -20_000) return undefined;
  const scale = 10n ** BigInt(Math.abs(shift));
  if (shift < 0 && digits % scale !== 0n) return undefined;
  const value = shift < 0 ? digits / scale : digits * scale;
  return sign === '-' ? -value : value;
}

function isPayable(wallet: unknown): boolean {
  if (typeof wallet !== 'string' || !/^0x[0-9a-fA-F]{40}$/.test(wallet)) return false;
  const digits = wallet.slice(2);
  const isOneCase = digits === digits.toLowerCase() || digits === digits.toUpperCase();
  if (!isOneCase && !isAddress(wallet, { strict: true })) return false;
  return BigInt(wallet.toLowerCase()) > 0xffffn && !tokens.includes(wallet.toLowerCase());
}

function isKeepable(metadata: Record<string, unknown>): boolean {
  const names = Object.keys(metadata);
  return (
    names.length <= 50 &&
    names.every((name) => [...name].length <= 64) &&
    Buffer.byteLength(JSON.stringify(metadata)) <= 16 * 1024 &&
    isPlain(metadata, 1)
  );
}

function isPlain(value: unknown, depth: number): boolean {
  if (typeof value === 'string') return !value.includes('\0') && value.isWellFormed();
  if (typeof value === 'number') {
    return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value));
  }
  if (value === null || typeof value === 'boolean') return true;
  if (typeof value !== 'object' || depth > 15) return false;
  return Object.entries(value).every(
    ([name, inner]) => (Array.isArray(value) || isPlain(name, depth)) && isPlain(inner, depth + 1),
  );
}

/** The value with its numbers as doubles, without the sign of zero. One that a double cannot hold is NaN, which is then refused. */
function plain(value: unknown): unknown {
  if (value instanceof Numeral) {
    const number = Number(value.source);
    const integer = exactInteger(value.source);
    return integer !== undefined && (integer > maxSafe || integer < -maxSafe) ? Number.NaN : number + 0;
  }
  if (Array.isArray(value)) return value.map(plain);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Numeral);
}
