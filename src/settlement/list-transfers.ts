import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { TransferStatus } from '../contract/gen/payments/v1/transfer_pb.ts';
import {
  type ListTransfersRequest,
  type ListTransfersResponse,
  ListTransfersResponseSchema,
} from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import type { Method } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { identityOf } from '../requests/request-context.ts';
import { toTransfer } from './transfer.ts';

/** `ListTransfers`: newest first. */
export function listTransfers(em: EntityManager): Method<ListTransfersRequest, ListTransfersResponse> {
  const columns = entityColumns<TransferRow>(em, TransferEntity);
  const { read } = createPreparedStatements(em);
  const statementFor = (condition: string) =>
    preparedStatement(
      'list_transfers',
      `select ${columns.of('t')}, coalesce(c.cursor_number, t.block_number) as head
         from transfers t left join watched_chains c on c.chain_id = t.chain_id
        where t.merchant_id = $1 and t.mode = $2 and ($3::uuid is null or t.id < $3)${condition}
        order by t.id desc limit $4`,
    );
  const everything = statementFor('');
  const statements: Partial<Record<TransferStatus, ReturnType<typeof preparedStatement>>> = {
    [TransferStatus.UNSPECIFIED]: everything,
    // One that the chain reverted before anybody attributed it is not there to be attributed.
    [TransferStatus.UNATTRIBUTED]: statementFor(" and t.payment_intent is null and t.state <> 'reorged'"),
    [TransferStatus.ATTRIBUTED]: statementFor(' and t.payment_intent is not null'),
  };

  const violations = (request: ListTransfersRequest): FieldViolation[] => [
    ...unknownFieldViolations(request),
    ...pageSizeViolations(request.pageSize),
    ...(request.status in statements
      ? []
      : [{ field: 'status', message: 'must be "unattributed" or "attributed"' }]),
  ];

  return {
    ratePolicy: 'reads',
    violations,
    async run(request, { values }) {
      refuseInvalid(violations(request));
      const { merchantId, mode } = identityOf(values);
      const filter = ['transfers', merchantId, mode, request.status];
      const below = uuidCursorOf(request.pageToken, filter) ?? null;
      const size = pageSizeOf(request.pageSize);
      const { rows } = await orUnavailable(() =>
        read(merchantId, statements[request.status] ?? everything, [merchantId, mode, below, size + 1]),
      );
      const page = rows.slice(0, size);
      return create(ListTransfersResponseSchema, {
        transfers: page.map((row) => toTransfer(columns.read(row), Number(row.head))),
        nextPageToken: uuidPageTokenOf(filter, rows.length > size ? page.at(-1)?.id : undefined),
      });
    },
  };
}
