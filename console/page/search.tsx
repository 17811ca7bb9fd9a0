// One search for everything. It says how it has understood the text.

import { useEffect } from 'preact/hooks';
import type { FindTransactionResponse } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import { TransactionFinding } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import type { Transfer } from '../../src/contract/gen/payments/v1/transfer_pb.ts';
import { isIdempotencyKey } from '../../src/requests/idempotency-key.ts';
import { api, isMissing } from './api.ts';
import { say } from './forms.tsx';
import { firstFound, Shown, useLoaded } from './loading.tsx';
import { PaymentTable } from './payments.tsx';
import { go } from './routing.tsx';
import { TransferTable } from './unattributed.tsx';
import { chainOf } from './values.tsx';

interface Found {
  /** What was looked for. */
  what: string;
  /** The path of the only match. */
  path?: string;
  intents?: readonly PaymentIntent[];
  transfers?: readonly Transfer[];
  /** There are older ones that were not looked at. */
  isPart?: boolean;
  /** What to try if nothing was found. */
  advice?: string;
}

export function Search({ parameters }: { parameters: URLSearchParams }) {
  const text = parameters.get('q') ?? '';
  const found = useLoaded(`search ${text}`, () => search(text), 0);
  const path = found.value?.path;
  useEffect(() => {
    if (path !== undefined) go(path, { replaces: true });
    const { intents = [], transfers = [] } = found.value ?? {};
    if (found.value !== undefined && path === undefined) say(`Found: ${intents.length + transfers.length}`);
  }, [found.value]);
  return (
    <>
      <h1>Search</h1>
      <Shown of={found}>
        {({ what, path: found, intents = [], transfers = [], isPart = false, advice }) =>
          found === undefined && (
            <>
              <p class="lead">
                Looked for {what}
                {isPart && ', among the newest: there are older ones that were not looked at'}.
              </p>
              {intents.length + transfers.length === 0 && (
                <p class="state">Nothing was found for this merchant and mode. {advice}</p>
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

/** Without invisible characters around it; of an explorer's link, its transaction, or the last address in it. */
function meantBy(text: string): string {
  const bare = text.replaceAll(
    /^[\s\p{Default_Ignorable_Code_Point}]+|[\s\p{Default_Ignorable_Code_Point}]+$/gu,
    '',
  );
  const lastOf = (digits: number) =>
    RegExp(`^https?://\\S+[/=](0x[0-9a-f]{${digits}})(?![0-9a-z])`, 'i').exec(bare);
  const [, hex = bare] = lastOf(64) ?? lastOf(40) ?? [];
  return hex.replace(/^0X(?=[0-9a-f]{40})/i, '0x');
}

async function search(typed: string): Promise<Found> {
  const text = meantBy(typed);
  // An order may begin like an id.
  const [, kind = ''] = /^(pi|tr|we|rf|evt|mer|key|cs|del)_[0-9a-z]{26}$/.exec(text) ?? [];
  if (kind === 'pi') return { what: 'a payment', path: `/payments/${text}` };
  if (kind === 'tr') return { what: 'a transfer', path: `/unattributed/${text}` };
  if (kind === 'we') return { what: 'an endpoint', path: `/webhooks/${text}` };
  const elsewhere = others[kind];
  if (elsewhere !== undefined) return elsewhere;
  if (kind === 'rf')
    return ofPayment('a refund', (await orNothing(api.getRefund({ id: text })))?.paymentIntent);
  if (kind === 'evt') {
    const data = (await orNothing(api.getEvent({ id: text })))?.data;
    const of = data?.paymentIntent ?? data?.refund ?? data?.transfer ?? data?.webhookEndpoint;
    return of === undefined ? { what: 'an event' } : search(of.id);
  }
  if (/^0x[0-9a-f]{64}$/i.test(text)) return searchTransaction(text);
  if (/^0x[0-9a-f]{40}$/i.test(text)) return searchAddress(text);
  const [, key, metadataValue = text] = /^([^\s:]+):\s*(.+)$/.exec(text) ?? [];
  // An order may have a colon itself, such as `EU:1001` or `gid://shopify/Order/1001`.
  const orders = orderKeys.map((metadataKey) => ({ metadataKey, metadataValue: text, pageSize }));
  const named = [
    ...(key === undefined ? [] : [{ metadataKey: key, metadataValue, pageSize }]),
    ...(new TextEncoder().encode(text).length <= maxOrderBytes ? orders : []),
  ];
  const keyed = isIdempotencyKey(text) ? [{ idempotencyKey: text, pageSize }] : [];
  const all = await Promise.all([...named, ...keyed].map((filter) => api.listPaymentIntents(filter)));
  const byId = new Map(all.flatMap(({ paymentIntents }) => paymentIntents.map((each) => [each.id, each])));
  const data = key === undefined ? '' : `payments whose ${key} is “${metadataValue}”, `;
  const order = `${data}an order “${text}”`;
  return {
    what: `${order}, or a payment that was created with this idempotency key`,
    intents: [...byId.values()],
    isPart: all.some(({ nextPageToken }) => nextPageToken !== ''),
    advice: `Enter the whole value, exactly as your shop writes it.${key === undefined ? otherData : ''}`,
  };
}

/** Resources without a page of their own, by the prefix of their ids. */
const others: Readonly<Record<string, Found>> = {
  mer: { what: 'a merchant', advice: 'An operator finds it under Merchants and keys.' },
  key: { what: 'an API key', advice: 'An operator finds it under Merchants and keys.' },
  cs: { what: 'a session', advice: 'The command admin console list shows sessions.' },
  del: { what: 'a delivery', advice: 'Search for its event: the id is in the header webhook-id.' },
};

/** What shops call an order in the metadata. */
const orderKeys = ['order_id', 'order', 'order_number'];
/** The service's own limit of a value that is searched for. */
const maxOrderBytes = 255;
const otherData = ` Other data is found by its name: ${orderKeys[0]}:1001.`;

const ofPayment = (what: string, id: string | undefined): Found =>
  id === undefined || id === '' ? { what } : { what, path: `/payments/${id}` };

async function searchTransaction(transactionHash: string): Promise<Found> {
  const { transfers, nextPageToken } = await api.listTransfers({ transactionHash, pageSize });
  const what = 'a transaction that moved money to your wallet';
  const [only] = transfers;
  if (transfers.length === 1 && only !== undefined) {
    const { id, paymentIntent } = only;
    return { what, path: paymentIntent === '' ? `/unattributed/${id}` : `/payments/${paymentIntent}` };
  }
  if (transfers.length > 0) return { what, transfers, isPart: nextPageToken !== '' };
  const found = await api.findTransaction({ transactionHash });
  return { ...ofPayment(what, found.paymentIntent), advice: adviceOf(found) };
}

const namesOf = (chainIds: readonly bigint[]) =>
  chainIds.map((id) => chainOf(id)?.name ?? String(id)).join(', ');

/** Why a transaction has no transfer here, according to the chains' nodes. */
function adviceOf(found: FindTransactionResponse): string {
  const { finding, chainId, blockNumber, readNumber, askedChainIds, silentChainIds } = found;
  const chain = chainOf(chainId)?.name;
  const place = `It is on ${chain}, in block ${blockNumber}`;
  const asked = askedChainIds.length > 0 ? `No block of ${namesOf(askedChainIds)} has it. ` : '';
  const silent = silentChainIds.length > 0 ? `${namesOf(silentChainIds)} did not answer. ` : '';
  const nowhere = `${asked}${silent}It may be on another chain, or on none yet: ask the payer which chain it was, and for a link to it.`;
  const known: { readonly [finding: number]: string } = {
    [TransactionFinding.OTHER_MODE]: `It is on ${chain}, which belongs to the other mode.`,
    [TransactionFinding.NO_TRANSFER]: `${place}, and moved no token: it may have failed.`,
    [TransactionFinding.OUTGOING]: `${place}, and moved money out of your wallet: none of your refunds is made by it.`,
    [TransactionFinding.OTHER_WALLET]: `${place}, and nothing of it went to a wallet of yours.`,
    [TransactionFinding.OTHER_TOKEN]: `${place}, and brought a token to your wallet that is not USDC.`,
    [TransactionFinding.NOT_READ]: `${place}. The service has read as far as ${readNumber}: it will be here when that block is read.`,
    [TransactionFinding.TOO_LITTLE]: `${place}. It paid one of your wallets but is not listed: no payment on this chain expected it at that time, or the amount was too small.`,
  };
  return known[finding] ?? nowhere;
}

async function searchAddress(address: string): Promise<Found> {
  const [from, expected] = await Promise.all([
    firstFound(
      (page) => api.listTransfers({ fromAddress: address, ...page }),
      ({ transfers }) => transfers,
    ),
    firstFound(
      (page) => api.listPaymentIntents({ expectedWallet: address, ...page }),
      ({ paymentIntents }) => paymentIntents,
    ),
  ]);
  return {
    what: 'what came from this address, and payments that go to it',
    transfers: from.transfers,
    intents: expected.paymentIntents,
    isPart: from.nextPageToken + expected.nextPageToken !== '',
  };
}

const orNothing = <T,>(asked: Promise<T>): Promise<T | undefined> =>
  asked.catch((reason) => {
    if (!isMissing(reason)) throw reason;
    return undefined;
  });
