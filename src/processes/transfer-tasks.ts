import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type Transfer, TransferSchema } from '../contract/gen/payments/v1/transfer_pb.ts';
import {
  AttributeTransferRequestSchema,
  DetachTransferRequestSchema,
  GetTransferRequestSchema,
} from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { AdministrationError } from '../merchants/operator-ids.ts';
import { ServiceError } from '../requests/errors.ts';
import { type Method, withChecks } from '../requests/method.ts';
import { newRequestContext } from '../requests/request-context.ts';
import { attributeTransfer, detachTransfer } from '../settlement/change-transfer.ts';
import { getTransfer } from '../settlement/read-transfers.ts';
import type { Output } from './admin-program.ts';
import { transfers } from './list-tasks.ts';
import type { Database } from './open-database.ts';

/** Running processes give the event its position within a second. */
const onEvent = () => {};
const transferCodec = createJsonCodec(TransferSchema);

/** A transfer as GetTransfer returns it: an unattributed one with its candidates. */
export async function show(database: Database, { transfer }: { transfer: string }): Promise<Output> {
  const { em } = database.orm;
  const request = create(GetTransferRequestSchema, { id: transfer });
  const found = await callFor(em, transfer, getTransfer(em), request);
  const { json, rows } = await transfers.show(database, { transfer });
  const nearest = found.candidates.map(({ id, amountUnits }) => `${id} (${amountUnits} units)`).join(', ');
  return {
    json: { ...json, ...JSON.parse(transferCodec.encode(found)) },
    rows: rows?.map((row) => ({ ...row, may_be_for: nearest || undefined })),
  };
}

export async function attribute(
  database: Database,
  { transfer, intent, allowEnded = false }: { transfer: string; intent: string; allowEnded?: boolean },
): Promise<Output> {
  const request = create(AttributeTransferRequestSchema, { id: transfer, paymentIntent: intent, allowEnded });
  await callFor(database.orm.em, transfer, attributeTransfer(database.orm.em, onEvent), request);
  return transfers.show(database, { transfer });
}

export async function detach(database: Database, { transfer }: { transfer: string }): Promise<Output> {
  const request = create(DetachTransferRequestSchema, { id: transfer });
  await callFor(database.orm.em, transfer, detachTransfer(database.orm.em, onEvent), request);
  return transfers.show(database, { transfer });
}

/** Calls a method of the API as the transfer's merchant. Throws a refusal as AdministrationError. */
async function callFor<Request>(
  em: EntityManager,
  transfer: string,
  method: Method<Request, Transfer>,
  request: Request,
): Promise<Transfer> {
  const { merchantId, mode } = await transfers.find(em, transfer);
  const merchantTypeId = formatIdentifier('mer', merchantId);
  const identity = { merchantId, mode, merchantTypeId, keyTypeId: '', payoutWallets: {} };
  const call = { context: newRequestContext('internal'), header: new Headers() };
  return withChecks(method)
    .run(request, identity, call)
    .catch((reason) => {
      if (!(reason instanceof ServiceError)) throw reason;
      // Not refused: it may have been done.
      if (reason.code === 'unavailable') throw reason.cause ?? reason;
      const details = reason.violations.map(({ field, message }) => `${field} ${message}`);
      throw new AdministrationError(details.join('; ') || reason.message, { cause: reason });
    });
}
