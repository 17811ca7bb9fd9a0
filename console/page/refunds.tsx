// Money that goes back: the list, and the form that prepares a refund. The merchant's wallet signs it.

import { useEffect, useState } from 'preact/hooks';
import { plainAmount } from '../../checkout/page/amount.ts';
import { QrCode } from '../../checkout/page/qr-code.tsx';
import type { Transfer } from '../../checkout/page/state.ts';
import { onChangeOfAnotherTab, storedTransfers, withWalletLock } from '../../checkout/page/transfer.ts';
import { findWallets, isRefusal, refusalOf, type Wallet } from '../../checkout/page/wallets.ts';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';
import { Advice, api, isReusedKey, useScope } from './api.ts';
import { ActionButton, Button, Field, Opener, useAction } from './forms.tsx';
import { LiveList, rarelyMs, Shown, useLoaded } from './loading.tsx';
import { isCut, isOpen, payersOf, refundableUnits, surplusOf } from './returnable.ts';
import { Link } from './routing.tsx';
import { Facts, Table } from './tables.tsx';
import {
  Address,
  Badge,
  Copyable,
  chainOf,
  Labels,
  Money,
  moneyText,
  shortened,
  Transaction,
  When,
} from './values.tsx';
import { refundStates } from './words.ts';

export function Refunds() {
  return (
    <>
      <h1>Refunds</h1>
      <LiveList
        name="refunds"
        ask={(page) => api.listRefunds(page)}
        rowsOf={({ refunds }) => refunds}
        empty="No refund yet. A payment has a button for it."
      >
        {(rows) => <RefundTable rows={rows} hasPayment />}
      </LiveList>
    </>
  );
}

interface RefundTableProps {
  rows: readonly Refund[];
  hasPayment?: boolean;
  /** The wallet that was paid, if the refunds are those of one payment. */
  wallet?: string;
}

export function RefundTable({ rows, hasPayment = false, wallet }: RefundTableProps) {
  const { isReadOnly } = useScope();
  const cancel = (id: string) => api.cancelRefund({ id });
  return (
    <Table
      rows={rows}
      keyOf={({ id }) => id}
      numbers={['Amount']}
      columns={{
        Refund: (row) => (
          <>
            <Link to={hasPayment && `/payments/${row.paymentIntent}`}>{row.reason.trim() || row.id}</Link>
            {row.transfers.map(({ transactionHash, logIndex }) => (
              <div key={`${transactionHash} ${logIndex}`}>
                <Transaction of={transactionHash} chainId={row.chainId} />
              </div>
            ))}
            {row.status === RefundStatus.REQUIRES_TRANSFER && !isReadOnly && (
              <>
                <Signing refund={row} wallet={wallet} />
                <Opener isSmall label="Cancel this refund" doLabel="Cancel it" onDo={() => cancel(row.id)}>
                  <p>Its money can then go into another refund. Make sure that nobody signs this one.</p>
                </Opener>
              </>
            )}
          </>
        ),
        Amount: ({ amountUnits: units, tokenAddress: token }) => <Money units={units} token={token} />,
        Status: ({ status, labels }) => (
          <>
            <Badge {...refundStates[status]} /> <Labels of={labels} />
          </>
        ),
        To: ({ destination, chainId }) => <Address of={destination} chainId={chainId} />,
        Prepared: ({ createdAt }) => <When at={createdAt} />,
      }}
    />
  );
}

interface RefundFormProps {
  intent: PaymentIntent;
  refunds: readonly Refund[];
  onDone: () => void;
}

