// Money that goes back: the list, and the form that prepares a refund of a payment. The merchant's wallet signs it.

import { useState } from 'preact/hooks';
import { plainAmount } from '../../checkout/page/amount.ts';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';
import { refundApi } from './api.ts';
import { Shown, useAction, useLoaded } from './loading.tsx';
import { Address, Badge, Button, Copyable, Labels, Money, moneyText, Transaction, When } from './parts.tsx';
import { Link } from './routing.tsx';
import { refundStates } from './words.ts';

export function Refunds() {
  const refunds = useLoaded('refunds', () => refundApi.listRefunds({ pageSize: 100 }));
  return (
    <>
      <h1>Refunds</h1>
      <Shown of={refunds}>
        {({ refunds: rows, nextPageToken }) =>
          rows.length === 0 ? (
            <p class="state">No refund yet. A payment has a button for it.</p>
          ) : (
            <>
              <RefundTable rows={rows} hasPayment />
              {nextPageToken !== '' && (
                <p class="soft">These are the newest hundred. Older ones are found by their payment.</p>
              )}
            </>
          )
        }
      </Shown>
    </>
  );
}

export function RefundTable({ rows, hasPayment = false }: { rows: readonly Refund[]; hasPayment?: boolean }) {
  return (
    <table class="list">
      <thead>
        <tr>
          <th scope="col">Refund</th>
          <th scope="col" class="number">
            Amount
          </th>
          <th scope="col">Status</th>
          <th scope="col">To</th>
          <th scope="col">Prepared</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id}>
            <th scope="row">
              {hasPayment ? (
                <Link to={`/payments/${row.paymentIntent}`}>{row.reason || row.id}</Link>
              ) : (
                row.reason || row.id
              )}
              {row.transfers.map(({ transactionHash, logIndex }) => (
                <div key={`${transactionHash} ${logIndex}`}>
                  <Transaction hash={transactionHash} chainId={row.chainId} />
                </div>
              ))}
              {row.status === RefundStatus.REQUIRES_TRANSFER && <ToSign refund={row} />}
            </th>
            <td class="number">
              <Money units={row.amountUnits} />
            </td>
            <td>
              <Badge {...refundStates[row.status]} /> <Labels of={row.labels} />
            </td>
            <td>
              <Address of={row.destination} chainId={row.chainId} />
            </td>
            <td>
              <When at={row.createdAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What the merchant's wallet has to send, unchanged. */
function ToSign({ refund: { transaction } }: { refund: Refund }) {
  if (transaction === undefined) return null;
  return (
    <details>
      <summary>What your wallet has to send</summary>
      <p>Send this from the wallet that was paid, unchanged. The payment shows it once it is on the chain.</p>
      <dl>
        <dt>To</dt>
        <dd>
          <Copyable text={transaction.to} what="contract" />
        </dd>
        <dt>Data</dt>
        <dd>
          <Copyable text={transaction.data} what="data" short={`${transaction.data.slice(0, 18)}…`} />
        </dd>
      </dl>
    </details>
  );
}

/** The payers of confirmed payments: usual destinations. */
function payersOf({ payments }: PaymentIntent): string[] {
  const confirmed = payments.filter(({ status }) => status === PaymentStatus.CONFIRMED);
  return [...new Set(confirmed.map(({ fromAddress }) => fromAddress))];
}

export function RefundForm({ intent, onDone }: { intent: PaymentIntent; onDone: () => void }) {
  const [isOpen, setIsOpen] = useState(false);
  const [payer = ''] = payersOf(intent);
  const { amountReceivedUnits: received = 0n, amountRefundedUnits: refunded = 0n, decimals } = intent;
  const [amount, setAmount] = useState('');
  const [destination, setDestination] = useState('');
  const [reason, setReason] = useState('');
  const action = useAction();
  if (!isOpen) {
    const open = () => {
      setAmount(received > refunded ? plainAmount(received - refunded, decimals) : '');
      setIsOpen(true);
    };
    return <Button label="Give money back" onClick={open} />;
  }
  const units = unitsOf(amount, decimals);
  const prepare = () =>
    action.run(async () => {
      if (units === undefined) throw new Error('Write the amount as digits, such as 12.50.');
      await refundApi.createRefund({ paymentIntent: intent.id, amountUnits: units, destination, reason });
      setIsOpen(false);
      onDone();
    });
  return (
    <section class="confirm" aria-label="Give money back">
      <label>
        Amount in {intent.tokenSymbol}
        <input
          inputMode="decimal"
          value={amount}
          onInput={({ currentTarget }) => setAmount(currentTarget.value)}
        />
      </label>
      <label>
        To which address
        <input
          autocomplete="off"
          spellcheck={false}
          value={destination}
          onInput={({ currentTarget }) => setDestination(currentTarget.value)}
        />
      </label>
      {payer !== '' && (
        <p class="soft">
          It was paid from <code>{payer}</code>. Ask the payer before you return it there: an exchange does
          not give its customers what comes back to its own address.{' '}
          <Button label="Take this address" onClick={() => setDestination(payer)} />
        </p>
      )}
      <label>
        Why (the payer may see it)
        <input
          maxLength={500}
          value={reason}
          onInput={({ currentTarget }) => setReason(currentTarget.value)}
        />
      </label>
      <p>
        {units === undefined
          ? 'Nothing moves yet: your wallet signs it afterwards.'
          : `Prepares ${moneyText({ units, decimals, symbol: intent.tokenSymbol })} to go back. Nothing moves yet: your wallet signs it afterwards.`}
      </p>
      {action.failure !== undefined && <p role="alert">{action.failure}</p>}
      <p class="actions">
        <Button label="Prepare the refund" isMain isBusy={action.isBusy} onClick={prepare} />
        <Button label="Leave it" onClick={() => setIsOpen(false)} />
      </p>
    </section>
  );
}

/** The amount in the token's smallest unit, exact; undefined if the text is not an amount above zero. */
function unitsOf(text: string, decimals: number): bigint | undefined {
  const [, whole = '', fraction = ''] = /^\s*(\d{1,12})(?:\.(\d*))?\s*$/.exec(text) ?? [];
  if (whole === '' || fraction.length > decimals) return undefined;
  const units = BigInt(whole + fraction.padEnd(decimals, '0'));
  return units > 0n ? units : undefined;
}
