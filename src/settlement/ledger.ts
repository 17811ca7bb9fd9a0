// What is known of one chain, in the database. Everything that changes it names the lease under which it was read from
// the chain: a watcher whose lease has gone to another one changes nothing any more.
//
// Order of locks, here as everywhere: the lease, intents by id, transfers, events.

import type { EntityManager } from '@mikro-orm/postgresql';
import { checksum } from 'ox/Address';
import type { Address, Hash } from 'viem';
import type { EventType } from '../contract/event-types.ts';
import {
  maxExpiryMinutes,
  PaymentIntentEntity,
  type PaymentIntentRow,
  type StatusName,
} from '../database/entities/payment-intent.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { lowestUuid, newUuid, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { type ChangeStep, changeOf, storeChanges } from '../payment-intents/change-payment-intents.ts';
import { createExpireSome, type Expiry } from '../payment-intents/expire-payment-intents.ts';
import { createPaymentsReader } from '../payment-intents/payments.ts';
import type { Tracing } from '../requests/tracing.ts';
import { onlyCandidate } from './attribution.ts';
import { confirmedUnits } from './confirmed-units.ts';
import { type Arrival, arrive, confirm, isOpen, type Judged, judge, takeBack } from './judgement.ts';
import type { Header, TransferLog } from './node-answers.ts';
import { transferEventData } from './transfer.ts';
import { type ChainSettings, isRightToken } from './watched-chain.ts';

/** How long a lease lasts: several polls. A watcher that waits longer for its node may lose it to another, which does no harm. */
const defaultLeaseMs = 6_000;
/** Merchants are told of a transfer to a wallet that an intent of theirs expected so long ago at most. */
const reportDays = 30;
/** An intent that ended without being paid may still be paid by a transfer without an id so long. */
const candidateHours = 24;
/** Intents of one transaction that are confirmed. */
const maxConfirmed = 500;

/** The lease has gone to another watcher, or the chain was taken back by it: begin again from the database. */
export class LeaseLost extends Error {
  constructor() {
    super('another process watches this chain now');
    this.name = 'LeaseLost';
  }
}

/** How far a chain has been read. */
export interface Progress {
  genesisHash: Hash;
  cursor: { number: number; hash: Hash; time: Date };
  secondNumber: number;
}

/** A merchant to whom transfers to a wallet matter. */
export interface WalletOwner {
  merchantId: string;
  /** It is the merchant's payout wallet. */
  isPayoutWallet: boolean;
  /** An intent of the merchant expected it lately. */
  isExpected: boolean;
}

/** A transfer to a wallet that matters to somebody. */
export interface FoundTransfer {
  log: TransferLog;
  blockTime: Date;
  /** The public id of the intent that the owner of the money named. */
  named: string | undefined;
  owners: readonly WalletOwner[];
}

/** A change of an intent that is durable, or another event. */
export interface Change {
  /** UUIDs. Without an intent: a transfer is unattributed. */
  paymentIntent: string | undefined;
  merchantId: string;
  event: EventType;
  /** The intent's status and labels after it. */
  status: StatusName | undefined;
  labels: readonly string[];
}

/** A transfer that has its confirmations. */
export type DueTransfer = Pick<
  TransferRow,
  | 'id'
  | 'transactionHash'
  | 'logIndex'
  | 'blockHash'
  | 'blockTime'
  | 'tokenAddress'
  | 'fromAddress'
  | 'toAddress'
  | 'amountUnits'
> & { blockNumber: number };

export interface Ledger {
  /** Undefined if the chain was never watched. */
  progress(): Promise<Progress | undefined>;
  /** Begins to watch the chain from that block on: those behind it are read. Does nothing if it is watched. */
  begin(genesisHash: Hash, from: Header): Promise<void>;
  /** Forgets every block: the chain of this machine has begun anew. Its transfers are taken back. Throws LeaseLost. */
  beginAnew(lease: bigint, genesis: Header): Promise<void>;
  /** Takes the lease for this holder. Returns its number, or undefined while another holder has it. */
  acquire(holder: string): Promise<bigint | undefined>;
  /** Keeps the lease, and notes the node's newest and newest final block. Throws LeaseLost. */
  keep(lease: bigint, seen: { head: number; finalized: number }): Promise<void>;
  /** Keeps the lease during work that takes long, if a third of it has passed. Throws LeaseLost. */
  renew(lease: bigint): Promise<void>;
  release(lease: bigint): Promise<void>;
  /** Blocks up to that one of which we know the hash, newest first: headers that are held, and blocks with payments. */
  knownBlocks(upTo: number, limit: number): Promise<{ number: number; hash: Hash; time: Date }[]>;
  /** Wallets that transfers may matter to, in lower case, at most that many. */
  wallets(limit: number): Promise<Address[]>;
  /** To whom transfers to these addresses (in lower case) matter. */
  ownersOf(wallets: readonly Address[]): Promise<Map<Address, WalletOwner[]>>;
  /**
   * Records a block and what is in it. `after` is the hash of the block it follows; undefined for blocks that were read
   * before, in which something is found late. Throws LeaseLost.
   */
  apply(
    lease: bigint,
    block: Pick<Header, 'number' | 'hash' | 'time'> & { isDoubtful?: boolean },
    transfers: readonly FoundTransfer[],
    after: Hash | undefined,
  ): Promise<Change[]>;
  /** Takes back every block above the ancestor. Returns the transfers that were taken back. Throws LeaseLost. */
  takeBackTo(lease: bigint, ancestor: { number: number; hash: Hash; time: Date }): Promise<number>;
  /** Takes back transfers that the chain turned out not to have. Throws LeaseLost. */
  takeBackTransfers(lease: bigint, ids: readonly string[]): Promise<void>;
  /** Pending transfers in blocks up to that one. */
  due(upTo: number): Promise<DueTransfer[]>;
  /** Confirms transfers, and with them the intents that they pay. Throws LeaseLost. */
  confirmAll(lease: bigint, ids: readonly string[]): Promise<void>;
  /** Transfers in these blocks that are on the chain as far as we know. */
  transfersIn(from: number, to: number): Promise<DueTransfer[]>;
  /** Transactions of transfers that were found in the last day and taken back, newest first. */
  takenBack(limit: number): Promise<Hash[]>;
  /** Blocks of the last day whose answer is doubted, newest first. */
  doubtful(limit: number): Promise<{ number: number; hash: Hash }[]>;
  /** The answer for that block is no longer doubted. Throws LeaseLost. */
  trust(lease: bigint, number: number): Promise<void>;
  /**
   * Notes that everything up to this block was read a second time, while `cursor` was read once. Resolves with false, and
   * notes nothing, if that was taken back meanwhile. Throws LeaseLost.
   */
  noteSecondReading(lease: bigint, number: number, cursor: Progress['cursor']): Promise<boolean>;
  /** Expires some intents by the chain's clock, without a word to `onChanges`. Throws LeaseLost. */
  expireSome(lease: bigint): Promise<Expiry>;
  /** Forgets headers below that number but for one a day. */
  forgetHeaders(lease: bigint, below: number): Promise<void>;
}

