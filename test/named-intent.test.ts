// Only an id written by the owner of the money names an intent. Nothing else in a transaction, a bundle or an
// answer of a node does.

import fc from 'fast-check';
import {
  type Address,
  concatHex,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  multicall3Abi,
  numberToHex,
  padHex,
  size,
  stringToHex,
} from 'viem';
import {
  entryPoint06Abi,
  entryPoint06Address,
  entryPoint07Abi,
  entryPoint07Address,
  entryPoint08Address,
  entryPoint09Address,
} from 'viem/account-abstraction';
import { describe, expect, test } from 'vitest';
import { receiptHasTransfer } from '../src/settlement/block-reader.ts';
import { readNamedIntents } from '../src/settlement/named-intent.ts';
import {
  type PlainLog,
  type Transaction,
  type TransferLog,
  transferTopic,
} from '../src/settlement/node-answers.ts';

const token: Address = '0x036cbd53842c5426634e7929541ec2318f3dcf7e';
const wallet: Address = '0x1111111111111111111111111111111111111111';
const owner: Address = '0x2222222222222222222222222222222222222222';
const stranger: Address = '0x3333333333333333333333333333333333333333';
const router: Address = '0x4444444444444444444444444444444444444444';
const multicall3: Address = '0xca11bde05977b3631167028862be2a173976ca11';
const hash: Hex = `0x${'ab'.repeat(32)}`;
const beforeExecution: Hex = '0xbb47ee3e183a558b1a2ff0874b079f3fc5478b7454eacf2bfc5af2ff5878f972';
const userOperationEvent: Hex = '0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f';
const amountUnits = 12_500_000n;
const id = 'pi_01m7yzn0mtexwagr0spq4wg7vz';
const otherId = 'pi_01m7yzn1c0edqrx1nberv1e58s';

const logAt = (logIndex: number, from: Address = owner): TransferLog => ({
  token,
  from,
  to: wallet,
  amountUnits,
  transactionHash: hash,
  logIndex,
  blockNumber: 1,
  blockHash: hash,
});
const log = logAt(0);

const plain = ({ token: address, from, to, amountUnits: amount, logIndex }: TransferLog): PlainLog => ({
  address,
  topics: [transferTopic, padHex(from), padHex(to)],
  data: numberToHex(amount, { size: 32 }),
  logIndex,
});

const sent = (from: Address, to: Address | null, input: Hex): Transaction => ({
  hash,
  from,
  to,
  input,
  blockHash: hash,
});

const call = (suffix: Hex = '0x', to: Address = wallet, amount = amountUnits): Hex =>
  concatHex([encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args: [to, amount] }), suffix]);
const withId = (text: string) => call(stringToHex(text));

const inMulticall = (...calls: Hex[]) =>
  encodeFunctionData({
    abi: multicall3Abi,
    functionName: 'aggregate3',
    args: [calls.map((callData) => ({ target: token, allowFailure: false, callData }))],
  });

/** A Safe's `execTransaction`, or another function with the same arguments, whose call has so many bytes. */
const inSafe = (calldata: Hex, bytes: number, selector: Hex = '0x6a761202'): Hex => {
  const word = (value: number) => numberToHex(value, { size: 32 });
  const padding: Hex = `0x${'00'.repeat((32 - (size(calldata) % 32)) % 32)}`;
  const others = [word(0), word(320), ...Array<Hex>(6).fill(zero32), word(480)];
  return concatHex([selector, padHex(token), ...others, word(bytes), calldata, padding, zero32]);
};

interface Op {
  sender: Address;
  nonce: bigint;
  callData: Hex;
}

const zero32: Hex = `0x${'00'.repeat(32)}`;
const packed = (op: Op) => ({
  ...op,
  initCode: '0x' as const,
  accountGasLimits: zero32,
  preVerificationGas: 0n,
  gasFees: zero32,
  paymasterAndData: '0x' as const,
  signature: '0x' as const,
});
const in07 = (ops: readonly Op[]) =>
  encodeFunctionData({ abi: entryPoint07Abi, functionName: 'handleOps', args: [ops.map(packed), stranger] });
const aggregated = (ops: readonly Op[]) =>
  encodeFunctionData({
    abi: entryPoint07Abi,
    functionName: 'handleAggregatedOps',
    args: [[{ userOps: ops.map(packed), aggregator: stranger, signature: '0x' }], stranger],
  });
