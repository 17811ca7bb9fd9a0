// Whose payment a transfer is. Never a guess: an id counts only if the owner of the money wrote it, because a bundler, a
// relayer or another user of the same bundle can add ids to anybody's transfer. Without an id a transfer belongs to the
// one intent that it can be for, or to none.

import { type Address, decodeFunctionData, type Hex, parseAbi, toFunctionSelector, zeroAddress } from 'viem';
import { entryPoint06Abi, entryPoint07Abi } from 'viem/account-abstraction';
import type { PlainLog, Transaction, TransferLog } from './node-answers.ts';
import { transferTopic } from './node-answers.ts';

/** `transfer(address,uint256)`. */
const transferSelector = 'a9059cbb';
/** Hexadecimal digits of the selector and the two arguments. */
const transferDigits = 8 + 64 + 64;
/** An intent's public id, as ASCII. */
const publicId = /pi_[0-7][0-9a-hjkmnp-tv-z]{25}/g;
const idDigits = 2 * 29;

/** ERC-4337 entry points, in lower case, with the ABI of their `handleOps`. 0.8 has that of 0.7. */
const entryPoints: ReadonlyMap<string, typeof entryPoint06Abi | typeof entryPoint07Abi> = new Map<
  string,
  typeof entryPoint06Abi | typeof entryPoint07Abi
>([
  ['0x5ff137d4b0fdcd49dca30c7cf57e578a026d2789', entryPoint06Abi],
  ['0x0000000071727de22e5e9d8baf0edac6f37da032', entryPoint07Abi],
  ['0x4337084d9e255ff0702461cf8895ce9e3b5ff108', entryPoint07Abi],
]);
/** `BeforeExecution()`. */
const beforeExecution = '0xbb47ee3e183a558b1a2ff0874b079f3fc5478b7454eacf2bfc5af2ff5878f972';
/** `UserOperationEvent(bytes32 indexed,address indexed,address indexed,uint256,bool,uint256,uint256)`. */
const userOperationEvent = '0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f';

/** Multicall3, at the same address on every chain, in lower case. */
const multicall3 = '0xca11bde05977b3631167028862be2a173976ca11';

const safeAbi = parseAbi([
  'function execTransaction(address to, uint256 value, bytes data, uint8 operation, uint256 safeTxGas, uint256 baseGas, uint256 gasPrice, address gasToken, address refundReceiver, bytes signatures)',
]);
const execTransaction = toFunctionSelector(safeAbi[0]);

/**
 * True if `namedIntent` needs the logs of the transaction's receipt: who paid in a bundle, and how often, only they tell.
 */
export function needsReceipt(log: TransferLog, transaction: Transaction): boolean {
  return !isDirectTransfer(log, transaction) && wayOf(log, transaction) !== undefined;
}

/**
 * Returns the intent's public id (`pi_…`) that the owner of the money wrote into the transaction for this very transfer,
 * or undefined. `logs` are those of the transaction's receipt, in their order.
 */
export function namedIntent(
  log: TransferLog,
  transaction: Transaction,
  logs: readonly PlainLog[],
): string | undefined {
  if (isDirectTransfer(log, transaction)) return onlyIdIn(transaction.input.slice(2 + transferDigits));
  const spoken = wayOf(log, transaction)?.(logs);
  return spoken && idAfterCall(log, spoken.data, spoken.logs);
}

/** What the owner of the money wrote, and the logs of what was done on this word. */
interface Spoken {
  data: Hex;
  logs: readonly PlainLog[];
}

/** The transaction is a call of the token's `transfer` by the owner of the money. */
function isDirectTransfer(log: TransferLog, { from, to, input }: Transaction): boolean {
  return to === log.token && from === log.from && input.startsWith(`0x${callOf(log)}`);
}

/** How the owner of the money spoke for this transfer, if in one of the known ways. */
function wayOf(
  log: TransferLog,
  transaction: Transaction,
): ((logs: readonly PlainLog[]) => Spoken | undefined) | undefined {
  const { from, to, input } = transaction;
  // New money has no owner who could have written anything. Polygon's own messages have this sender, too.
  if (log.from === zeroAddress) return undefined;
  const entryPoint = to === null ? undefined : entryPoints.get(to);
  if (to !== null && entryPoint !== undefined) {
    return (logs) => spokenInBundle(log, to, entryPoint, input, logs);
  }
  // EIP-7702 and other calls of the owner's own.
  if (from === log.from) return (logs) => ({ data: input, logs });
  if (to === multicall3 && log.from === multicall3) return (logs) => ({ data: input, logs });
  if (to === log.from && input.startsWith(execTransaction)) {
    return (logs) => {
      const data = safeDataOf(input);
      return data && { data, logs };
    };
  }
  return undefined;
}