export interface LedgerOptions {
  settings: ChainSettings;
  /** Called with what has become durable at once. */
  onChanges: (changes: readonly Change[]) => void;
  onUnreadable: (id: string, reason: unknown) => void;
  /** The trace in which transactions are, and the events they record. */
  tracing?: Pick<Tracing, 'transaction' | 'chainTraceparent'>;
  /** How long a lease lasts. */
  leaseMs?: number;
}

const untraced: NonNullable<LedgerOptions['tracing']> = {
  transaction: (run) => run(),
  chainTraceparent: () => null,
};

const bytes = (hash: string) => `\\x${hash.slice(2)}`;
const hashOf = (value: Buffer): Hash => `0x${value.toString('hex')}`;

/** Returns what is known of one chain. Several may exist at once, in any number of processes: the lease decides. */
export function createLedger(
  em: EntityManager,
  { settings, onChanges, onUnreadable, tracing = untraced, leaseMs = defaultLeaseMs }: LedgerOptions,
): Ledger {
  const { chainId, mode, chain, networks } = settings;
  const { run, transaction } = createPreparedStatements(em);
  const intents = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  const readPayments = createPaymentsReader(em);
  const expire = createExpireSome(em, onUnreadable);
  const networkIds = networks.map(({ id }) => id);
  let keptAtMs = 0;
  const lockIntents = preparedStatement(
    'lock_payment_intents',
    `select ${intents.of('i')} from payment_intents i where i.id = any ($1::uuid[]) order by i.id for update`,
  );
  const findTransfers = preparedStatement(
    'find_transfers_of_transactions',
    `select ${transfers.of('t')} from transfers t where t.transaction_hash = any ($1::bytea[]) and t.chain_id = $2`,
  );
  const findIntents = preparedStatement(
    'find_named_payment_intents',
    `select id, merchant_id, expected_wallet from payment_intents
      where id = any ($1::uuid[]) and network = any ($2::smallint[])`,
  );
  const upsertTransfers = preparedStatement(
    'upsert_transfers',
    `insert into transfers as t (id, merchant_id, mode, chain_id, transaction_hash, log_index, block_number, block_hash,
                                 block_time, from_address, to_address, token_address, amount_units, ordinal, state,
                                 payment_intent, counts, labels, created_at)
     select n.id, n.merchant_id, $16::payment_mode, $17, n.transaction_hash, n.log_index, n.block_number, n.block_hash,
            n.block_time, n.from_address, n.to_address, n.token_address, n.amount_units, n.ordinal, 'pending',
            n.payment_intent, n.counts, string_to_array(n.labels, ' '), $18
       from unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::int[], $5::bigint[], $6::bytea[], $7::timestamptz[], $8::bytea[],
                   $9::bytea[], $10::bytea[], $11::bigint[], $12::int[], $13::uuid[], $14::bool[], $15::text[])
              as n (id, merchant_id, transaction_hash, log_index, block_number, block_hash, block_time, from_address,
                    to_address, token_address, amount_units, ordinal, payment_intent, counts, labels)
     on conflict (transaction_hash, merchant_id, chain_id, token_address, from_address, to_address, amount_units, ordinal)
     do update set log_index = excluded.log_index, block_number = excluded.block_number, block_hash = excluded.block_hash,
                   block_time = excluded.block_time, state = 'pending', payment_intent = excluded.payment_intent,
                   counts = excluded.counts, labels = excluded.labels`,
  );

  const hold = async (runs: RunPrepared, lease: bigint): Promise<void> => {
    const { rowCount } = await runs(holdLease, [chainId, String(lease), leaseMs]);
    if (rowCount !== 1) throw new LeaseLost();
    keptAtMs = performance.now();
  };

  const holding = async <T>(lease: bigint, work: (inside: RunPrepared) => Promise<T>): Promise<T> =>
    tracing.transaction(() =>
      transaction(async (inside) => {
        await hold(inside, lease);
        return work(inside);
      }),
    );

  /** Locks intents in the order of their ids. */
  const lock = async (inside: RunPrepared, ids: Iterable<string>): Promise<Map<string, PaymentIntentRow>> => {
    const wanted = [...new Set(ids)].sort();
    if (wanted.length === 0) return new Map();
    const { rows } = await inside(lockIntents, [wanted]);
    return new Map(rows.map((row) => [row.id as string, intents.read(row)]));
  };

  /** Stores the steps of locked intents, with their payments as they are now. */
  const store = async (
    inside: RunPrepared,
    steps: ReadonlyMap<PaymentIntentRow, readonly ChangeStep[]>,
    at: Date,
  ): Promise<Change[]> => {
    const changing = [...steps].filter(([, own]) => own.length > 0);
    if (changing.length === 0) return [];
    const traceparent = tracing.chainTraceparent();
    // The count of a row that is read is still the one before: the new payments are looked for too.
    const payments = await readPayments(
      inside,
      changing.map(([row, own]) => ({
        ...row,
        paymentsCount: own.at(-1)?.fields.paymentsCount ?? row.paymentsCount,
      })),
    );
    const changes = changing.map(([row, own]) =>
      changeOf(row, own, payments.get(row.id) ?? [], at, traceparent),
    );
    const stored = await storeChanges(inside, changes);
    if (stored.size !== changes.length) throw new Error('an intent was changed while it was locked');
    return changes.flatMap(({ row, events }) =>
      events.map(({ type }) => ({
        paymentIntent: row.id,
        merchantId: row.merchantId,
        event: type,
        status: row.status,
        labels: row.labels ?? [],
      })),
    );
  };

  const networkOfIntent = (row: PaymentIntentRow) => networks.find(({ id }) => id === row.network);

  const arrivalOf = (
    row: PaymentIntentRow,
    { log, blockTime }: FoundTransfer,
    isReturned: boolean,
  ): Arrival => {
    const network = networkOfIntent(row);
    return {
      amountUnits: log.amountUnits,
      blockTime,
      isRightToken: network !== undefined && isRightToken(network, log.token),
      isReturned,
    };
  };

  /**
   * Whose payment each transfer is, within each merchant to whom it matters. One that is known and unattributed has no
   * candidates any more: only its id tells.
   */
  const attribute = async (
    inside: RunPrepared,
    block: Pick<Header, 'time'>,
    found: readonly { transfer: FoundTransfer; merchantId: string; isUnattributed: boolean }[],
  ): Promise<(string | undefined)[]> => {
    const named = new Map<string, { merchantId: string; wallet: string }>();
    const ids = found.flatMap(({ transfer: { named } }) => (named && parseIdentifier('pi', named)) ?? []);
    if (ids.length > 0) {
      const { rows } = await inside(findIntents, [[...new Set(ids)], networkIds]);
      for (const row of rows) {
        named.set(row.id, { merchantId: row.merchant_id, wallet: hashOf(row.expected_wallet) });
      }
    }
    const proven = found.map(({ transfer }) => {
      const id = transfer.named && parseIdentifier('pi', transfer.named);
      const intent = id ? named.get(id) : undefined;
      return intent?.wallet === transfer.log.to
        ? { id: id as string, merchantId: intent.merchantId }
        : undefined;
    });
    const open = found.flatMap(({ transfer, merchantId, isUnattributed }, i) =>
      proven[i] === undefined && !isUnattributed ? [{ i, merchantId, log: transfer.log }] : [],
    );
    const chosen: (string | undefined)[] = proven.map((intent, i) =>
      intent?.merchantId === found[i]?.merchantId ? intent?.id : undefined,
    );
    if (open.length === 0) return chosen;
    const timeMs = block.time.getTime();
    const { rows } = await inside(findCandidates, [
      open.map(({ i }) => i),
      open.map(({ log }) => bytes(log.to)),
      open.map(({ merchantId }) => merchantId),
      open.map(({ log }) => String(log.amountUnits)),
      networkIds,
      // Created no later than the block, in whole seconds.
      new Date(timeMs + 1_000).toISOString(),
      new Date(timeMs - candidateHours * 3_600_000).toISOString(),
      await oldestCandidate(inside, timeMs),
    ]);
    for (const row of rows) {
      chosen[row.place] = onlyCandidate(row.expecting ?? [], {
        count: row.named_count,
        payable: row.named_id ?? undefined,
      });
    }
    return chosen;
  };

  /** The lowest id that an intent may have which a transfer at that time can be for: a bound for the search. */
  const oldestCandidate = async (inside: RunPrepared, timeMs: number): Promise<string> => {
    const { rows } = await inside(findOldestOpen, [networkIds]);
    const oldestOpenMs = rows[0]?.expires_at == null ? timeMs : new Date(rows[0].expires_at).getTime();
    const longestMs = maxExpiryMinutes * 60_000;
    return lowestUuid(Math.min(oldestOpenMs, timeMs - candidateHours * 3_600_000 - longestMs) - longestMs);
  };

  /** Records transfers of one block, and what they do to intents. */
  const record = async (
    inside: RunPrepared,
    block: Pick<Header, 'number' | 'hash' | 'time'>,
    found: readonly FoundTransfer[],
    at: Date,
  ): Promise<Change[]> => {
    if (found.length === 0) return [];
    const hashes = [...new Set(found.map(({ log }) => log.transactionHash))];
    const { rows: knownRows } = await inside(findTransfers, [hashes.map(bytes), chainId]);
    const known = knownRows.map((row) => transfers.read(row));
    // Said to be in another block before, which cannot be as well.
    const moved = known.filter(
      ({ state, blockHash }) => state !== 'reorged' && blockHash !== block.hash.slice(2),
    );
    const taken = await takeBackRows(
      inside,
      moved.map(({ id, paymentIntent, state }) => ({ id, payment_intent: paymentIntent ?? null, state })),
      at,
    );
    const perMerchant = matchKnown(block, found, known).map((entry) => ({
      ...entry,
      isUnattributed: entry.isThere && entry.before?.paymentIntent == null,
    }));

    // A node may have hidden the id of what is there already: the second reading finds it.
    const arriving = perMerchant.filter(
      ({ isThere, isUnattributed, transfer }) => !isThere || (isUnattributed && transfer.named !== undefined),
    );
    const guesses = await attribute(inside, block, arriving);
    const attributed = arriving
      .map((entry, i) => ({
        ...entry,
        // A transfer that returns stays with its intent, also if it was attributed by hand.
        intentId: entry.before?.paymentIntent ?? guesses[i],
      }))
      .filter(({ isUnattributed, intentId }) => !isUnattributed || intentId !== undefined);
    const rows = await lock(
      inside,
      attributed.flatMap(({ intentId }) => intentId ?? []),
    );

    const arrivals = new Map<PaymentIntentRow, (Arrival & { judged: Judged })[]>();
    const restored = new Set<PaymentIntentRow>();
    const next: TransferRow[] = [];
    const reported: TransferRow[] = [];
    for (const { transfer, merchantId, ordinal, before, intentId } of attributed) {
      const intent = intentId === undefined ? undefined : rows.get(intentId);
      const row: TransferRow = {
        ...newTransfer(transfer, merchantId, ordinal, at),
        ...(before && { id: before.id, createdAt: before.createdAt }),
      };
      if (intent === undefined) {
        if (!isReportedTo(transfer, merchantId)) continue;
        row.labels = isUsdc(transfer.log.token) ? null : ['wrong_token'];
        next.push(row);
        if (before === undefined) reported.push(row);
        continue;
      }
      const isReturned = before?.paymentIntent === intent.id;
      const arrival = arrivalOf(intent, transfer, isReturned);
      // It counted at the end, or it did not: its return changes nothing about that. What was taken back before the end
      // is judged as if it were new.
      const isRestored = isReturned && !isOpen(intent) && (before.counts || (before.labels ?? []).length > 0);
      const judged: Judged = isRestored
        ? { counts: before.counts, labels: before.labels ?? [] }
        : judge(intent, arrival);
      next.push({
        ...row,
        paymentIntent: intent.id,
        counts: judged.counts,
        labels: judged.labels.length > 0 ? judged.labels : null,
      });
      if (isRestored) restored.add(intent);
      else arrivals.set(intent, [...(arrivals.get(intent) ?? []), { ...arrival, judged }]);
    }
    await upsert(inside, next, at);

    const steps = new Map<PaymentIntentRow, ChangeStep[]>();
    for (const [intent, own] of arrivals) steps.set(intent, arrive(intent, own));
    for (const intent of restored) {
      // The last word: what has returned is in this sum again.
      const restoring = takeBack(intent, { ...(await remainingOf(inside, intent.id)), wasConfirmed: false });
      steps.set(intent, [...(steps.get(intent) ?? []), restoring]);
    }
    const changes = await store(inside, steps, at);
    await report(inside, reported, block.number, at);
    return [
      ...taken,
      ...changes,
      ...reported.map(
        ({ merchantId }): Change => ({
          paymentIntent: undefined,
          merchantId,
          event: 'transfer.unattributed',
          status: undefined,
          labels: [],
        }),
      ),
    ];
  };

  const isUsdc = (token: string) => networks.some((network) => isRightToken(network, token));

  const newTransfer = (
    { log, blockTime }: FoundTransfer,
    merchantId: string,
    ordinal: number,
    at: Date,
  ): TransferRow => ({
    id: newUuid(at.getTime()),
    merchantId,
    mode,
    chainId,
    transactionHash: log.transactionHash.slice(2),
    logIndex: log.logIndex,
    blockNumber: BigInt(log.blockNumber),
    blockHash: log.blockHash.slice(2),
    blockTime,
    fromAddress: checksum(log.from),
    toAddress: checksum(log.to),
    tokenAddress: checksum(log.token),
    amountUnits: log.amountUnits,
    ordinal,
    state: 'pending',
    paymentIntent: null,
    attributedByHand: false,
    counts: false,
    labels: null,
    createdAt: at,
  });

  const upsert = async (inside: RunPrepared, rows: readonly TransferRow[], at: Date): Promise<void> => {
    if (rows.length === 0) return;
    await inside(upsertTransfers, [
      rows.map(({ id }) => id),
      rows.map(({ merchantId }) => merchantId),
      rows.map(({ transactionHash }) => `\\x${transactionHash}`),
      rows.map(({ logIndex }) => logIndex),
      rows.map(({ blockNumber }) => String(blockNumber)),
      rows.map(({ blockHash }) => `\\x${blockHash}`),
      rows.map(({ blockTime }) => blockTime.toISOString()),
      rows.map(({ fromAddress }) => bytes(fromAddress)),
      rows.map(({ toAddress }) => bytes(toAddress)),
      rows.map(({ tokenAddress }) => bytes(tokenAddress)),
      rows.map(({ amountUnits }) => String(amountUnits)),
      rows.map(({ ordinal }) => ordinal),
      rows.map(({ paymentIntent }) => paymentIntent ?? null),
      rows.map(({ counts }) => counts),
      rows.map(({ labels }) => labels?.join(' ') ?? null),
      mode,
      chainId,
      at.toISOString(),
    ]);
  };

  const report = async (inside: RunPrepared, rows: readonly TransferRow[], head: number, at: Date) => {
    if (rows.length === 0) return;
    await inside(insertTransferEvents, [
      rows.map(() => newUuid(at.getTime())),
      rows.map(({ merchantId }) => merchantId),
      rows.map((row) => transferEventData(row, head)),
      mode,
      at.toISOString(),
      tracing.chainTraceparent(),
    ]);
  };

  const durable = (changes: readonly Change[]): void => {
    if (changes.length > 0) onChanges(changes);
  };

  /** Does the work under the lease, and says what it has changed when that is durable. */
  const changing = async (
    lease: bigint,
    work: (inside: RunPrepared) => Promise<Change[]>,
  ): Promise<Change[]> => {
    const changes = await holding(lease, work);
    durable(changes);
    return changes;
  };

  const remainingOf = async (inside: RunPrepared, intentId: string) => {
    const { rows } = await inside(sumPayments, [intentId]);
    return { receivedUnits: BigInt(rows[0]?.received ?? 0), labels: (rows[0]?.labels ?? []) as string[] };
  };

  /** Takes back the transfers with these ids, and what they did to intents. */
  const takeBackRows = async (
    inside: RunPrepared,
    rows: readonly TakenTransfer[],
    at: Date,
  ): Promise<Change[]> => {
    if (rows.length === 0) return [];
    const affected = await lock(
      inside,
      rows.flatMap(({ payment_intent }) => payment_intent ?? []),
    );
    const open = [...affected.values()].filter(isOpen);
    await inside(markReorged, [rows.map(({ id }) => id), open.map(({ id }) => id)]);
    const steps = new Map<PaymentIntentRow, ChangeStep[]>();
    for (const [id, intent] of affected) {
      const wasConfirmed = rows.some((row) => row.payment_intent === id && row.state === 'confirmed');
      steps.set(intent, [takeBack(intent, { ...(await remainingOf(inside, id)), wasConfirmed })]);
    }
    return store(inside, steps, at);
  };

  return {
    async progress() {
      const { rows } = await run(findProgress, [chainId]);
      const [row] = rows;
      return (
        row && {
          genesisHash: hashOf(row.genesis_hash),
          cursor: {
            number: Number(row.cursor_number),
            hash: hashOf(row.cursor_hash),
            time: new Date(row.cursor_time),
          },
          secondNumber: Number(row.second_number),
        }
      );
    },
    async begin(genesisHash, from) {
      await run(insertChain, [
        chainId,
        mode,
        chain,
        bytes(genesisHash),
        from.number,
        bytes(from.hash),
        from.time.toISOString(),
      ]);
    },
    async beginAnew(lease, genesis) {
      await changing(lease, async (inside) => {
        const rows = await rowsOf(inside(findAbove, [chainId, -1]));
        const taken = await takeBackRows(inside, rows, new Date());
        await inside(restart, [chainId, bytes(genesis.hash), genesis.time.toISOString()]);
        return taken;
      });
    },
    async acquire(holder) {
      const { rows } = await run(takeLease, [chainId, holder, leaseMs]);
      return rows[0] && BigInt(rows[0].lease_number);
    },
    async keep(lease, seen) {
      const { rowCount } = await run(keepLease, [chainId, String(lease), leaseMs, seen.head, seen.finalized]);
      if (rowCount !== 1) throw new LeaseLost();
      keptAtMs = performance.now();
    },
    async renew(lease) {
      if (performance.now() - keptAtMs > leaseMs / 3) await hold(run, lease);
    },
    async release(lease) {
      await run(releaseLease, [chainId, String(lease)]);
    },
    async knownBlocks(upTo, limit) {
      const { rows } = await run(findKnownBlocks, [chainId, upTo, limit]);
      return rows.map((row) => ({
        number: Number(row.number),
        hash: hashOf(row.hash),
        time: new Date(row.time),
      }));
    },
    async wallets(limit) {
      const { rows } = await run(findWallets, [mode, chain, limit]);
      return rows.map(({ wallet }) => hashOf(wallet));
    },
    async ownersOf(wallets) {
      const owners = new Map<Address, WalletOwner[]>();
      if (wallets.length === 0) return owners;
      const { rows } = await run(findOwners, [
        wallets.map(bytes),
        wallets.map((wallet) => checksum(wallet)),
        mode,
        chain,
        networkIds,
        // It was created before it expected anything for the last time.
        lowestUuid(Date.now() - reportDays * 86_400_000 - maxExpiryMinutes * 60_000),
      ]);
      for (const row of rows) {
        const wallet = hashOf(row.wallet);
        const owner = {
          merchantId: row.merchant_id,
          isPayoutWallet: row.is_payout_wallet,
          isExpected: row.is_expected,
        };
        owners.set(wallet, [...(owners.get(wallet) ?? []), owner]);
      }
      return owners;
    },
    async apply(lease, block, found, after) {
      const at = new Date();
      return changing(lease, async (inside) => {
        if (after !== undefined) {
          const { rowCount } = await inside(advance, [
            chainId,
            block.number,
            bytes(block.hash),
            block.time.toISOString(),
            bytes(after),
            block.isDoubtful ?? false,
          ]);
          if (rowCount !== 1) throw new LeaseLost();
        }
        return record(inside, block, found, at);
      });
    },
    async takeBackTo(lease, ancestor) {
      const { changes, count } = await holding(lease, async (inside) => {
        const rows = await rowsOf(inside(findAbove, [chainId, ancestor.number]));
        const taken = await takeBackRows(inside, rows, new Date());
        await inside(stepBack, [chainId, ancestor.number, bytes(ancestor.hash), ancestor.time.toISOString()]);
        return { changes: taken, count: rows.length };
      });
      durable(changes);
      return count;
    },
    async takeBackTransfers(lease, ids) {
      await changing(lease, async (inside) =>
        takeBackRows(inside, await rowsOf(inside(findByIds, [ids])), new Date()),
      );
    },
    async due(upTo) {
      const { rows } = await run(findDue, [chainId, upTo]);
      return rows.map((row) => dueOf(transfers.read(row)));
    },
    async confirmAll(lease, ids) {
      const at = new Date();
      for (let begin = 0; begin < ids.length; begin += maxConfirmed) {
        const some = ids.slice(begin, begin + maxConfirmed);
        await changing(lease, async (inside) => {
          const rows = await rowsOf(inside(findByIds, [some]));
          const affected = await lock(
            inside,
            rows.flatMap(({ payment_intent }) => payment_intent ?? []),
          );
          await inside(markConfirmed, [some]);
          const processing = [...affected.values()].filter(({ status }) => status === 'processing');
          if (processing.length === 0) return [];
          const sums = await confirmedUnits(
            inside,
            processing.map(({ id }) => id),
          );
          const steps = new Map(
            processing.map((row): [PaymentIntentRow, ChangeStep[]] => {
              const step = confirm(row, sums.get(row.id) ?? 0n, at);
              return [row, step === undefined ? [] : [step]];
            }),
          );
          return store(inside, steps, at);
        });
      }
    },
    async transfersIn(from, to) {
      const { rows } = await run(findBetween, [chainId, from, to]);
      return rows.map((row) => dueOf(transfers.read(row)));
    },
    async takenBack(limit) {
      const { rows } = await run(findTakenBack, [chainId, limit]);
      return rows.map((row) => hashOf(row.transaction_hash));
    },
    async doubtful(limit) {
      const { rows } = await run(findDoubtful, [chainId, limit]);
      return rows.map((row) => ({ number: Number(row.number), hash: hashOf(row.hash) }));
    },
    async trust(lease, number) {
      await holding(lease, (inside) => inside(clearDoubt, [chainId, number]));
    },
    async noteSecondReading(lease, number, cursor) {
      const { rowCount } = await holding(lease, (inside) =>
        inside(noteSecond, [chainId, number, cursor.number, bytes(cursor.hash)]),
      );
      return rowCount === 1;
    },
    async expireSome(lease) {
      return holding(lease, async (inside) => {
        const total: Expiry = { expired: 0, lagMs: 0, hasMore: false };
        for (const { id, confirmationsRequired } of networks) {
          const { rows } = await inside(findClock, [chainId, confirmationsRequired - 1]);
          const [row] = rows;
          if (row === undefined) continue;
          // A block later than the moment until which the intent may be paid: not one at it.
          const until = new Date(new Date(row.time).getTime() - 1);
          const { expired, lagMs, hasMore } = await expire(inside, { network: id, until });
          total.expired += expired;
          total.lagMs = Math.max(total.lagMs, lagMs);
          total.hasMore ||= hasMore;
        }
        return total;
      });
    },
    async forgetHeaders(lease, below) {
      await holding(lease, (inside) => inside(deleteHeaders, [chainId, below]));
    },
  };
}