export function RefundForm({ intent, refunds, onDone }: RefundFormProps) {
  const [key, setKey] = useState('');
  const { decimals, tokenAddress: token, tokenSymbol } = intent;
  const [amount, setAmount] = useState('');
  const [destination, setDestination] = useState('');
  const [reason, setReason] = useState('');
  const open = () => {
    const surplus = surplusOf(intent, refunds);
    // Beside an open refund, somebody has to decide how much more goes back.
    const all = refunds.some(isOpen) ? undefined : freeUnits;
    const most = surplus > 0n && (freeUnits === undefined || surplus < freeUnits) ? surplus : all;
    setAmount(most === undefined ? '' : plainAmount(most, decimals));
    // Pressed twice, the button prepares one refund.
    setKey(newKey());
  };
  const freeUnits = refundableUnits(intent, refunds);
  if (freeUnits !== undefined && freeUnits <= 0n) {
    return (
      key !== '' && (
        <p role="status">
          Nothing is left to give back: a refund, maybe this one, has taken it. It is listed here.
        </p>
      )
    );
  }
  const units = unitsOf(amount, decimals);
  // Without an amount, the service takes all that is left, which it knows.
  const isAll = freeUnits === undefined && amount === '';
  const isTooMuch = units !== undefined && freeUnits !== undefined && units > freeUnits;
  const payers = payersOf(intent);
  const money = (of: bigint) => moneyText({ units: of, token });
  const prepare = async () => {
    if (units === undefined && !isAll) throw new Advice('Write the amount as digits, such as 12.50.');
    const request = { paymentIntent: intent.id, amountUnits: units, destination: destination.trim(), reason };
    await api.createRefund(request, { headers: { 'Idempotency-Key': key } }).catch((reason) => {
      // Only this form has the key: the answer to it was lost, and the form was changed since.
      if (!isReusedKey(reason)) throw reason;
      throw new Advice(
        'Your earlier request succeeded after all: its refund is listed under Refunds. Close this form and look there.',
      );
    });
    for (const empty of [setKey, setDestination, setReason]) empty('');
    onDone();
  };
  return (
    <Opener label="Give money back" onOpen={open} doLabel="Prepare the refund" onDo={prepare}>
      <Field label={`Amount in ${tokenSymbol}`} value={amount} onInput={setAmount} inputMode="decimal" />
      <Field label="To which address" value={destination} onInput={setDestination} />
      {(payers.length > 1 || isCut(intent)) && (
        <p>
          Anybody can send a little from an address that looks like the payer's: compare the whole address.
          {isCut(intent) && ' Only the newest payments are listed here.'}
        </p>
      )}
      {payers.map(([payer, paid]) => (
        <p key={payer} class="soft">
          {money(paid)} came from <code translate={false}>{payer}</code>. Ask the payer before you return it
          there: money sent back to an exchange may not reach the customer.{' '}
          <Button label="Use this address" onClick={() => setDestination(payer)} />
        </p>
      ))}
      <Field label="Why (the payer does not see it)" value={reason} onInput={setReason} />
      <p>
        {isTooMuch && `No more than ${money(freeUnits)} can go back. `}
        {units !== undefined && !isTooMuch && `Prepares a refund of ${money(units)}. `}
        {isAll && 'Without an amount, prepares all that is left to go back. '}
        Nothing moves yet: your wallet signs it afterwards.
      </p>
    </Opener>
  );
}

/** Not `crypto.randomUUID`, which pages without TLS do not have. */
const newKey = (): string => crypto.getRandomValues(new Uint32Array(4)).join('-');

/** The amount in the token's smallest unit, exact; undefined unless above zero. A comma is for cents. */
function unitsOf(text: string, decimals: number): bigint | undefined {
  const [, whole = '', afterPoint = '', fraction = afterPoint] =
    /^\s*(\d{1,12})(?:\.(\d*)|,(\d{1,2}))?\s*$/.exec(text) ?? [];
  if (whole === '' || fraction.length > decimals) return undefined;
  const units = BigInt(whole + fraction.padEnd(decimals, '0'));
  return units > 0n ? units : undefined;
}

interface SigningProps {
  refund: Refund;
  /** The wallet that was paid, if it is known. */
  wallet: string | undefined;
}

/** A refund that waits for its transfer: signed by a wallet of this browser, or elsewhere by copy or scan. */
function Signing({ refund, wallet }: SigningProps) {
  const [isOpen, setIsOpen] = useState(false);
  if (refund.transaction === undefined) return null;
  return (
    <>
      <details onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
        <summary class="main">Sign it</summary>
        {isOpen && <ToSign refund={refund} wallet={wallet} />}
      </details>
      <ByHash id={refund.id} />
    </>
  );
}

/** Read anew: an older row of a list is not updated, and its refund may have been signed or canceled since. */
function ToSign({ refund: { id }, wallet }: SigningProps) {
  const { isOperator } = useScope();
  const loaded = useLoaded(`refund ${id}`, () => api.getRefund({ id }));
  return (
    <Shown of={loaded}>
      {(refund) =>
        refund.status === RefundStatus.REQUIRES_TRANSFER ? (
          <>
            <SentBefore refund={refund} />
            {!isOperator && <WithWallet refund={refund} />}
            <Elsewhere refund={refund} wallet={wallet} />
          </>
        ) : (
          <p role="status">
            This refund no longer needs a transfer. If your wallet still asks for it, reject it there.{' '}
            <Badge {...refundStates[refund.status]} />
          </p>
        )
      }
    </Shown>
  );
}