const in06 = (ops: readonly Op[]) =>
  encodeFunctionData({
    abi: entryPoint06Abi,
    functionName: 'handleOps',
    args: [
      ops.map((op) => ({
        ...op,
        initCode: '0x' as const,
        callGasLimit: 0n,
        verificationGasLimit: 0n,
        preVerificationGas: 0n,
        maxFeePerGas: 0n,
        maxPriorityFeePerGas: 0n,
        paymasterAndData: '0x' as const,
        signature: '0x' as const,
      })),
      stranger,
    ],
  });

const entryPoints = [
  ['0.6', entryPoint06Address.toLowerCase() as Address, in06],
  ['0.7', entryPoint07Address.toLowerCase() as Address, in07],
  ['0.8', entryPoint08Address.toLowerCase() as Address, in07],
  ['0.9', entryPoint09Address.toLowerCase() as Address, in07],
] as const;
const entryPoint = entryPoints[1][1];

const began = (address: Address, logIndex: number): PlainLog => ({
  address,
  topics: [beforeExecution],
  data: '0x',
  logIndex,
});
const ended = (
  address: Address,
  { sender, nonce }: Pick<Op, 'sender' | 'nonce'>,
  logIndex: number,
): PlainLog => ({
  address,
  topics: [userOperationEvent, hash, padHex(sender), zero32],
  data: concatHex([numberToHex(nonce, { size: 32 }), zero32, zero32, zero32]),
  logIndex,
});

interface Example {
  name: string;
  transfer?: TransferLog;
  transaction: Transaction;
  logs?: readonly PlainLog[];
  expected?: string;
}

const ownOp: Op = { sender: owner, nonce: 7n, callData: withId(id) };
const strangersOp: Op = { sender: stranger, nonce: 7n, callData: withId(otherId) };
const bundled = (logs: readonly PlainLog[], ops: readonly Op[] = [ownOp]) => ({
  transfer: logAt(5),
  transaction: sent(stranger, entryPoint, in07(ops)),
  logs,
});

