import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { MAX as highestUuid } from 'uuid';
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
import { pageOfScanned, scannedRows } from '../database/scanned-page.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import type { Method } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { toTransfer } from './transfer.ts';

/** `ListTransfers`: newest first. */
export function listTransfers(em: EntityManager): Method<ListTransfersRequest, ListTransfersResponse> {
  const columns = entityColumns<TransferRow>(em, TransferEntity);
  const { read } = createPreparedStatements(em);
  const statementFor = (ofIndex: string, matching: string) => {
    const scan = {
      table: 'transfers',
      alias: 't',
      range: `t.merchant_id = $1 and t.mode = $2 and t.id < coalesce($3::uuid, '${highestUuid}')${ofIndex}`,
      order: 't.id desc',
      matching,
    };
    return preparedStatement(
      'list_transfers',
      `select ${columns.of('t')}, t.matches, t.is_last_scanned, coalesce(c.cursor_number, t.block_number) as head
         from (select * from ${scannedRows(scan)} order by t.id desc limit $4) t
         left join watched_chains c on c.chain_id = t.chain_id
        order by t.id desc`,
    );
  };
  const everything = statementFor('', 'true');
  const statements: Partial<Record<TransferStatus, ReturnType<typeof preparedStatement>>> = {
    [TransferStatus.UNSPECIFIED]: everything,
    // A transfer that was reorged before it was attributed can no longer be attributed.
    [TransferStatus.UNATTRIBUTED]: statementFor(' and t.payment_intent is null', "t.state <> 'reorged'"),
    [TransferStatus.ATTRIBUTED]: statementFor('', 't.payment_intent is not null'),
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
    async run(request, { merchantId, mode }) {
      refuseInvalid(violations(request));
      const filter = ['transfers', merchantId, mode, request.status];
      const below = uuidCursorOf(request.pageToken, filter) ?? null;
      const size = pageSizeOf(request.pageSize);
      const found = await orUnavailable(() =>
        read(merchantId, statements[request.status] ?? everything, [merchantId, mode, below, size + 2]),
      );
      const { rows, next } = pageOfScanned(found.rows, size);
      return create(ListTransfersResponseSchema, {
        transfers: rows.map((row) => toTransfer(columns.read(row), Number(row.head))),
        nextPageToken: uuidPageTokenOf(filter, next?.id),
      });
    },
  };
}