/** A transfer with its intent. */
type TakenTransfer = Pick<TransferRow, 'id' | 'state'> & { payment_intent: string | null };

async function rowsOf(result: ReturnType<RunPrepared>): Promise<TakenTransfer[]> {
  return (await result).rows as TakenTransfer[];
}

function isReportedTo({ owners }: FoundTransfer, merchantId: string): boolean {
  const owner = owners.find((other) => other.merchantId === merchantId);
  const hasPayoutWallet = owners.some(({ isPayoutWallet }) => isPayoutWallet);
  return hasPayoutWallet ? owner?.isPayoutWallet === true : owner?.isExpected === true;
}

/**
 * What is known of each transfer of a block, for each merchant to whom it matters. One that is there is known by its place.
 * Another takes the lowest number that none which is there has, among the transfers of its transaction that are equal in
 * everything else: where the transaction was in another block before, it had other places.
 */
function matchKnown(
  block: Pick<Header, 'hash'>,
  found: readonly FoundTransfer[],
  known: readonly TransferRow[],
): KnownTransfer[] {
  const there = new Map<string, TransferRow>();
  const elsewhere = new Map<string, TransferRow>();
  const used = new Set<string>();
  for (const row of known) {
    const identity = identityOf(row.merchantId, row);
    const numbered = `${identity} ${row.ordinal}`;
    if (row.state === 'reorged' || row.blockHash !== block.hash.slice(2)) {
      elsewhere.set(numbered, row);
    } else {
      there.set(`${identity} ${row.logIndex}`, row);
      used.add(numbered);
    }
  }
  return found.flatMap((transfer) =>
    transfer.owners.map(({ merchantId }) => {
      const { log } = transfer;
      const identity = identityOf(merchantId, {
        transactionHash: log.transactionHash.slice(2),
        tokenAddress: log.token,
        fromAddress: log.from,
        toAddress: log.to,
        amountUnits: log.amountUnits,
      });
      const before = there.get(`${identity} ${log.logIndex}`);
      if (before !== undefined)
        return { transfer, merchantId, ordinal: before.ordinal, before, isThere: true };
      let ordinal = 0;
      while (used.has(`${identity} ${ordinal}`)) ordinal++;
      used.add(`${identity} ${ordinal}`);
      return {
        transfer,
        merchantId,
        ordinal,
        before: elsewhere.get(`${identity} ${ordinal}`),
        isThere: false,
      };
    }),
  );
}

