// Reads which intent or refund the owner of the money names in a transaction. An id added by a bundler,
// a relayer or another user of the bundle does not count. `ledger/attribution.ts` decides what is paid.

import { fromAbi } from 'ox/AbiFunction';
import { getSelector } from 'ox/AbiItem';
import { abiV06, abiV07 } from 'ox/erc4337/EntryPoint';
import type { Address, Hex } from 'viem';
import { nextSlice } from '../scheduling/slices.ts';
import type { PlainLog, Transaction, TransferLog } from './node-answers.ts';
import { transferTopic, zeroAddress } from './node-answers.ts';

/** `transfer(address,uint256)`. */
const transferSelector = 'a9059cbb';
/** Hexadecimal digits of the selector and its two arguments. */
const transferDigits = 8 + 64 + 64;
/** The public id of an intent or of a refund, as ASCII. */
const publicId = /(?:pi|rf)_[0-7][0-9a-hjkmnp-tv-z]{25}/g;
const idDigits = 2 * 29;
/** `pi_` and `rf_` in hexadecimal digits. */
const idPrefixes = ['70695f', '72665f'];

/** Digits of `0x` and a selector. */
const selectorEnd = 2 + 8;
/** `handleOps` of the ERC-4337 entry points, in lower case. `callData` is always the fourth field. */
const handleOps06 = getSelector(fromAbi(abiV06, 'handleOps'));
const handleOps07 = getSelector(fromAbi(abiV07, 'handleOps'));
const entryPoints: ReadonlyMap<string, Hex> = new Map([
  ['0x5ff137d4b0fdcd49dca30c7cf57e578a026d2789', handleOps06],
  ['0x0000000071727de22e5e9d8baf0edac6f37da032', handleOps07],
  ['0x4337084d9e255ff0702461cf8895ce9e3b5ff108', handleOps07],
  ['0x433709009b8330fda32311df1c2afa402ed8d009', handleOps07],
]);
/** `BeforeExecution()`. */
const beforeExecution = '0xbb47ee3e183a558b1a2ff0874b079f3fc5478b7454eacf2bfc5af2ff5878f972';
/** `UserOperationEvent(bytes32 indexed,address indexed,address indexed,uint256,bool,uint256,uint256)`. */
const userOperationEvent = '0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f';

/** Multicall3 has the same address on every chain. In lower case. */
const multicall3 = '0xca11bde05977b3631167028862be2a173976ca11';

const execTransaction = getSelector(
  'function execTransaction(address to, uint256 value, bytes data, uint8 operation, uint256 safeTxGas, uint256 baseGas, uint256 gasPrice, address gasToken, address refundReceiver, bytes signatures)',
);

/**
 * Reads the ids that the owner of the money wrote for the transfers of one transaction. Strangers choose the
 * length of the calldata and the number of transfers, so it is read once for all of them, in slices.
 */
export function readNamedIntents(transaction: Transaction) {
  const { input, to } = transaction;
  const direct = once(() => onlyIdIn(input.slice(2 + transferDigits)));
  const calls = once(() => callsWithId(input));
  const counts = once((logs: readonly PlainLog[]) => countTransfers(logs));
  const bundle = once((logs: readonly PlainLog[]) => readBundle(to, input, logs));
  return {
    /**
     * True if an id after this transfer's call can only be trusted with the receipt, whose logs show who paid
     * in a bundle and how many equal transfers were made. Also true if the log contradicts the transaction.
     */
    async needsReceipt(log: TransferLog): Promise<boolean> {
      if (isDirectTransfer(log, transaction) || idSourceOf(log, transaction) === undefined) return false;
      // A plain `transfer` logs its arguments: a node that returns another log has made it up.
      const isOther = to === log.token && input.startsWith(`0x${transferSelector}`);
      return isOther || (await calls()).has(callOf(log));
    },
    /** Returns the public id (`pi_…` or `rf_…`), if any. `logs`: the receipt's, in order, if it is needed. */
    async of(log: TransferLog, logs: readonly PlainLog[]): Promise<string | undefined> {
      if (isDirectTransfer(log, transaction)) return direct();
      switch (idSourceOf(log, transaction)) {
        case 'bundle': {
          const operation = (await bundle(logs)).get(log.logIndex);
          if (operation?.sender !== log.from) return undefined;
          return idOf(log, await calls(), operation.place, await operation.made());
        }
        case 'own input':
          return idOf(log, await calls(), { begin: 2, end: input.length }, await counts(logs));
        case 'safe':
          return idOf(log, await calls(), safeDataOf(input), await counts(logs));
        default:
          return undefined;
      }
    },
  };
}

