// What a create request means, written a second time and from the contract alone: a different JSON reader (the
// engine's), a different protobuf reader (protobufjs), and none of the service's code. Where the service creates an
// intent that this model would not, or another one, one of the two is wrong.

import { protobuf } from 'google-gax';
import { getAddress, isAddress } from 'viem';

/** What an accepted request asks for, defaults filled in; `wallet` undefined where it names none. */
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

/** A number as it was written. */
class Numeral {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
}

/** What the body of a request means, or undefined where it has to be refused. */
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

const schema = protobuf.parse(`
  syntax = "proto3";
  message Request {
    int64 amount_units = 1;
    int32 chain = 2;
    optional string wallet_address = 3;
    optional int32 expires_in_minutes = 4;
    int32 lane = 5;
    Struct metadata = 6;
    int32 token = 7;
  }
  message Struct { map<string, Value> fields = 1; }
  message Value {
    oneof kind {
      int32 null_value = 1;
      double number_value = 2;
      string string_value = 3;
      bool bool_value = 4;
      Struct struct_value = 5;
      ListValue list_value = 6;
    }
  }
  message ListValue { repeated Value values = 1; }
`).root;
const Request = schema.lookupType('Request');

/** What the bytes of a message mean, or undefined where they have to be refused. */
export function meaningOfMessage(bytes: Uint8Array): Meaning | undefined {
  let message: Record<string, unknown>;
  try {
    message = Request.toObject(Request.decode(bytes), { longs: String, oneofs: true });
  } catch {
    return undefined;
  }
  const number = (name: string) => Number(message[name] ?? 0);
  return meaning({
    amountUnits: BigInt(String(message.amountUnits ?? 0)),
    chain: (['base', 'base', 'polygon'] as const)[number('chain')],
    lane: (['sdk', 'sdk', 'manual'] as const)[number('lane')],
    token: (['USDC', 'USDC'] as const)[number('token')],
    minutes: message.expiresInMinutes === undefined ? 30n : BigInt(number('expiresInMinutes')),
    wallet: message.walletAddress,
    metadata: message.metadata === undefined ? {} : structToJson(message.metadata as Struct),
  });
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

/** `12`, `12.0` and `1.2e1` are the integer 12; `0.5` is none. */
function exactInteger(source: string): bigint | undefined {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(source) ?? [];
  const digits = BigInt(whole + fraction);
  const shift = Number(exponent) - fraction.length;
  if (digits === 0n) return 0n;
  // Beyond any limit there is; only its sign counts.
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

/** The value with its numbers as doubles; a number that no double holds is NaN, which is then refused. */
function plain(value: unknown): unknown {
  if (value instanceof Numeral) {
    const number = Number(value.source);
    const integer = exactInteger(value.source);
    return integer !== undefined && (integer > maxSafe || integer < -maxSafe) ? Number.NaN : number;
  }
  if (Array.isArray(value)) return value.map(plain);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]));
}

interface Struct {
  fields?: Record<string, Value>;
}
interface Value {
  kind?: string;
  nullValue?: number;
  numberValue?: number;
  stringValue?: string;
  boolValue?: boolean;
  structValue?: Struct;
  listValue?: { values?: Value[] };
}

function structToJson({ fields = {} }: Struct): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, valueToJson(value)]));
}

function valueToJson(value: Value): unknown {
  switch (value.kind) {
    case 'numberValue':
      return value.numberValue;
    case 'stringValue':
      return value.stringValue;
    case 'boolValue':
      return value.boolValue;
    case 'structValue':
      return structToJson(value.structValue ?? {});
    case 'listValue':
      return (value.listValue?.values ?? []).map(valueToJson);
    default:
      return null;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Numeral);
}