interface KnownTransfer {
  transfer: FoundTransfer;
  merchantId: string;
  ordinal: number;
  /** As it was before; undefined if it is new. */
  before: TransferRow | undefined;
  /** It was in this place of this block before. */
  isThere: boolean;
}

type Identity = Pick<
  TransferRow,
  'transactionHash' | 'tokenAddress' | 'fromAddress' | 'toAddress' | 'amountUnits'
>;

function identityOf(merchantId: string, row: Identity): string {
  const { transactionHash, tokenAddress, fromAddress, toAddress, amountUnits } = row;
  return [merchantId, transactionHash, tokenAddress, fromAddress, toAddress, amountUnits]
    .join(' ')
    .toLowerCase();
}

function dueOf(row: TransferRow): DueTransfer {
  const { id, transactionHash, logIndex, blockHash, tokenAddress, fromAddress, toAddress, amountUnits } = row;
  return {
    id,
    transactionHash,
    logIndex,
    blockHash,
    blockTime: row.blockTime,
    tokenAddress,
    fromAddress,
    toAddress,
    amountUnits: BigInt(amountUnits),
    blockNumber: Number(row.blockNumber),
  };
}

const findProgress = preparedStatement(
  'find_watched_chain',
  `select genesis_hash, cursor_number, cursor_hash, cursor_time, second_number from watched_chains where chain_id = $1`,
);
const insertChain = preparedStatement(
  'insert_watched_chain',
  `with chain as (
     insert into watched_chains (chain_id, mode, chain, genesis_hash, cursor_number, cursor_hash, cursor_time, second_number,
                                 head_number, finalized_number, seen_at, lease_number, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $5, $5, $5, now(), 0, now())
     on conflict do nothing
     returning chain_id
   )
   insert into block_headers (chain_id, number, hash, time, is_checkpoint)
   select chain_id, $5, $6, $7, true from chain`,
);
const takeLease = preparedStatement(
  'take_chain_lease',
  `update watched_chains
      set lease_number = lease_number + 1, lease_holder = $2, lease_until = now() + $3 * interval '1 millisecond'
    where chain_id = $1 and (lease_until is null or lease_until < now())
   returning lease_number`,
);
const holdLease = preparedStatement(
  'hold_chain_lease',
  `update watched_chains set lease_until = now() + $3 * interval '1 millisecond'
    where chain_id = $1 and lease_number = $2`,
);
const keepLease = preparedStatement(
  'keep_chain_lease',
  `update watched_chains
      set lease_until = now() + $3 * interval '1 millisecond', head_number = $4, finalized_number = $5, seen_at = now()
    where chain_id = $1 and lease_number = $2`,
);
const releaseLease = preparedStatement(
  'release_chain_lease',
  'update watched_chains set lease_until = null, lease_holder = null where chain_id = $1 and lease_number = $2',
);
const advance = preparedStatement(
  'advance_chain',
  `with moved as (
     update watched_chains set cursor_number = $2, cursor_hash = $3, cursor_time = $4
      where chain_id = $1 and cursor_hash = $5
     returning chain_id
   )
   insert into block_headers (chain_id, number, hash, time, is_doubtful)
   select chain_id, $2, $3, $4, $6 from moved
   returning chain_id`,
);
/** A payment stands for its block where no header does: the second reading may have found it in one that replaces that. */
const findKnownBlocks = preparedStatement(
  'find_known_blocks',
  `(select number, hash, time from block_headers where chain_id = $1 and number <= $2 order by number desc limit $3)
   union
   (select t.block_number, t.block_hash, t.block_time from transfers t
     where t.chain_id = $1 and t.block_number <= $2 and t.state <> 'reorged'
       and not exists (select from block_headers h where h.chain_id = t.chain_id and h.number = t.block_number)
     order by t.block_number desc limit $3)
   order by number desc limit $3`,
);
/**
 * The moment that has all confirmations: the time of the block that many below the cursor. No later block is earlier, so one
 * wrong time cannot put the clock forward.
 */
