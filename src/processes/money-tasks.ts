import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Transfer } from '../contract/gen/payments/v1/transfer_pb.ts';
import {
  AttributeTransferRequestSchema,
  DetachTransferRequestSchema,
} from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { RefundEntity } from '../database/entities/refund.ts';
import { TransferEntity } from '../database/entities/settlement.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { AdministrationError } from '../merchants/administration-error.ts';
import { refundUuidOf, transferUuidOf } from '../merchants/operator-ids.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Method } from '../requests/method.ts';
import { newRequestContext } from '../requests/request-context.ts';
import { attributeTransfer } from '../settlement/attribute-transfer.ts';
import { detachTransfer } from '../settlement/detach-transfer.ts';
import type { Output } from './admin-program.ts';
import { type Environment, sendTestMoney } from './chain-tasks.ts';
import { showTransfer } from './list-tasks.ts';
import type { Database } from './open-database.ts';

/** Running processes give the event its position within a second. */
const onEvent = () => {};

export async function attribute(
  database: Database,
  { transfer, intent, allowEnded = false }: { transfer: string; intent: string; allowEnded?: boolean },
): Promise<Output> {
  const request = create(AttributeTransferRequestSchema, { id: transfer, paymentIntent: intent, allowEnded });
  await callFor(database.orm.em, transfer, attributeTransfer(database.orm.em, onEvent), request);
  return showTransfer(database, transfer);
}

export async function detach(database: Database, transfer: string): Promise<Output> {
  const request = create(DetachTransferRequestSchema, { id: transfer });
  await callFor(database.orm.em, transfer, detachTransfer(database.orm.em, onEvent), request);
  return showTransfer(database, transfer);
}

/** Calls a method of the API as the transfer's merchant. Throws AdministrationError with the reason of a refusal. */
async function callFor<Request>(
  em: EntityManager,
  transfer: string,
  method: Method<Request, Transfer>,
  request: Request,
): Promise<void> {
  const row = await em.fork().findOne(TransferEntity, { id: transferUuidOf(transfer), isRefund: false });
  if (row === null) {
    throw new AdministrationError(`there is no transfer ${transfer}: "transfer list" shows them`);
  }
  const { merchantId, mode } = row;
  const identity = {
    merchantId,
    mode,
    merchantTypeId: formatIdentifier('mer', merchantId),
    keyTypeId: '',
    payoutWallets: {},
  };
  const call = {
    context: newRequestContext('internal'),
    header: new Headers(),
    signal: new AbortController().signal,
  };
  await method.run(request, identity, call).catch((reason) => {
    if (!(reason instanceof ServiceError)) throw reason;
    const details = reason.violations.map(({ field, message }) => `${field} ${message}`);
    throw new AdministrationError(details.join('; ') || reason.message, { cause: reason });
  });
}

/** Sends a refund on a local chain. Throws AdministrationError if there is none. */
export async function testRefund(database: Database, env: Environment, publicId: string): Promise<Output> {
  const row = await database.orm.em.fork().findOne(RefundEntity, { id: refundUuidOf(publicId) });
  if (row === null) throw new AdministrationError(`there is no refund ${publicId}: "refund list" shows them`);
  const amountUnits = BigInt(row.amountUnits);
  return sendTestMoney(database, env, { ...row, amountUnits, wallet: row.destination, refund: publicId });
}