/** The user operation that moved the money: the logs before its `UserOperationEvent` are its own. */
function spokenInBundle(
  log: TransferLog,
  entryPoint: Address,
  abi: typeof entryPoint06Abi | typeof entryPoint07Abi,
  input: Hex,
  logs: readonly PlainLog[],
): Spoken | undefined {
  const isMark = ({ address, topics: [topic] }: PlainLog) =>
    address === entryPoint && (topic === beforeExecution || topic === userOperationEvent);
  const at = logs.findIndex(({ logIndex }) => logIndex === log.logIndex);
  const begin = logs.findLastIndex((other, i) => i < at && isMark(other));
  const end = logs.findIndex((other, i) => i > at && isMark(other));
  const [topic, , sender] = logs[end]?.topics ?? [];
  if (at === -1 || begin === -1 || topic !== userOperationEvent) return undefined;
  if (sender !== `0x${'0'.repeat(24)}${log.from.slice(2)}`) return undefined;
  const operation = operationsIn(abi, input).find(
    (other) =>
      other.sender.toLowerCase() === log.from && logs[end]?.data.startsWith(`0x${wordOf(other.nonce)}`),
  );
  return operation && { data: operation.callData, logs: logs.slice(begin + 1, end) };
}

function operationsIn(
  abi: typeof entryPoint06Abi | typeof entryPoint07Abi,
  input: Hex,
): readonly { sender: Address; nonce: bigint; callData: Hex }[] {
  try {
    const { functionName, args } = decodeFunctionData({ abi: abi as typeof entryPoint07Abi, data: input });
    return functionName === 'handleOps' ? args[0] : [];
  } catch {
    return [];
  }
}

function safeDataOf(input: Hex): Hex | undefined {
  try {
    return decodeFunctionData({ abi: safeAbi, data: input }).args[2];
  } catch {
    return undefined;
  }
}

/** The call that a transfer is the effect of, in hexadecimal digits. */
function callOf({ to, amountUnits }: TransferLog): string {
  return `${transferSelector}${to.slice(2).padStart(64, '0')}${wordOf(amountUnits)}`;
}

/** A number as 32 bytes, in hexadecimal digits. */
function wordOf(value: bigint): string {
  return value.toString(16).padStart(64, '0');
}

/** The one id that these bytes hold. */
function onlyIdIn(digits: string): string | undefined {
  const [id, ...others] = new Set(Buffer.from(digits, 'hex').toString('latin1').match(publicId));
  return others.length === 0 ? id : undefined;
}

/**
 * The id that follows at once the call of this transfer. The call with the id has to be there exactly as often as such a
 * transfer was made: otherwise one of them is somebody else's.
 */
function idAfterCall(log: TransferLog, data: Hex, logs: readonly PlainLog[]): string | undefined {
  const call = callOf(log);
  const ids = placesOf(call, data)
    .map((place) => onlyIdIn(data.slice(place + transferDigits, place + transferDigits + idDigits)))
    .filter((id) => id !== undefined);
  const [id, ...others] = new Set(ids);
  const made = logs.filter(
    ({ address, topics: [topic, from, to], data: amount }) =>
      address === log.token &&
      topic === transferTopic &&
      from?.endsWith(log.from.slice(2)) &&
      to?.endsWith(log.to.slice(2)) &&
      amount === `0x${wordOf(log.amountUnits)}`,
  );
  return others.length === 0 && ids.length === made.length ? id : undefined;
}

/** Where the digits begin in the data, at whole bytes. */
function placesOf(digits: string, data: Hex): number[] {
  const places: number[] = [];
  for (let at = data.indexOf(digits); at !== -1; at = data.indexOf(digits, at + 1)) {
    if (at % 2 === 0) places.push(at);
  }
  return places;
}

/** The intents of one merchant that ever named a wallet. */
export interface EverNamed {
  /** How many there are; two stand for any number above one. */
  count: number;
  /** One of them that is of this chain and no newer than the block. */
  payable: string | undefined;
}

/**
 * The intent that a transfer without a proven id belongs to within one merchant: the only one that it can be for. Pass
 * the ids of the intents that expect this amount; two stand for any number above one.
 */
export function onlyCandidate(expecting: readonly string[], everNamed: EverNamed): string | undefined {
  if (everNamed.count === 1) return everNamed.payable;
  return expecting.length === 1 ? expecting[0] : undefined;
}