const findClock = preparedStatement(
  'find_chain_clock',
  `select least(h.time, (select min(l.time) from block_headers l where l.chain_id = $1 and l.number > h.number)) as time
     from watched_chains c
     join block_headers h on h.chain_id = c.chain_id and h.number <= c.cursor_number - $2
    where c.chain_id = $1 order by h.number desc limit 1`,
);
const stepBack = preparedStatement(
  'step_chain_back',
  `with removed as (
     delete from block_headers where chain_id = $1 and number > $2
   )
   update watched_chains
      set cursor_number = $2, cursor_hash = $3, cursor_time = $4, second_number = least(second_number, $2)
    where chain_id = $1`,
);
const findTakenBack = preparedStatement(
  'find_taken_back_transfers',
  `select transaction_hash from transfers
    where chain_id = $1 and state = 'reorged' and created_at > now() - interval '1 day' order by created_at desc limit $2`,
);
const findDoubtful = preparedStatement(
  'find_doubtful_blocks',
  `select number, hash from block_headers
    where chain_id = $1 and is_doubtful and time > now() - interval '1 day' order by number desc limit $2`,
);
const clearDoubt = preparedStatement(
  'clear_doubt',
  'update block_headers set is_doubtful = false where chain_id = $1 and number = $2',
);
const noteSecond = preparedStatement(
  'note_second_reading',
  `update watched_chains set second_number = greatest(second_number, $2)
    where chain_id = $1 and cursor_number >= $3
      and not exists (select from block_headers where chain_id = $1 and number = $3 and hash <> $4)`,
);
const deleteHeaders = preparedStatement(
  'delete_block_headers',
  `with old as (
     select number, row_number() over (partition by date_trunc('day', time, 'UTC') order by number) as place
       from block_headers
      where chain_id = $1 and number < $2 and not is_checkpoint
        and not (is_doubtful and time > now() - interval '1 day')
   ), first_of_day as (
     update block_headers h set is_checkpoint = true from old
      where h.chain_id = $1 and h.number = old.number and old.place = 1
        and not exists (select from block_headers o where o.chain_id = $1 and o.is_checkpoint
                           and date_trunc('day', o.time, 'UTC') = date_trunc('day', h.time, 'UTC'))
     returning h.number
   )
   delete from block_headers h using old
    where h.chain_id = $1 and h.number = old.number and h.number not in (select number from first_of_day)`,
);

