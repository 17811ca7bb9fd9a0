// One search for everything. It says what it took the text for.

import { useEffect } from 'preact/hooks';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import type { Transfer } from '../../src/contract/gen/payments/v1/transfer_pb.ts';
import { eventApi, intentApi, isMissing, refundApi, transferApi } from './api.ts';
import { Shown, useLoaded } from './loading.tsx';
import { PaymentTable } from './payments.tsx';
import { go } from './routing.tsx';
import { TransferTable } from './unattributed.tsx';

interface Found {
  /** What was looked for. */
  what: string;
  /** Where the only thing is that has this name. */
  path?: string;
  intents?: readonly PaymentIntent[];
  transfers?: readonly Transfer[];
  /** What else may be so if nothing was found. */
  advice?: string;
}

export function Search({ text }: { text: string }) {
  const found = useLoaded(`search ${text}`, () => search(text), 0);
  const path = found.value?.path;
  useEffect(() => {
    if (path !== undefined) go(path, { replaces: true });
  }, [path]);
  return (
    <>
      <h1>Search</h1>
      <Shown of={found}>
        {({ what, path: found, intents = [], transfers = [], advice }) =>
          found === undefined && (
            <>
              <p class="lead">Looked for {what}.</p>
              {intents.length + transfers.length === 0 && (
                <p class="state">Nothing was found here, for this merchant and mode. {advice}</p>
              )}
              {intents.length > 0 && <PaymentTable rows={intents} />}
              {transfers.length > 0 && (
                <>
                  <h2>Transfers</h2>
                  <TransferTable rows={transfers} />
                </>
              )}
            </>
          )
        }
      </Shown>
    </>
  );
}

const pageSize = 50;

async function search(text: string): Promise<Found> {
  if (/^pi_\w+$/.test(text)) return { what: 'a payment', path: `/payments/${text}` };
  if (/^tr_\w+$/.test(text)) return { what: 'a transfer', path: `/unattributed/${text}` };
  if (/^we_\w+$/.test(text)) return { what: 'an endpoint', path: `/webhooks/${text}` };
  if (/^rf_\w+$/.test(text))
    return ofPayment('a refund', (await orNothing(refundApi.getRefund({ id: text })))?.paymentIntent);
  if (/^evt_\w+$/.test(text)) {
    const data = (await orNothing(eventApi.getEvent({ id: text })))?.data;
    return ofPayment('an event', data?.paymentIntent?.id ?? data?.refund?.paymentIntent);
  }
  if (/^0x[0-9a-f]{64}$/i.test(text)) return searchTransaction(text);
  if (/^0x[0-9a-f]{40}$/i.test(text)) return searchAddress(text);
  const [, key, value] = /^([^\s:]+):\s*(.+)$/.exec(text) ?? [];
  if (key !== undefined && value !== undefined) {
    const { paymentIntents } = await intentApi.listPaymentIntents({
      metadataKey: key,
      metadataValue: value,
      pageSize,
    });
    return { what: `payments whose ${key} is “${value}”`, intents: paymentIntents };
  }
  const { paymentIntents } = await intentApi.listPaymentIntents({ idempotencyKey: text, pageSize });
  return {
    what: `a payment that was created with the idempotency key “${text}”`,
    intents: paymentIntents,
    advice: 'To find an order, write the name before it: order_id:1001.',
  };
}

const ofPayment = (what: string, id: string | undefined): Found =>
  id === undefined || id === '' ? { what } : { what, path: `/payments/${id}` };

async function searchTransaction(transactionHash: string): Promise<Found> {
  const { transfers } = await transferApi.listTransfers({ transactionHash, pageSize });
  const what = 'a transaction that moved money to your wallet';
  const [only] = transfers;
  if (transfers.length === 1 && only !== undefined) {
    return {
      what,
      path: only.paymentIntent === '' ? `/unattributed/${only.id}` : `/payments/${only.paymentIntent}`,
    };
  }
  const advice =
    'The transaction may be on another chain, may have sent another token or to another wallet, may be a refund of yours, or may be in no block yet. ' +
    "An explorer of the payer's chain says which.";
  return { what, transfers, advice };
}

async function searchAddress(address: string): Promise<Found> {
  const [from, expected] = await Promise.all([
    transferApi.listTransfers({ fromAddress: address, pageSize }),
    intentApi.listPaymentIntents({ expectedWallet: address, pageSize }),
  ]);
  const what = 'what came from this address, and payments that go to it';
  return { what, transfers: from.transfers, intents: expected.paymentIntents };
}

async function orNothing<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (reason) {
    if (isMissing(reason)) return undefined;
    throw reason;
  }
}
