import { create } from '@bufbuild/protobuf';
import { networks } from '../contract/chains.ts';
import type { TransferCandidate } from '../contract/gen/payments/v1/transfer_pb.ts';
import { TransferSchema, TransferStatus } from '../contract/gen/payments/v1/transfer_pb.ts';
import { chainWords } from '../contract/gen/words.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { confirmationsOf, transferFields } from '../payment-intents/payments.ts';

/** Converts a row to the contract's transfer. `head`: the last block read. Throws if the chain is unknown. */
export function toTransfer(row: TransferRow, head: number, candidates: readonly TransferCandidate[] = []) {
  const network = networks.findLast(({ chainId }) => chainId === row.chainId);
  if (network === undefined)
    throw new Error(`the database holds chain ${row.chainId}, which is newer than this process`);
  return create(TransferSchema, {
    ...transferFields(row),
    id: formatIdentifier('tr', row.id),
    chain: chainWords[network.chain],
    status: row.paymentIntent == null ? TransferStatus.UNATTRIBUTED : TransferStatus.ATTRIBUTED,
    ...(row.paymentIntent != null && { paymentIntent: formatIdentifier('pi', row.paymentIntent) }),
    confirmations: confirmationsOf(row, head, network.confirmationsRequired),
    candidates: [...candidates],
  });
}
