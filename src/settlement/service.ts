import type { EntityManager } from '@mikro-orm/postgresql';
import { TransferService } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { attributeTransfer, detachTransfer } from './change-transfer.ts';
import { getTransfer, listTransfers } from './read-transfers.ts';

/** `payments.v1.TransferService`. `onEvent` is called when a method has recorded an event. */
export function createTransferService(em: EntityManager, onEvent: () => void): ImplementedService<Identity> {
  return implementService(TransferService, {
    getTransfer: getTransfer(em),
    listTransfers: listTransfers(em),
    attributeTransfer: attributeTransfer(em, onEvent),
    detachTransfer: detachTransfer(em, onEvent),
  });
}