const restart = preparedStatement(
  'restart_chain',
  `with removed as (
     delete from block_headers where chain_id = $1 and number > 0
   ), genesis as (
     insert into block_headers (chain_id, number, hash, time, is_checkpoint) values ($1, 0, $2, $3, true)
     on conflict (chain_id, number) do update set hash = excluded.hash, time = excluded.time
   )
   update watched_chains
      set genesis_hash = $2, cursor_number = 0, cursor_hash = $2, cursor_time = $3, second_number = 0, head_number = 0,
          finalized_number = 0
    where chain_id = $1`,
);

/** Every wallet that an intent ever named, and the payout wallets. */
const findWallets = preparedStatement(
  'find_wallets',
  `with recursive named as (
     (select expected_wallet as wallet from payment_intents order by expected_wallet limit 1)
     union all
     select (select i.expected_wallet from payment_intents i where i.expected_wallet > n.wallet
              order by i.expected_wallet limit 1)
       from named n where n.wallet is not null
   )
   select wallet from (
     (select wallet from named where wallet is not null limit $3)
     union
     select decode(substr(address, 3), 'hex') from payout_wallets where mode = $1 and chain = $2
   ) as wallets limit $3`,
);

/** Payout wallets, and the wallets of intents that are open or were lately. */
const findOwners = preparedStatement(
  'find_wallet_owners',
  `with recursive wanted as (
     select * from unnest($1::bytea[], $2::text[]) as w (wallet, address)
   ), naming as (
     select w.wallet, (select i.merchant_id from payment_intents i where i.expected_wallet = w.wallet
                        order by i.merchant_id limit 1) as merchant_id
       from wanted w
     union all
     select n.wallet, (select i.merchant_id from payment_intents i
                        where i.expected_wallet = n.wallet and i.merchant_id > n.merchant_id
                        order by i.merchant_id limit 1)
       from naming n where n.merchant_id is not null
   ), owners as (
     select n.wallet, n.merchant_id, false as is_payout_wallet,
            exists (select from payment_intents i where i.expected_wallet = n.wallet and i.merchant_id = n.merchant_id
                       and i.network = any ($5::smallint[]) and (i.id >= $6 or i.status = 'requires_payment')) as is_expected
       from naming n where n.merchant_id is not null
     union all
     select w.wallet, p.merchant_id, true, false
       from wanted w join payout_wallets p on p.address = w.address and p.mode = $3 and p.chain = $4
   )
   select wallet, merchant_id, bool_or(is_payout_wallet) as is_payout_wallet, bool_or(is_expected) as is_expected
     from owners group by wallet, merchant_id having bool_or(is_payout_wallet or is_expected)`,
);

