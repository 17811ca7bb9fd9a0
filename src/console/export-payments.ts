// Payments and refunds, a line for each transfer, for `admin export payments` and the console. Read in
// batches by an index of times, so that neither the memory nor the time of a batch grows with the export.

import { hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { EntityManager } from '@mikro-orm/postgresql';
import { stringify } from 'csv-stringify/sync';
import type { KeyRing } from '../config/key-ring.ts';
import { chains } from '../contract/chains.ts';
import type { CreateExportRequest } from '../contract/gen/console/v1/console_service_pb.ts';
import type { ModeName } from '../contract/words.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { generateSecret, mayBeIssued } from '../merchants/api-keys.ts';
import { ServiceError, violationsIn } from '../requests/errors.ts';
import { isoOf, momentViolations, wholeMs } from '../requests/moments.ts';
import { orUnavailable } from '../requests/unavailable.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

export interface ExportOptions {
  /** UUID. */
  merchantId: string;
  mode: ModeName;
  /** The range of block times. */
  from: Date;
  before: Date;
  format: 'csv' | 'jsonl';
  /** Includes transfers that belong to no intent, and the time at which each was recorded. */
  isComplete?: boolean;
  /** Called before each part of the text, with how much of the range is done with it, from 0 to 1. */
  onProgress?: (done: number) => void;
}

/** Small, to save memory. */
const batchSize = 100;

const columns = [
  ...(['time', 'type', 'payment_intent', 'idempotency_key', 'status', 'chain', 'token', 'amount'] as const),
  ...(['amount_units', 'counted', 'labels', 'from_address', 'to_address', 'transaction_hash'] as const),
  ...(['block_number', 'explorer_url', 'refund', 'metadata'] as const),
];

type Line = Record<(typeof columns)[number] | 'recorded_at', string | boolean | number>;

/** The export's text, with the header first. */
export async function* exportPayments(em: EntityManager, options: ExportOptions): AsyncGenerator<string> {
  const { merchantId, mode, from, before, format, isComplete = false, onProgress } = options;
  const names = isComplete ? [...columns, 'recorded_at' as const] : columns;
  const { read } = createPreparedStatements(em);
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  const next = preparedStatement(
    'export_transfers',
    `select ${transfers.of('t')}, i.id as intent, i.idempotency_key, i.metadata
       from (select * from transfers t
              where t.merchant_id = $1 and t.mode = $2 and (t.block_time, t.id) > ($3, $4) and t.block_time < $5
                and (t.payment_intent is not null or t.refund is not null or ($6 and not t.is_refund))
                and t.state <> 'reorged'
              order by t.block_time, t.id limit ${batchSize}) t
       left join refunds r on r.id = t.refund
       left join payment_intents i on i.id = coalesce(t.payment_intent, r.payment_intent)
      order by t.block_time, t.id`,
  );
  if (format === 'csv') {
    onProgress?.(0);
    yield csvOf([names]);
  }
  const rowsBehind = (time: Date, id: string) =>
    read(merchantId, next, [merchantId, mode, time.toISOString(), id, before.toISOString(), isComplete]);
  // The lowest UUID.
  let nextBatch = rowsBehind(from, '00000000-0000-0000-0000-000000000000');
  for (;;) {
    const { rows } = await nextBatch;
    const last = rows.at(-1);
    if (last === undefined) return;
    const time = new Date(last.block_time);
    // Queries the next batch while this one is written. The consumer may stop before it is used.
    nextBatch = rowsBehind(time, last.id);
    nextBatch.catch(() => {});
    await nextTurn();
    const lines = rows.map((found) => lineOf(transfers.read(found), found));
    const cells = () => lines.map((line) => names.map((name) => cellOf(name, String(line[name]))));
    onProgress?.((time.getTime() - from.getTime()) / (before.getTime() - from.getTime()));
    yield format === 'csv' ? csvOf(cells()) : lines.map(jsonOf).join('');
  }
}

function lineOf(row: TransferRow, found: Readonly<Record<string, unknown>>): Line {
  const chain = chains.find(({ chainId }) => chainId === row.chainId);
  const network = chain?.networks.find(({ tokenAddress }) => tokenAddress === row.tokenAddress);
  const units = BigInt(row.amountUnits);
  const hash = `0x${row.transactionHash}`;
  return {
    time: row.blockTime.toISOString(),
    type: row.isRefund ? 'refund' : found.intent == null ? 'unattributed' : 'payment',
    payment_intent: found.intent == null ? '' : formatIdentifier('pi', String(found.intent)),
    idempotency_key: (found.idempotency_key as string | null) ?? '',
    status: row.state,
    chain: chain?.chain ?? String(row.chainId),
    // A token other than that of the intents is named by its contract.
    token: network?.tokenSymbol ?? row.tokenAddress,
    amount: decimalOf(units, (network ?? chain?.networks[0])?.decimals ?? 0),
    amount_units: Number(units),
    counted: row.counts || row.refund != null,
    labels: row.labels?.join(' ') ?? '',
    from_address: row.fromAddress,
    to_address: row.toAddress,
    transaction_hash: hash,
    block_number: Number(row.blockNumber),
    explorer_url: chain === undefined ? '' : `${chain.explorer}/tx/${hash}`,
    refund: row.refund == null ? '' : formatIdentifier('rf', row.refund),
    metadata: typeof found.metadata === 'string' ? found.metadata : JSON.stringify(found.metadata ?? {}),
    recorded_at: row.createdAt.toISOString(),
  };
}

/** `12.50`: exact, with two decimal places or all of them. Some locales would read three as thousands. */
function decimalOf(units: bigint, decimals: number): string {
  const digits = String(units).padStart(decimals + 1, '0');
  const fraction = digits.slice(digits.length - decimals);
  const isCents = /^\d\d0*$/.test(fraction);
  return `${digits.slice(0, digits.length - decimals)}.${isCents ? fraction.slice(0, 2) : fraction.padEnd(2, '0')}`;
}

/** With semicolons as separators, a spreadsheet splits even quoted cells at them. JSON can escape them. */
function cellOf(name: string, text: string): string {
  return name === 'metadata' ? text.replaceAll(';', '\\u003b') : text.replaceAll(/;(?="*[=+\-@])/g, ";'");
}

/** RFC 4180. Cells that a spreadsheet would run as a formula begin with an apostrophe. */
function csvOf(cells: readonly (readonly string[])[]): string {
  return stringify([...cells], { record_delimiter: 'windows', escape_formulas: true });
}

/** Empty cells are left out. */
function jsonOf({ metadata, labels, recorded_at: _, ...line }: Line): string {
  const set = Object.entries(line).filter(([, value]) => value !== '');
  const all = { ...Object.fromEntries(set), labels: String(labels).split(' ').filter(Boolean) };
  return `${JSON.stringify({ ...all, metadata: JSON.parse(String(metadata)) })}\n`;
}

// A browser downloads an export by a link with a ticket for one use: the session's token must not be in a URL.
// The ticket contains the id of its session, and is void once that is revoked.

const ticketMs = 30_000;
/** Maximum exports of a merchant that are open at the same time, of each process. */
const maxOpen = 2;
/** 400 days, of which one may be an hour longer. */
const maxRangeMs = 400 * 86_400_000 + 3_600_000;

/** `CreateExport`: a ticket for the caller's merchant. */
export function createExport(em: EntityManager, peppers: KeyRing): ConsoleMethod<'createExport'> {
  const { run } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    violations,
    async run(request, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const [from, before] = [request.fromTime, request.beforeTime].map((time) => isoOf(wholeMs(time)));
      const ticket = `${generateSecret('ct_', peppers)}.${caller.session.typeId}`;
      const expiresAt = new Date(Date.now() + ticketMs).toISOString();
      await run(insert, [hashOf(ticket), merchantId, mode, from, before, expiresAt]);
      return { ticket };
    },
  };
}

function violations({ fromTime, beforeTime }: CreateExportRequest) {
  const [from = Number.NaN, before = Number.NaN] = [wholeMs(fromTime), wholeMs(beforeTime)];
  return [
    ...momentViolations({ from_time: fromTime, before_time: beforeTime }),
    ...violationsIn(
      ['from_time', fromTime === undefined && 'is required'],
      ['before_time', beforeTime === undefined && 'is required'],
      ['before_time', before <= from && 'must be after from_time'],
      ['before_time', before - from > maxRangeMs && 'must be at most 400 days after from_time'],
    ),
  ];
}

export type OpenExport = (
  ticket: string,
  send: (texts: AsyncIterable<string>) => Promise<void>,
) => Promise<void>;

/**
 * Returns the function that takes a ticket, once, and sends its file. It throws `not_found` for any other
 * ticket (without a query if it is made up), and `rate_limited` while the merchant has two files open.
 */
export function createOpenExport(em: EntityManager, peppers: KeyRing): OpenExport {
  const { run } = createPreparedStatements(em);
  const open: string[] = [];
  return async (ticket, send) => {
    const [secret = '', id = ''] = ticket.split('.');
    if (!mayBeIssued('ct_', secret, peppers)) throw usedUp();
    const [row] = (await orUnavailable(() => run(take, [hashOf(ticket), parseIdentifier('cs', id)]))).rows;
    if (row === undefined || new Date(row.expires_at).getTime() < Date.now()) throw usedUp();
    if (open.filter((id) => id === row.merchant_id).length >= maxOpen) {
      throw new ServiceError('rate_limited', { message: 'Two exports are open. Wait for one to end.' });
    }
    open.push(row.merchant_id);
    const [from, before] = [new Date(row.from_time), new Date(row.before_time)];
    const options: ExportOptions = {
      ...{ merchantId: row.merchant_id, mode: row.mode, from, before },
      ...{ format: 'csv', isComplete: true },
    };
    await send(exportPayments(em, options)).finally(() => open.splice(open.indexOf(row.merchant_id), 1));
  };
}

const usedUp = () => new ServiceError('not_found', { message: 'The link is expired or used: export again.' });

const hashOf = (ticket: string) => `\\x${hash('sha256', ticket, 'hex')}`;

const insert = preparedStatement(
  'insert_export_ticket',
  `with old as (delete from export_tickets where expires_at < now() - interval '1 minute')
   insert into export_tickets (ticket_hash, merchant_id, mode, from_time, before_time, expires_at)
   values ($1, $2, $3, $4, $5, $6)`,
);
const take = preparedStatement(
  'take_export_ticket',
  'delete from export_tickets t using console_sessions s where ticket_hash = $1 and s.id = $2 and revoked_at is null returning t.*',
);
