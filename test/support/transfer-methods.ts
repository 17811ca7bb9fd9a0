// The methods of TransferService through both doors. Both answer in one shape, so that one table can hold them both.

import http from 'node:http';
import { fromJson } from '@bufbuild/protobuf';
import {
  ListTransfersRequestSchema,
  TransferService,
} from '../../src/contract/gen/payments/v1/transfer_service_pb.ts';
import type { Endpoints } from './doors.ts';
import {
  grpcUnary,
  jsonCall,
  type ListQuery,
  type MethodAnswer,
  openGrpcClient,
  queryOf,
} from './intent-methods.ts';

/** A transfer in the public JSON. */
export interface TransferJson {
  id: string;
  chain: string;
  status: string;
  payment_intent?: string;
  transaction_hash: string;
  log_index: number;
  block_number: number;
  block_hash: string;
  block_time: string;
  from_address: string;
  to_address: string;
  token_address: string;
  amount_units: number;
  confirmations: number;
  labels?: string[];
}

export interface TransferPage {
  transfers: TransferJson[];
  next_page_token?: string;
}

export interface TransferMethods {
  name: 'public' | 'internal';
  list(query: ListQuery, apiKey: string): Promise<MethodAnswer<TransferPage>>;
  /** Also to an intent that has ended, unless it is told not to. */
  attribute(
    id: string,
    paymentIntent: string,
    apiKey: string,
    allowEnded?: boolean,
  ): Promise<MethodAnswer<TransferJson>>;
  detach(id: string, apiKey: string): Promise<MethodAnswer<TransferJson>>;
  close(): void;
}

export function openTransferMethods(endpoints: Endpoints): [TransferMethods, TransferMethods] {
  return [overHttp(endpoints), overGrpc(endpoints)];
}

/** Reads every page of a list, from the first to the last. */
export async function transferPages(
  methods: TransferMethods,
  query: ListQuery,
  apiKey: string,
): Promise<TransferJson[][]> {
  const pages: TransferJson[][] = [];
  let token: string | undefined;
  do {
    const page = await methods.list({ ...query, ...(token !== undefined && { page_token: token }) }, apiKey);
    if (page.code !== 'ok') throw new Error(`${page.code}: ${page.message}`);
    pages.push(page.json.transfers);
    token = page.json.next_page_token;
  } while (token !== undefined);
  return pages;
}

function overHttp({ publicUrl }: Endpoints): TransferMethods {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
  const url = `${publicUrl}/v1/transfers`;
  return {
    name: 'public',
    list: (query, apiKey) => jsonCall(url + queryOf(query), { agent, method: 'GET' }, apiKey),
    attribute: (id, payment_intent, apiKey, allow_ended = true) =>
      jsonCall(`${url}/${encodeURIComponent(id)}/attribute`, { agent }, apiKey, {
        payment_intent,
        allow_ended,
      }),
    detach: (id, apiKey) => jsonCall(`${url}/${encodeURIComponent(id)}/detach`, { agent }, apiKey, {}),
    close: () => agent.destroy(),
  };
}

function overGrpc(endpoints: Endpoints): TransferMethods {
  const client = openGrpcClient(endpoints);
  const { listTransfers, attributeTransfer, detachTransfer } = TransferService.method;
  return {
    name: 'internal',
    async list({ status, ...query }, apiKey) {
      const request = fromJson(ListTransfersRequestSchema, {
        ...query,
        ...(status !== undefined && { status: `TRANSFER_STATUS_${String(status).toUpperCase()}` }),
      });
      const { json, ...answer } = await grpcUnary<Partial<TransferPage>>(
        client,
        listTransfers,
        request,
        apiKey,
      );
      return { ...answer, json: { ...json, transfers: (json.transfers ?? []).map(withZeros) } };
    },
    async attribute(id, paymentIntent, apiKey, allowEnded = true) {
      const request = { id, paymentIntent, allowEnded };
      const answer = await grpcUnary<TransferJson>(client, attributeTransfer, request, apiKey);
      return answer.code === 'ok' ? { ...answer, json: withZeros(answer.json) } : answer;
    },
    async detach(id, apiKey) {
      const answer = await grpcUnary<TransferJson>(client, detachTransfer, { id }, apiKey);
      return answer.code === 'ok' ? { ...answer, json: withZeros(answer.json) } : answer;
    },
    close: () => client.close(),
  };
}

/** Over gRPC a zero is not told apart from an absent one. */
function withZeros(transfer: TransferJson): TransferJson {
  return { ...transfer, log_index: transfer.log_index ?? 0, confirmations: transfer.confirmations ?? 0 };
}