const examples: Example[] = [
  { name: 'a direct transfer', transaction: sent(owner, token, withId(id)), logs: [], expected: id },
  { name: 'a direct transfer by a stranger', transaction: sent(stranger, token, withId(id)) },
  {
    name: 'an invalid id next to a valid one',
    transaction: sent(owner, token, concatHex([withId(id.replace('pi_0', 'pi_8')), stringToHex(id)])),
    expected: id,
  },
  {
    name: 'a call of another contract, with bytes before the id',
    transaction: sent(owner, router, call(stringToHex(`/${id}`))),
  },
  {
    name: 'a direct transfer of another amount',
    transaction: sent(owner, token, call(stringToHex(id), wallet, 1n)),
  },
  { name: 'a transfer to a stranger', transaction: sent(owner, token, call(stringToHex(id), stranger)) },
  { name: 'capital letters', transaction: sent(owner, token, withId(id.toUpperCase())) },
  { name: 'a call by the owner', transaction: sent(owner, router, inMulticall(withId(id))), expected: id },
  { name: 'a new contract', transaction: sent(owner, null, withId(id)), expected: id },
  { name: 'a call by a stranger', transaction: sent(stranger, router, inMulticall(withId(id))) },
  { name: 'a call half a byte off', transaction: sent(owner, router, `0x0${withId(id).slice(2)}0`) },
  {
    name: 'a call half a byte off next to a valid one',
    transaction: sent(owner, router, concatHex([withId(id), `0x0${withId(otherId).slice(2)}0`])),
    expected: id,
  },
  { name: 'a call by the owner that moved nothing', transaction: sent(owner, router, withId(id)), logs: [] },
  {
    name: 'a log of another contract beside it',
    transaction: sent(owner, router, withId(id)),
    logs: [plain(log), { ...plain(log), address: router, logIndex: 1 }],
    expected: id,
  },
  {
    name: 'logs of the token without data beside it',
    transaction: sent(owner, router, withId(id)),
    logs: [plain(log), { ...plain(log), data: '0x', logIndex: 1 }],
    expected: id,
  },
  {
    name: 'Multicall3, called by a router',
    transfer: logAt(0, multicall3),
    transaction: sent(stranger, router, inMulticall(withId(id))),
    logs: [plain(logAt(0, multicall3))],
  },
  ...entryPoints.map(
    ([version, address, encode]): Example => ({
      name: `an operation of entry point ${version}`,
      transfer: logAt(5),
      transaction: sent(stranger, address, encode([strangersOp, ownOp])),
      logs: [began(address, 3), ended(address, strangersOp, 4), plain(logAt(5)), ended(address, ownOp, 6)],
      expected: id,
    }),
  ),
  {
    name: 'an unknown entry point',
    transfer: logAt(5),
    transaction: sent(stranger, router, in07([ownOp])),
    logs: [began(router, 4), plain(logAt(5)), ended(router, ownOp, 6)],
  },
  {
    name: 'a transfer before the operations',
    ...bundled([plain(logAt(5)), began(entryPoint, 6), ended(entryPoint, ownOp, 7)]),
  },
  {
    name: 'a transfer after the operations',
    ...bundled([began(entryPoint, 3), ended(entryPoint, ownOp, 4), plain(logAt(5))]),
  },
  { name: 'a receipt without a beginning', ...bundled([plain(logAt(5)), ended(entryPoint, ownOp, 6)]) },
  { name: 'a receipt without the transfer', ...bundled([began(entryPoint, 4), ended(entryPoint, ownOp, 6)]) },
  {
    name: 'an event of another contract that claims the end of the operation',
    ...bundled(
      [began(entryPoint, 4), plain(logAt(5)), ended(router, ownOp, 6), ended(entryPoint, strangersOp, 7)],
      [ownOp, strangersOp],
    ),
  },
  {
    name: 'an event of another contract that claims the start of the operation',
    ...bundled([
      began(entryPoint, 3),
      plain(logAt(4)),
      began(router, 5),
      plain(logAt(6)),
      ended(entryPoint, ownOp, 7),
    ]),
    transfer: logAt(6),
  },
  {
    name: 'an operation of another nonce',
    ...bundled([began(entryPoint, 4), plain(logAt(5)), ended(entryPoint, { sender: owner, nonce: 8n }, 6)]),
  },
  {
    name: 'an end event that claims to be the start',
    ...bundled([
      began(entryPoint, 4),
      plain(logAt(5)),
      { ...ended(entryPoint, ownOp, 6), topics: [beforeExecution, hash, padHex(owner), zero32] },
    ]),
  },
  {
    name: 'operations with an aggregated signature',
    ...bundled([began(entryPoint, 4), plain(logAt(5)), ended(entryPoint, ownOp, 6)]),
    transaction: sent(stranger, entryPoint, aggregated([ownOp])),
  },
  {
    name: 'a bundle cut short',
    ...bundled([began(entryPoint, 4), plain(logAt(5)), ended(entryPoint, ownOp, 6)]),
    transaction: sent(stranger, entryPoint, in07([ownOp]).slice(0, 300) as Hex),
  },
  { name: 'a Safe', transaction: sent(stranger, owner, inSafe(withId(id), 97)), expected: id },
  {
    name: 'a Safe, with an id in the padding after what was signed',
    transaction: sent(stranger, owner, inSafe(withId(id), 68)),
  },
  {
    name: 'another function of the contract that pays',
    transaction: sent(stranger, owner, inSafe(withId(id), 97, '0x19165587')),
  },
  { name: 'a call of a Safe cut short', transaction: sent(stranger, owner, '0x6a761202') },
  {
    name: 'an event without data',
    ...bundled([began(entryPoint, 4), plain(logAt(5)), { ...ended(entryPoint, ownOp, 6), data: '0x' }]),
  },
];

test.for(examples)('$name', async ({ transfer = log, transaction, logs = [plain(transfer)], expected }) => {
  expect(await readNamedIntents(transaction).of(transfer, logs)).toBe(expected);
});

test.for<[string, Partial<PlainLog>, boolean]>([
  ['the same log', {}, true],
  ['another place', { logIndex: 1 }, false],
  ['another token', { address: router }, false],
  ['another sender', { topics: [transferTopic, padHex(stranger), padHex(wallet)] }, false],
  ['another recipient', { topics: [transferTopic, padHex(owner), padHex(stranger)] }, false],
  ['another event', { topics: [padHex(router), padHex(owner), padHex(wallet)] }, false],
  ['no topics', { topics: [] }, false],
  ['another amount', { data: numberToHex(1n, { size: 32 }) }, false],
  ['no data', { data: '0x' }, false],
])('a receipt proves only the log itself: %s', ([, change, expected]) => {
  const held = { ...plain(log), ...change };
  const receipt = {
    transactionHash: hash,
    blockHash: hash,
    blockNumber: 1,
    logs: [held],
    logAt: new Map([[held.logIndex, held]]),
  };
  expect(receiptHasTransfer(receipt, log)).toBe(expected);
  expect(receiptHasTransfer(receipt, { ...log, blockHash: zero32 })).toBe(false);
});