/**
 * For each transfer, the intents that expect its amount, two at most; and, if only one intent of the merchant ever named
 * the wallet, that one, if it is of this chain and older than the block.
 */
const findCandidates = preparedStatement(
  'find_candidates',
  `select t.place,
          (select array_agg(distinct e.id) from (
             (select i.id from payment_intents i
               where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id and i.amount_units = t.amount
                 and i.id >= $8 and i.network = any ($5::smallint[]) and i.created_at < $6
                 and (i.status = 'requires_payment'
                      or i.status in ('expired', 'canceled') and coalesce(i.canceled_at, i.expired_at) > $7)
               order by i.id desc limit 2)
             union all
             (select i.id from payment_intents i
               where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id
                 and i.status in ('requires_payment', 'expired', 'canceled')
                 and i.amount_received_units > 0 and i.amount_units - i.amount_received_units = t.amount
                 and i.network = any ($5::smallint[]) and i.created_at < $6
                 and (i.status = 'requires_payment' or coalesce(i.canceled_at, i.expired_at) > $7)
               limit 2)) e) as expecting,
          named.count as named_count, named.id as named_id
     from unnest($1::int[], $2::bytea[], $3::uuid[], $4::bigint[]) as t (place, wallet, merchant_id, amount)
    cross join lateral (
      select count(*)::int as count, (array_agg(n.id) filter (where n.network = any ($5::smallint[]) and n.created_at < $6))[1] as id
        from (select i.id, i.network, i.created_at from payment_intents i
               where i.expected_wallet = t.wallet and i.merchant_id = t.merchant_id limit 2) n
    ) named`,
);
const findOldestOpen = preparedStatement(
  'find_oldest_open_payment_intent',
  `select min(o.expires_at) as expires_at from unnest($1::smallint[]) as n (network)
    cross join lateral (
      select i.expires_at from payment_intents i where i.network = n.network and i.status = 'requires_payment'
       order by i.expires_at limit 1) o`,
);
const insertTransferEvents = preparedStatement(
  'insert_transfer_events',
  `insert into events (id, merchant_id, mode, type, created_at, sequence, data, traceparent)
   select e.id, e.merchant_id, $4::payment_mode, 'transfer.unattributed', $5, 0, e.data, $6
     from unnest($1::uuid[], $2::uuid[], $3::text[]) as e (id, merchant_id, data)`,
);
const sumPayments = preparedStatement(
  'sum_payments',
  `select coalesce(sum(amount_units) filter (where counts), 0) as received,
          (select array_agg(distinct label) from transfers o, unnest(o.labels) as label
            where o.payment_intent = $1 and o.state <> 'reorged') as labels
     from transfers where payment_intent = $1 and state <> 'reorged'`,
);
const findAbove = preparedStatement(
  'find_transfers_above',
  `select id, payment_intent, state from transfers where chain_id = $1 and block_number > $2 and state <> 'reorged'`,
);
const findByIds = preparedStatement(
  'find_transfers_by_ids',
  `select id, payment_intent, state from transfers where id = any ($1::uuid[]) and state <> 'reorged'`,
);
/** A payment of an open intent is judged anew if it returns: what it was is forgotten. */
const markReorged = preparedStatement(
  'mark_transfers_reorged',
  `update transfers
      set state = 'reorged',
          counts = counts and payment_intent <> all ($2::uuid[]),
          labels = case when payment_intent = any ($2::uuid[]) then null else labels end
    where id = any ($1::uuid[])`,
);
const markConfirmed = preparedStatement(
  'mark_transfers_confirmed',
  `update transfers set state = 'confirmed' where id = any ($1::uuid[]) and state = 'pending'`,
);
const transferColumns = `id, transaction_hash, log_index, block_number, block_hash, block_time, token_address, from_address, to_address, amount_units`;
const findDue = preparedStatement(
  'find_due_transfers',
  `select ${transferColumns} from transfers where chain_id = $1 and state = 'pending' and block_number <= $2
    order by block_number limit 2000`,
);
const findBetween = preparedStatement(
  'find_transfers_between',
  `select ${transferColumns} from transfers
    where chain_id = $1 and state <> 'reorged' and block_number between $2 and $3`,
);