/** True if the transaction is a call of the token's `transfer` by the owner of the money. */
function isDirectTransfer(log: TransferLog, { from, to, input }: Transaction): boolean {
  return to === log.token && from === log.from && input.startsWith(`0x${callOf(log)}`);
}

/** Returns where the owner of the money could write an id; undefined for an unknown kind of transaction. */
function idSourceOf(
  log: TransferLog,
  { from, to, input }: Transaction,
): 'bundle' | 'own input' | 'safe' | undefined {
  // Minted tokens have no previous owner. Polygon's state-sync transfers have this sender, too.
  if (log.from === zeroAddress) return undefined;
  if (to !== null && entryPoints.has(to)) return 'bundle';
  // EIP-7702, and any other call by the owner.
  if (from === log.from) return 'own input';
  if (to === multicall3 && log.from === multicall3) return 'own input';
  return to === log.from && input.startsWith(execTransaction) ? 'safe' : undefined;
}

/** A part of the input, in hexadecimal digits. */
type Place = { begin: number; end: number };

/** The calls of `transfer` directly followed by an id, by the call's digits. Places are ascending. */
type CallsWithId = ReadonlyMap<string, { begins: number[]; ids: string[]; lastChangeAt: number[] }>;

/** The number of transfers made, by token, sender, recipient and amount. */
type TransferCounts = ReadonlyMap<string, number>;

/** A user operation that made a log, and the transfers that it made. */
type Operation = { sender: string; place: Place; made: () => Promise<TransferCounts> };

/** Returns a bundle's operations, by the index of each of their logs: those before a `UserOperationEvent`. */
async function readBundle(entryPoint: Address | null, input: Hex, logs: readonly PlainLog[]) {
  const places = await operationsIn(entryPoints.get(entryPoint ?? ''), input);
  const madeBy = new Map<number, Operation>();
  let begin: number | undefined;
  for (const [i, { address, topics, data }] of logs.entries()) {
    await nextSlice();
    const [topic, , senderTopic = ''] = topics;
    if (address !== entryPoint || (topic !== beforeExecution && topic !== userOperationEvent)) continue;
    if (topic === userOperationEvent && begin !== undefined) {
      const own = logs.slice(begin, i);
      const sender = `0x${senderTopic.slice(26)}`;
      const place = places.get(`${sender} ${data.slice(2, 66)}`);
      const made = once(() => countTransfers(own));
      if (place !== undefined) for (const { logIndex } of own) madeBy.set(logIndex, { sender, place, made });
    }
    begin = i + 1;
  }
  return madeBy;
}

/** Returns where the calldata of a bundle's operations is, by sender and nonce. */
async function operationsIn(handleOps: Hex | undefined, input: Hex): Promise<Map<string, Place>> {
  const places = new Map<string, Place>();
  if (handleOps === undefined || !input.startsWith(handleOps)) return places;
  const data = input.slice(selectorEnd);
  const list = pointerAt(data, 0) ?? Number.POSITIVE_INFINITY;
  const count = pointerAt(data, list) ?? 0;
  const first = list + 32;
  for (let i = 0; i < count; i++) {
    await nextSlice();
    const offset = pointerAt(data, first + 32 * i);
    // The list is shorter than its declared length.
    if (offset === undefined) break;
    const at = first + offset;
    const place = placeOf(data, at + 3 * 32, at);
    if (place === undefined) continue;
    const name = `0x${wordAt(data, at)?.slice(24)} ${wordAt(data, at + 32)}`;
    if (!places.has(name)) places.set(name, place);
  }
  return places;
}

/** Returns where the calldata signed by a Safe's owners is; empty if the input cannot be read. */
function safeDataOf(input: Hex): Place {
  return placeOf(input.slice(selectorEnd), 2 * 32, 0) ?? { begin: 0, end: 0 };
}

/** Returns where in the input the bytes are to which the argument at `at` points, relative to `base`. */
function placeOf(data: string, at: number, base: number): Place | undefined {
  const offset = pointerAt(data, at);
  const length = offset === undefined ? undefined : pointerAt(data, base + offset);
  if (offset === undefined || length === undefined) return undefined;
  const first = base + offset + 32;
  const digits = data.slice(2 * first, 2 * (first + length));
  if (digits.length < 2 * length) return undefined;
  const begin = selectorEnd + 2 * first;
  return { begin, end: begin + digits.length };
}