const digits = '0123456789abcdefghjkmnpqrstvwxyz';
const anyId = fc
  .tuple(
    fc.constantFrom(...digits.slice(0, 8)),
    fc.string({ unit: fc.constantFrom(...digits), minLength: 25, maxLength: 25 }),
  )
  .map(([first, rest]) => `pi_${first}${rest}`);
const anyBytes = fc
  .uint8Array({ maxLength: 80 })
  .map((bytes): Hex => `0x${Buffer.from(bytes).toString('hex')}`);
/** Pieces of misleading calldata. */
const piece = fc.oneof(
  anyBytes,
  anyId.map((text) => stringToHex(text)),
  fc.constantFrom<Hex>(call(), call('0x', stranger), call('0x', wallet, 1n), '0xa9059cbb', zero32),
  // The call with an id that does not follow directly, is cut short or is in capitals.
  anyId.map((text) => call(stringToHex(`.${text}`))),
  anyId.map((text) => call(stringToHex(text.slice(0, -1)))),
  anyId.map((text) => call(stringToHex(text.toUpperCase()))),
  // An id next to another transfer.
  anyId.map((text) => call(stringToHex(text), stranger)),
  anyId.map((text) => call(stringToHex(text), wallet, 1n)),
);
const misleading = fc.array(piece, { maxLength: 6 }).map((pieces) => concatHex(['0x', ...pieces]));
/** Keeps the pieces from completing an id together with the bytes next to them. */
const stop: Hex = '0xff';
const around = fc
  .tuple(misleading, misleading)
  .map(([a, b]) => [concatHex([a, stop]), concatHex([stop, b])] as const);

/** Returns the ids directly after each matching call, by an independent search. */
function idsAfterCall(data: Hex): string[] {
  const bytes = Buffer.from(data.slice(2), 'hex');
  const wanted = Buffer.from(call().slice(2), 'hex');
  const found: string[] = [];
  for (let at = bytes.indexOf(wanted); at !== -1; at = bytes.indexOf(wanted, at + 1)) {
    const text = bytes.subarray(at + wanted.length, at + wanted.length + 29).toString('latin1');
    if (/^pi_[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(text)) found.push(text);
  }
  return found;
}

const owned = [
  [
    'a call by the owner',
    (data: Hex) => ({ transfer: log, transaction: sent(owner, router, data), logs: [plain(log)] }),
  ],
  [
    'an operation by the owner',
    (data: Hex) => {
      const op = { ...ownOp, callData: data };
      return {
        transfer: logAt(5),
        transaction: sent(stranger, entryPoint, in07([strangersOp, op])),
        logs: [
          began(entryPoint, 3),
          ended(entryPoint, strangersOp, 4),
          plain(logAt(5)),
          ended(entryPoint, op, 6),
        ],
      };
    },
  ],
] as const;

describe.for(owned)('%s', ([, spoken]) => {
  const read = (data: Hex) => {
    const { transfer, transaction, logs } = spoken(data);
    return readNamedIntents(transaction).of(transfer, logs);
  };

  test('an id that does not directly follow the call is ignored', async () => {
    await fc.assert(
      fc.asyncProperty(misleading, async (data) => {
        fc.pre(idsAfterCall(data).length === 0);
        expect(await read(data)).toBeUndefined();
      }),
    );
  });

  test('an id directly after the call is found among all others', async () => {
    await fc.assert(
      fc.asyncProperty(anyId, around, async (text, [before, behind]) => {
        fc.pre(idsAfterCall(concatHex([before, behind])).length === 0);
        expect(await read(concatHex([before, withId(text), behind]))).toBe(text);
      }),
    );
  });

  test('names no intent if there are more calls with its id than transfers', async () => {
    await fc.assert(
      fc.asyncProperty(anyId, fc.integer({ min: 2, max: 5 }), async (text, times) => {
        expect(await read(concatHex(Array.from({ length: times }, () => withId(text))))).toBeUndefined();
      }),
    );
  });
});

test('ids added to a bundle by others are ignored', async () => {
  const noise = fc.array(
    fc.record({
      sender: fc.constantFrom(stranger, router, multicall3),
      nonce: fc.constantFrom(6n, 7n, 8n),
      callData: fc.oneof(misleading, anyId.map(withId)),
    }),
    { maxLength: 4 },
  );
  await fc.assert(
    fc.asyncProperty(
      noise,
      noise,
      misleading,
      anyId,
      fc.option(anyId),
      async (before, behind, appended, thief, own) => {
        const op: Op = { ...ownOp, callData: own === null ? call() : withId(own) };
        const ops = [...before, op, ...behind];
        const logs: PlainLog[] = [began(entryPoint, 0)];
        let transfer = log;
        for (const each of ops) {
          const paid = logAt(logs.length, each.sender);
          logs.push(plain(paid), ended(entryPoint, each, logs.length + 1));
          if (each === op) transfer = paid;
        }
        const input = concatHex([in07(ops), appended, withId(thief)]);
        expect(await readNamedIntents(sent(stranger, entryPoint, input)).of(transfer, logs)).toBe(
          own ?? undefined,
        );
      },
    ),
  );
});

test('a direct transfer names the only id after its arguments', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.oneof(
          anyBytes,
          anyId.map((text) => stringToHex(text)),
        ),
        { maxLength: 4 },
      ),
      async (pieces) => {
        const suffix = concatHex(['0x', ...pieces]);
        const text = Buffer.from(suffix.slice(2), 'hex').toString('latin1');
        const ids = new Set(text.match(/pi_[0-7][0-9a-hjkmnp-tv-z]{25}/g));
        const [only] = ids.size === 1 ? ids : [];
        expect(await readNamedIntents(sent(owner, token, call(suffix))).of(log, [])).toBe(only);
      },
    ),
  );
});