/** Transfers that may have returned the money already. */
function SentBefore({ refund: { id, chainId, transfers } }: { refund: Refund }) {
  const { value, failure } = useLoaded(`sent ${id}`, () => api.findRefundTransfers({ refund: id }), rarelyMs);
  const plain = value?.transactionHashes ?? [];
  const confirm = (transactionHash: string) => api.confirmRefund({ id, transactionHash });
  const reverted = transfers.find(({ status }) => status === PaymentStatus.REORGED);
  // It still waits for its own transfer: these have another amount or receiver.
  const others = transfers.filter(({ status }) => status !== PaymentStatus.REORGED);
  return (
    <>
      {others.map(({ transactionHash, logIndex, amountUnits: units, tokenAddress: token }) => (
        <p key={`${transactionHash} ${logIndex}`} role="alert">
          {moneyText({ units, token })} have gone out for this refund already. Signed again, its whole amount
          goes out, too: cancel it if that was all. <Transaction of={transactionHash} chainId={chainId} />
        </p>
      ))}
      {reverted !== undefined && (
        <p role="alert">
          Its transfer was reorged and may come back by itself. Sign again only if your wallet shows it as
          dropped or failed: <Transaction of={reverted.transactionHash} chainId={chainId} />
        </p>
      )}
      {failure !== undefined && value === undefined && (
        <p role="alert">
          It could not be looked up whether this money has gone back already. Look at your wallet before you
          sign it.
        </p>
      )}
      {plain.map((hash) => (
        <div key={hash}>
          <p role="alert">
            The same amount has gone from this wallet to this destination already, without the refund's data:
          </p>
          <Transaction of={hash} chainId={chainId} />{' '}
          <ActionButton label="This was it" isSmall onDo={() => confirm(hash)} />
          <p class="soft">Signed again, the money is returned twice.</p>
        </div>
      ))}
    </>
  );
}

/** The wallets of this browser. Not for operators: extensions would share a page that has their rights. */
function WithWallet({ refund: { id, chainId } }: { refund: Refund }) {
  const [[wallets, hasLooked], setFound] = useState<readonly [readonly Wallet[], boolean]>([[], false]);
  /** The transfer that the user says was never sent. */
  const [unsent, setUnsent] = useState<string>();
  const [, setDrawn] = useState({});
  const sent = storedTransfers.get(id);
  const action = useAction();
  useEffect(() => findWallets((...found) => setFound(found)), []);
  useEffect(() => onChangeOfAnotherTab(id, () => setDrawn({})), [id]);
  if (mayBeSent(sent, unsent)) {
    return (
      <div role="status">
        <p>
          A wallet of this browser was asked to send it
          {sent.hash === undefined ? ', and has not answered yet' : ''}. The refund changes here once it is on
          the chain.
        </p>
        {sent.hash !== undefined && <Transaction of={sent.hash} chainId={chainId} />}
        <p class="soft">
          A second transfer would return the money twice. Sign it again only if your wallet has sent nothing.
        </p>
        <Button label="It has sent nothing: sign it again" onClick={() => setUnsent(nameOf(sent))} />
      </div>
    );
  }
  const sign = (wallet: Wallet) =>
    action.run(async () => {
      const refusal = await withWalletLock(id, () => send(wallet, id, unsent));
      if (refusal !== undefined) throw new Advice(notAsked[refusal]);
    });
  return (
    <>
      {wallets.length === 0 && hasLooked && (
        <p class="soft">This browser has no wallet. Send it with another one:</p>
      )}
      <p class="actions">
        {wallets.map((wallet) => (
          <Button
            key={wallet.id}
            label={`Sign with ${wallet.name}`}
            isMain
            isBusy={action.isBusy}
            onClick={() => sign(wallet)}
          />
        ))}
      </p>
      {action.isBusy && <p role="status">Your wallet shows the transfer. Confirm it there.</p>}
      {action.failure !== undefined && <p role="alert">{action.failure}</p>}
    </>
  );
}

/** Why no wallet was asked. */
const notAsked = {
  'wallet-busy': 'Another tab is asking a wallet for this refund. Continue there.',
  storage:
    'Your browser lets this page save nothing, so it cannot protect you from returning the money twice. Leave private browsing, or send it from another wallet as below.',
};

/** Another name once the wallet has answered: it may have sent the transfer after the user said that it had not. */
const nameOf = ({ askedAtMs, hash }: Transfer) => `${askedAtMs} ${hash}`;

/** True if a wallet was asked for it, unless the user says that it has sent nothing. */
const mayBeSent = (transfer: Transfer | undefined, unsent: string | undefined): transfer is Transfer =>
  transfer !== undefined && nameOf(transfer) !== unsent;