/** The calldata of a plain `transfer` with this effect, in hexadecimal digits. */
function callOf({ to, amountUnits }: TransferLog): string {
  return `${transferSelector}${to.slice(2).padStart(64, '0')}${wordOf(amountUnits)}`;
}

/** A number as 32 bytes, in hexadecimal digits. */
const wordOf = (value: bigint): string => value.toString(16).padStart(64, '0');

/** Returns the id in these bytes if they contain exactly one. */
function onlyIdIn(digits: string): string | undefined {
  const [id, ...others] = new Set(Buffer.from(digits, 'hex').toString('latin1').match(publicId));
  return others.length === 0 ? id : undefined;
}

/** Finds the calls that an id follows, at byte boundaries. */
async function callsWithId(input: string): Promise<CallsWithId> {
  const found = new Map<string, { begins: number[]; ids: string[]; lastChangeAt: number[] }>();
  for (let at = input.indexOf(transferSelector); at !== -1; at = input.indexOf(transferSelector, at + 1)) {
    await nextSlice();
    const end = at + transferDigits;
    if (at % 2 !== 0 || !idPrefixes.some((prefix) => input.startsWith(prefix, end))) continue;
    const id = onlyIdIn(input.slice(end, end + idDigits));
    if (id === undefined) continue;
    const call = input.slice(at, end);
    const equal = found.get(call) ?? { begins: [], ids: [], lastChangeAt: [] };
    const last = equal.ids.length - 1;
    equal.lastChangeAt.push(equal.ids[last] === id ? (equal.lastChangeAt[last] as number) : last + 1);
    equal.begins.push(at);
    equal.ids.push(id);
    found.set(call, equal);
  }
  return found;
}

async function countTransfers(logs: readonly PlainLog[]): Promise<TransferCounts> {
  const counts = new Map<string, number>();
  for (const {
    address,
    topics: [topic, from = '', to = ''],
    data,
  } of logs) {
    await nextSlice();
    if (topic !== transferTopic || data.length !== 2 + 64) continue;
    const key = `${address} ${from.slice(26)} ${to.slice(26)} ${data.slice(2)}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

/**
 * Returns the id that follows the call of this transfer in this part of the input. The number of such calls
 * with an id must equal the number of such transfers: otherwise one of the transfers is somebody else's.
 */
function idOf(log: TransferLog, calls: CallsWithId, { begin, end }: Place, made: TransferCounts) {
  const equal = calls.get(callOf(log));
  if (equal === undefined) return undefined;
  const from = firstAtLeast(equal.begins, begin);
  const to = firstAtLeast(equal.begins, end - transferDigits - idDigits + 1);
  // All are followed by the same id if it did not change after the first of them.
  if (to <= from || (equal.lastChangeAt[to - 1] as number) > from) return undefined;
  const key = `${log.token} ${log.from.slice(2)} ${log.to.slice(2)} ${wordOf(log.amountUnits)}`;
  return made.get(key) === to - from ? equal.ids[from] : undefined;
}

/** The index of the first number that is at least this one. */
function firstAtLeast(ascending: readonly number[], wanted: number): number {
  let [from, to] = [0, ascending.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((ascending[middle] as number) < wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Computes a value on first use. */
function once<Args extends unknown[], T>(make: (...args: Args) => T): (...args: Args) => T {
  let made: { value: T } | undefined;
  return (...args) => {
    made ??= { value: make(...args) };
    return made.value;
  };
}

// Arguments of calldata are read in place, in hexadecimal digits without `0x`; offsets are in bytes. ABI
// libraries copy every argument, and a stranger can point a thousand operations at the same megabyte.
//
// Source: https://docs.soliditylang.org/en/latest/abi-spec.html

const wordDigits = 64;
/** Larger offsets are past the end of any calldata. */
const pointerDigits = 12;

/** Returns the word at this offset, or undefined past the end. */
function wordAt(data: string, at: number): string | undefined {
  const word = data.slice(2 * at, 2 * at + wordDigits);
  return word.length === wordDigits ? word : undefined;
}

/** Returns the word at this offset as an offset, a length or a count. */
function pointerAt(data: string, at: number): number | undefined {
  const word = wordAt(data, at);
  const isSmall = word?.startsWith('0'.repeat(wordDigits - pointerDigits));
  return isSmall ? Number.parseInt(word?.slice(-pointerDigits) ?? '', 16) : undefined;
}