test('random transactions and receipts name nothing, and nothing throws', async () => {
  const address = fc.constantFrom<Address>(
    token,
    wallet,
    owner,
    stranger,
    multicall3,
    ...entryPoints.map(([, each]) => each),
  );
  const topic = fc.oneof(
    fc.constantFrom(transferTopic, beforeExecution, userOperationEvent, padHex(owner), padHex(wallet)),
    fc
      .uint8Array({ minLength: 32, maxLength: 32 })
      .map((bytes): Hex => `0x${Buffer.from(bytes).toString('hex')}`),
  );
  const anyLog = fc.record({
    address,
    topics: fc.array(topic, { maxLength: 4 }),
    data: fc.oneof(anyBytes, fc.constantFrom<Hex>('0x', numberToHex(amountUnits, { size: 32 }))),
    logIndex: fc.nat(6),
  });
  const selector = fc.constantFrom<Hex>(
    '0x',
    '0x1fad948c',
    '0x765e827f',
    '0x6a761202',
    '0xa9059cbb',
    '0x82ad56cb',
  );
  const input = fc.oneof(
    fc.tuple(selector, misleading).map(([head, rest]) => concatHex([head, rest])),
    // Valid input that is cut off or has one byte changed.
    fc
      .tuple(
        fc.constantFrom(in06([ownOp]), in07([ownOp, strangersOp]), inMulticall(call())),
        fc.nat(2_000),
        fc.nat(255),
        fc.boolean(),
      )
      .map(([data, at, byte, isCut]): Hex => {
        const bytes = Buffer.from(data.slice(2), 'hex');
        const place = at % bytes.length;
        bytes[place] = byte;
        return `0x${(isCut ? bytes.subarray(0, place) : bytes).toString('hex')}`;
      }),
  );
  await fc.assert(
    fc.asyncProperty(
      address,
      address,
      fc.option(address),
      input,
      fc.array(anyLog, { maxLength: 8 }),
      async (from, sender, to, data, logs) => {
        const transfer = logAt(2, from);
        const transaction = sent(sender, to, data);
        await readNamedIntents(transaction).needsReceipt(transfer);
        const named = await readNamedIntents(transaction).of(transfer, logs);
        if (named === undefined) return;
        // A direct transfer has the id anywhere after the arguments, everything else directly after the call.
        if (to === token && sender === from)
          expect(Buffer.from(data.slice(2), 'hex').toString('latin1')).toContain(named);
        else expect(idsAfterCall(data)).toContain(named);
      },
    ),
    { numRuns: 5_000 },
  );
});

test('a receipt is read only for a transfer with an id after its call, so that dust costs a node nothing', async () => {
  const needs = (input: Hex) => readNamedIntents(sent(owner, router, input)).needsReceipt(logAt(0));
  expect(await needs(call())).toBe(false);
  expect(await needs(concatHex([call(), stringToHex(`x${id}`)]))).toBe(false);
  expect(await needs(withId(id))).toBe(true);
});