/** Returns the refund with its transaction. Throws Advice if it needs none. */
async function readUnsent(id: string) {
  const { status, transaction, paymentIntent } = await api.getRefund({ id });
  if (status !== RefundStatus.REQUIRES_TRANSFER || transaction === undefined) {
    throw new Advice('This refund no longer needs a transfer.');
  }
  return { transaction, paymentIntent };
}

/** Returns the account that was paid, on its chain. Throws Advice. */
async function accountFor(wallet: Wallet, expectedWallet: string, chain: number) {
  try {
    const from = await wallet.account();
    if (from?.toLowerCase() !== expectedWallet.toLowerCase()) {
      const wanted = `Choose that account in ${wallet.name}, not ${from}.`;
      throw new Advice(`The money went to ${expectedWallet}. ${wanted}`);
    }
    if ((await wallet.chainId()) !== chain) await wallet.switchChain(chain);
    return from as NonNullable<typeof from>;
  } catch (reason) {
    if (reason instanceof Advice) throw reason;
    const refusal = refusalOf(reason);
    throw new Advice(
      refusal === 'wallet-failed' ? 'The wallet failed. Nothing was sent.' : refusals[refusal],
    );
  }
}

/** Asks the wallet to send it, once. What may be on its way is stored first, for every tab. */
async function send(wallet: Wallet, id: string, unsent: string | undefined): Promise<void> {
  const before = storedTransfers.get(id);
  if (mayBeSent(before, unsent)) throw new Advice('A wallet was asked for it in another tab.');
  const { transaction, paymentIntent } = await readUnsent(id);
  const { to, data, chainId } = transaction;
  const { expectedWallet } = await api.getPaymentIntent({ id: paymentIntent });
  const chain = Number(chainId);
  const from = await accountFor(wallet, expectedWallet, chain);
  // The wallet may have waited for hours to be unlocked.
  await readUnsent(id);
  const asked = { from, wallet: wallet.id, askedAtMs: Date.now() };
  storedTransfers.set(id, asked);
  try {
    const hash = await wallet.send({ to, data } as Call, from, chain);
    storedTransfers.set(id, { ...asked, hash });
  } catch (reason) {
    // Without a clear refusal it may still be sent. After one, an earlier request may still be.
    if (isRefusal(reason)) storedTransfers.set(id, before);
    throw new Advice(refusals[refusalOf(reason)]);
  }
}

type Call = Parameters<Wallet['send']>[0];

const refusals = {
  rejected: 'It was not signed, and nothing was sent.',
  'device-old': 'The hardware wallet could not sign it, and nothing was sent.',
  'wallet-busy': 'Your wallet shows a request already: answer it there.',
  'wallet-failed': 'The wallet failed, and may have sent the transfer: check it before you sign again.',
};

/** The transaction, for a wallet that is elsewhere. */
function Elsewhere({ refund: { destination, amountUnits, transaction }, wallet }: SigningProps) {
  const { isOperator } = useScope();
  const { chainId = 0n, to = '', data = '' } = transaction ?? {};
  const link = `ethereum:${to}@${chainId}/transfer?address=${destination}&uint256=${amountUnits}`;
  return (
    <>
      <p>
        Send this on {chainOf(chainId)?.name}, from the wallet that was paid, unchanged. It is shown here once
        it is on the chain.
      </p>
      <Facts
        look="lines"
        of={{
          'From the wallet that was paid': wallet && <Address of={wallet} chainId={chainId} />,
          'To the token contract': <Address of={to} chainId={chainId} />,
          [`Data, which says: ${moneyText({ units: amountUnits, token: to })} to ${shortened(destination)}`]:
            <Copyable text={data} what="data" short={`${data.slice(0, 18)}…`} />,
        }}
      />
      {isOperator && (
        <details>
          <summary>QR code for a phone</summary>
          <QrCode text={link} label="QR code of the transfer, for phone wallets" />
          <p class="soft">
            The QR code does not contain the refund's id. Enter the transaction hash below afterwards.
          </p>
        </details>
      )}
    </>
  );
}

/** For a wallet that cannot send the data: the merchant says which transfer it was. */
function ByHash({ id }: { id: string }) {
  const [hash, setHash] = useState('');
  const confirm = () => api.confirmRefund({ id, transactionHash: hash.trim() });
  return (
    <Opener isSmall label="It was sent without this data" doLabel="This was it" onDo={confirm}>
      <p>
        A transfer counts as this refund if it has the same amount, comes from the wallet that was paid, and
        went to this destination.
      </p>
      <Field label="Transaction hash" value={hash} onInput={setHash} />
    </Opener>
  );
}
