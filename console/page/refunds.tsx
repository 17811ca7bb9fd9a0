// Money that goes back: the list, and the form that prepares a refund of a payment. The merchant's wallet signs it.

import { useState } from 'preact/hooks';
import { plainAmount } from '../../checkout/page/amount.ts';
import {
  type PaymentIntent,
  PaymentIntentStatus,
} from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';
import { Advice, isReusedKey, refundApi } from './api.ts';
import { Button, Field, Opener } from './forms.tsx';
import { LiveList } from './lists.tsx';
import { Link } from './routing.tsx';
import { useScope } from './scope.ts';
import { Signing } from './sign-refund.tsx';
import { Table } from './tables.tsx';
import { Address, Badge, Labels, Money, moneyText, Transaction, When } from './values.tsx';
import { refundStates } from './words.ts';

export function Refunds() {
  return (
    <>
      <h1>Refunds</h1>
      <LiveList
        name="refunds"
        ask={(page) => refundApi.listRefunds(page)}
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
  /** The wallet that was paid, of a payment's refunds. */
  wallet?: string;
}

export function RefundTable({ rows, hasPayment = false, wallet }: RefundTableProps) {
  const { isReadOnly } = useScope();
  const cancel = (id: string) => refundApi.cancelRefund({ id });
  return (
    <Table
      rows={rows}
      keyOf={({ id }) => id}
      numbers={['Amount']}
      columns={{
        Refund: (row) => (
          <>
            <Link to={hasPayment && `/payments/${row.paymentIntent}`}>{row.reason || row.id}</Link>
            {row.transfers.map(({ transactionHash, logIndex }) => (
              <div key={`${transactionHash} ${logIndex}`}>
                <Transaction of={transactionHash} chainId={row.chainId} />
              </div>
            ))}
            {row.status === RefundStatus.REQUIRES_TRANSFER && !isReadOnly && (
              <>
                <Signing refund={row} wallet={wallet} />
                <Opener isSmall label="Cancel this refund" doLabel="Cancel it" onDo={() => cancel(row.id)}>
                  <p>Its money can be returned otherwise then. Make sure that nobody signs it any more.</p>
                </Opener>
              </>
            )}
          </>
        ),
        Amount: ({ amountUnits }) => <Money units={amountUnits} />,
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

/** What was confirmed in the intent's token. */
const confirmedOf = ({ payments, tokenAddress }: PaymentIntent) =>
  payments.filter((each) => each.status === PaymentStatus.CONFIRMED && each.tokenAddress === tokenAddress);

/** What of it has not gone back. */
const returnableOf = (intent: PaymentIntent): bigint =>
  confirmedOf(intent).reduce((all, each) => all + each.amountUnits, -(intent.amountRefundedUnits ?? 0n));

/** True if the service has more payments than it has sent: what they add up to is not known here. */
export const isCut = ({ payments, paymentsCount = 0 }: PaymentIntent) => paymentsCount > payments.length;

/** What of it is more than was asked for: all of it, if the payment ended unpaid. */
export function surplusOf(intent: PaymentIntent): bigint {
  if (isCut(intent)) return 0n;
  const isPaid = intent.status === PaymentIntentStatus.SUCCEEDED;
  const surplus = returnableOf(intent) - (isPaid ? intent.amountUnits : 0n);
  return surplus > 0n ? surplus : 0n;
}

const open: readonly RefundStatus[] = [RefundStatus.REQUIRES_TRANSFER, RefundStatus.PROCESSING];

/** What of it no open refund takes. */
function freeOf(intent: PaymentIntent, refunds: readonly Refund[]): bigint | undefined {
  if (isCut(intent)) return undefined;
  const taken = refunds.filter(({ status }) => open.includes(status));
  return taken.reduce((rest, { amountUnits }) => rest - amountUnits, returnableOf(intent));
}

interface RefundFormProps {
  intent: PaymentIntent;
  refunds: readonly Refund[];
  onDone: () => void;
}

export function RefundForm({ intent, refunds, onDone }: RefundFormProps) {
  const [key, setKey] = useState('');
  const { decimals, tokenSymbol } = intent;
  const [amount, setAmount] = useState('');
  const [destination, setDestination] = useState('');
  const [reason, setReason] = useState('');
  const open = () => {
    const surplus = surplusOf(intent);
    const most = surplus > 0n && surplus < (freeUnits ?? 0n) ? surplus : freeUnits;
    setAmount(most === undefined ? '' : plainAmount(most, decimals));
    // Pressed twice, it prepares one.
    setKey(crypto.randomUUID());
  };
  const freeUnits = freeOf(intent, refunds);
  if (freeUnits !== undefined && freeUnits <= 0n) return null;
  const units = unitsOf(amount, decimals);
  // The service knows what is left, and takes all of it without an amount.
  const isAll = freeUnits === undefined && amount === '';
  const isTooMuch = units !== undefined && freeUnits !== undefined && units > freeUnits;
  /** Usual destinations. */
  const payers = new Set(confirmedOf(intent).map(({ fromAddress }) => fromAddress));
  const money = (of: bigint) => moneyText({ units: of, decimals, symbol: tokenSymbol });
  const prepare = async () => {
    if (units === undefined && !isAll) throw new Advice('Write the amount as digits, such as 12.50.');
    const request = { paymentIntent: intent.id, amountUnits: units, destination, reason };
    await refundApi.createRefund(request, { headers: { 'Idempotency-Key': key } }).catch((reason) => {
      // Only this form has the key: the answer to it was lost, and what it asks for was changed since.
      if (!isReusedKey(reason)) throw reason;
      throw new Advice(
        'What you asked for before was prepared after all. It is listed under Refunds: leave this, and look there.',
      );
    });
    onDone();
  };
  return (
    <Opener label="Give money back" onOpen={open} doLabel="Prepare the refund" onDo={prepare}>
      <Field label={`Amount in ${tokenSymbol}`} value={amount} onInput={setAmount} inputMode="decimal" />
      <Field label="To which address" value={destination} onInput={setDestination} />
      {[...payers].map((payer) => (
        <p key={payer} class="soft">
          It was paid from <code>{payer}</code>. Ask the payer before you return it there: an exchange does
          not give its customers what comes back to its own address.{' '}
          <Button label="Take this address" onClick={() => setDestination(payer)} />
        </p>
      ))}
      <Field label="Why (the payer does not see it)" value={reason} onInput={setReason} />
      <p>
        {isTooMuch && `No more than ${money(freeUnits)} can go back. `}
        {units !== undefined && !isTooMuch && `Prepares ${money(units)} to go back. `}
        {isAll && 'Without an amount, prepares all that is left to go back. '}
        Nothing moves yet: your wallet signs it afterwards.
      </p>
    </Opener>
  );
}

/** The amount in the token's smallest unit, exact; undefined if the text is not an amount above zero. A comma is one of cents. */
function unitsOf(text: string, decimals: number): bigint | undefined {
  const [, whole = '', afterPoint = '', fraction = afterPoint] =
    /^\s*(\d{1,12})(?:\.(\d*)|,(\d{1,2}))?\s*$/.exec(text) ?? [];
  if (whole === '' || fraction.length > decimals) return undefined;
  const units = BigInt(whole + fraction.padEnd(decimals, '0'));
  return units > 0n ? units : undefined;
}
