// An export of the console is a file that a browser writes, so it is asked for by a link. The link carries a ticket for one
// use, in the place of the session's token, which has no business in an address.

import { hash, randomBytes } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import {
  type CreateExportRequest,
  CreateExportResponseSchema,
} from '../contract/gen/console/v1/console_service_pb.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { ServiceError } from '../requests/errors.ts';
import { orUnavailable } from '../requests/unavailable.ts';
import { type ExportOptions, exportPayments } from './export-payments.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

const ticketMs = 30_000;
const ticketBytes = 32;
const maxRangeMs = 400 * 86_400_000;

/** `CreateExport`: a ticket for the merchant that is looked at. */
export function createExport(em: EntityManager): ConsoleMethod<'createExport'> {
  const { run } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    violations,
    async run(request, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const [from, before] = rangeOf(request).map((ms) => new Date(ms).toISOString());
      const ticket = randomBytes(ticketBytes).toString('base64url');
      const expiresAt = new Date(Date.now() + ticketMs).toISOString();
      await run(insert, [hashOf(ticket), merchantId, mode, from, before, expiresAt]);
      return create(CreateExportResponseSchema, { ticket });
    },
  };
}

function rangeOf({ fromTime, beforeTime }: CreateExportRequest): [fromMs: number, beforeMs: number] {
  const ms = (time: typeof fromTime) => (time === undefined ? Number.NaN : timestampDate(time).getTime());
  return [ms(fromTime), ms(beforeTime)];
}

function violations(request: CreateExportRequest): FieldViolation[] {
  const all: FieldViolation[] = [];
  const [from, before] = rangeOf(request);
  if (Number.isNaN(from)) all.push({ field: 'from_time', message: 'is required' });
  if (Number.isNaN(before)) all.push({ field: 'before_time', message: 'is required' });
  if (before <= from) all.push({ field: 'before_time', message: 'must be after from_time' });
  if (before - from > maxRangeMs) {
    all.push({ field: 'before_time', message: 'must be at most 400 days after from_time' });
  }
  return all;
}

/** An export that a ticket has opened. */
interface OpenedExport {
  fileName: string;
  texts: AsyncIterable<string>;
}

export type OpenExport = (ticket: string) => Promise<OpenedExport>;

/** Returns the function that takes a ticket, once. It throws `not_found` for any other. */
export function createOpenExport(em: EntityManager): OpenExport {
  const { run } = createPreparedStatements(em);
  return async (ticket) => {
    const [row] = (await orUnavailable(() => run(take, [hashOf(ticket)]))).rows;
    if (row === undefined || new Date(row.expires_at).getTime() < Date.now()) {
      throw new ServiceError('not_found', { message: 'This link is used up. Begin the export again.' });
    }
    const [from, before] = [new Date(row.from_time), new Date(row.before_time)];
    const options: ExportOptions = {
      ...{ merchantId: row.merchant_id, mode: row.mode, from, before },
      ...{ format: 'csv', isComplete: true },
    };
    const day = (date: Date) => date.toISOString().slice(0, 10);
    return { fileName: `payments-${day(from)}-${day(before)}.csv`, texts: textsOf(em, options) };
  };
}

async function* textsOf(em: EntityManager, options: ExportOptions): AsyncGenerator<string> {
  for await (const { text } of exportPayments(em, options)) yield text;
}

const hashOf = (ticket: string) => `\\x${hash('sha256', ticket, 'hex')}`;

const insert = preparedStatement(
  'insert_export_ticket',
  `with old as (delete from export_tickets where expires_at < now() - interval '1 minute')
   insert into export_tickets (ticket_hash, merchant_id, mode, from_time, before_time, expires_at)
   values ($1, $2, $3, $4, $5, $6)`,
);
const take = preparedStatement(
  'take_export_ticket',
  'delete from export_tickets where ticket_hash = $1 returning merchant_id, mode, from_time, before_time, expires_at',
);