test('the input of a transaction with thousands of equal transfers is read once', async () => {
  const repeated = call(stringToHex(id));
  const input = concatHex(Array.from({ length: 1_100 }, () => repeated));
  const made = Array.from({ length: 1_100 }, (_, place) => logAt(place));
  const more = Array.from({ length: 2_000 }, (_, place) => ({
    ...logAt(1_100 + place),
    amountUnits: BigInt(place),
  }));
  const startedAtMs = performance.now();
  const named = readNamedIntents(sent(owner, router, input));
  const logs = [...made, ...more].map(plain);
  const namedBy = (log: TransferLog) => named.of(log, logs);
  expect(await Promise.all(made.map(namedBy))).toEqual(made.map(() => id));
  expect(await Promise.all(more.map(namedBy))).toEqual(more.map(() => undefined));
  // About 50 ms. Reading the input again for each transfer would take half a minute.
  expect(performance.now() - startedAtMs).toBeLessThan(5_000);
});

/** A bundle whose operations are heads that point at calldata in the bytes after them, at these offsets. */
function pointingBundle(places: readonly number[], bytes: Hex) {
  const word = (value: number) => numberToHex(value, { size: 32 });
  const count = places.length;
  const headBytes = 9 * 32;
  const operations = places.map((_, i) => ({ ...ownOp, nonce: BigInt(i) }));
  const input = concatHex([
    in07([]).slice(0, 2 + 8) as Hex,
    word(64),
    padHex(stranger),
    word(count),
    ...operations.map((_, i) => word(32 * count + headBytes * i)),
    ...operations.flatMap(({ sender, nonce }, i) => [
      padHex(sender),
      numberToHex(nonce, { size: 32 }),
      word(0),
      word(headBytes * (count - i) + (places[i] as number)),
      ...Array.from({ length: 5 }, () => word(0)),
    ]),
    bytes,
  ]);
  return { transaction: sent(stranger, entryPoint, input), operations };
}

/** Reads the names of the bundle's transfers, one for each operation. Also counts turns of the event loop. */
async function namesInBundle(
  { transaction, operations }: ReturnType<typeof pointingBundle>,
  amounts: bigint[],
) {
  const made = amounts.map((amount, i) => ({ ...logAt(3 * i + 1), amountUnits: amount }));
  const logs = operations.flatMap((operation, i) => [
    began(entryPoint, 3 * i),
    plain(made[i] as TransferLog),
    ended(entryPoint, operation, 3 * i + 2),
  ]);
  let turns = 0;
  const counting = setInterval(() => turns++, 0);
  const named = readNamedIntents(transaction);
  const found = await Promise.all(made.map((log) => named.of(log, logs)));
  clearInterval(counting);
  return { found, turns };
}

test('operations that share a large call are read once, without blocking the event loop', async () => {
  const more = Array.from({ length: 3_000 }, (_, i) => call(stringToHex(otherId), wallet, BigInt(i)));
  const callData = concatHex([withId(id), ...more]);
  const length = numberToHex((callData.length - 2) / 2, { size: 32 });
  const count = 1_000;
  const bundle = pointingBundle(Array(count).fill(0), concatHex([length, callData]));
  const startedAtMs = performance.now();
  const { found, turns } = await namesInBundle(bundle, Array(count).fill(amountUnits));
  expect([found.length, new Set(found)]).toEqual([count, new Set([id])]);
  // About 20 ms. Reading each operation by itself would read 500 MB in all.
  expect(performance.now() - startedAtMs).toBeLessThan(5_000);
  expect(turns).toBeGreaterThan(0);
});

test('operations whose calldata overlaps are read once', async () => {
  const count = 1_000;
  const amounts = Array.from({ length: count }, (_, i) => BigInt(i + 1));
  const others = concatHex(
    Array.from({ length: 10 }, (_, i) => call(stringToHex(otherId), wallet, 10_000n + BigInt(i))),
  );
  const parts = amounts.map((amount) => concatHex([call(stringToHex(id), wallet, amount), others]));
  const partBytes = 32 + ((parts[0] as Hex).length - 2) / 2;
  // A length before each part: all that follows belongs to its operation.
  const bytes = concatHex(
    parts.flatMap((part, i) => [numberToHex(partBytes * (count - i) - 32, { size: 32 }), part]),
  );
  const bundle = pointingBundle(
    parts.map((_, i) => partBytes * i),
    bytes,
  );
  const startedAtMs = performance.now();
  const { found } = await namesInBundle(bundle, amounts);
  expect([found.length, new Set(found)]).toEqual([count, new Set([id])]);
  // About 50 ms. Reading each operation by itself would read 700 MB in all.
  expect(performance.now() - startedAtMs).toBeLessThan(5_000);
});
