// One payment: what was asked for, what came, what went back, and what happened in which order.

import { useState } from 'preact/hooks';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentStatus } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus, type Payment as Transfer } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';
import { api, useScope } from './api.ts';
import { Opener } from './forms.tsx';
import { Head, Shown, useLoaded } from './loading.tsx';
import { orderOf } from './payments.tsx';
import { RefundForm, RefundTable } from './refunds.tsx';
import { isCut, sumOf, surplusOf } from './returnable.ts';
import { Link } from './routing.tsx';
import { Facts, Table } from './tables.tsx';
import { Timeline } from './timeline.tsx';
import { Address, Badge, Copyable, chainOf, Labels, Money, moneyText, Transaction, When } from './values.tsx';
import { paymentStates, stateOf } from './words.ts';

export function Payment({ id }: { id: string }) {
  const { isReadOnly } = useScope();
  const loaded = useLoaded(id, async () => {
    // The intent after its refunds: money that an ended refund has returned is never counted as still there.
    const { refunds } = await api.listRefunds({ paymentIntent: id, pageSize: 100 });
    return { refunds, intent: await api.getPaymentIntent({ id }) };
  });
  return (
    <Shown of={loaded} isView>
      {({ intent: found, refunds: all }) => (
        <>
          <PaymentHead intent={found} refunds={all} />
          {!isReadOnly && <Actions intent={found} refunds={all} />}
          <IntentFacts intent={found} />
          {found.payments.length > 0 && <Transfers of={found} />}
          {all.length > 0 && (
            <section aria-labelledby="refunds">
              <h2 id="refunds">Refunds</h2>
              <RefundTable rows={all} wallet={found.expectedWallet} />
            </section>
          )}
          <Timeline intent={found} />
        </>
      )}
    </Shown>
  );
}

function PaymentHead({ intent, refunds }: { intent: PaymentIntent; refunds: readonly Refund[] }) {
  const { amountUnits: units, tokenAddress: token, labels } = intent;
  const money = { units, token };
  return (
    <Head kind={orderOf(intent) || 'Payment'} name={moneyText(money)} heading={<Money {...money} />}>
      <p>
        <Badge {...stateOf(intent)} /> <Labels of={labels} />
      </p>
      <p>{sentenceOf(intent, refunds)}</p>
    </Head>
  );
}

/** The state of the payment, in a plain sentence. */
function sentenceOf(intent: PaymentIntent, refunds: readonly Refund[]): string {
  const { status, amountUnits, payments, labels, tokenAddress: token } = intent;
  const { amountReceivedUnits: received = 0n, amountRefundedUnits: refunded = 0n } = intent;
  const money = (units: bigint) => moneyText({ units, token });
  const unitsWhere = (isMeant: (payment: Transfer) => boolean) => sumOf(payments.filter(isMeant));
  const came = payments.some((each) => each.status !== PaymentStatus.REORGED);
  const returned = refunded > 0n ? ` ${money(refunded)} went back to the payer.` : '';
  const surplus = surplusOf(intent, refunds);
  switch (status) {
    case PaymentIntentStatus.REQUIRES_PAYMENT:
      if (received > 0n) return `${money(received)} arrived; ${money(amountUnits - received)} is missing.`;
      if (!came && unitsWhere(({ tokenAddress }) => tokenAddress === token) >= amountUnits) {
        return 'Its payment was reorged, and usually comes back: the payer should not pay again.';
      }
      return payments.length > 0 ? 'Nothing that pays it has arrived.' : 'Nothing has arrived yet.';
    case PaymentIntentStatus.PROCESSING:
      return 'The money is on the chain. Do not ship yet: it still needs confirmations.';
    case PaymentIntentStatus.SUCCEEDED:
      if (labels.includes('reorged') && received < amountUnits) {
        return 'A payment was reorged after this had succeeded. Do not ship before you have checked what was received.';
      }
      return `The money is there.${returned}${surplus > 0n ? ` ${money(surplus)} is more than you asked for: return it.` : ''}`;
    case PaymentIntentStatus.EXPIRED:
    case PaymentIntentStatus.CANCELED: {
      const end = status === PaymentIntentStatus.CANCELED ? 'was canceled' : 'expired';
      if (!came) return `It ${end}. Nothing arrived, so there is nothing to ship.`;
      const inTime = unitsWhere(
        (each) => each.labels.includes('found_late') && each.status !== PaymentStatus.REORGED,
      );
      if (inTime >= amountUnits && refunded === 0n) {
        return `It ${end}, but was paid in time and seen late: treat it as paid, or return the money.`;
      }
      const advice = surplus > 0n ? ' Return it.' : '';
      const why =
        received > 0n && received < amountUnits
          ? `only ${money(received)} of it had arrived`
          : 'money arrived that does not pay it';
      return `It ${end}: ${why}.${returned}${advice}`;
    }
    default:
      return 'This page is too old to show this status. Reload it.';
  }
}

function Actions({ intent, refunds }: { intent: PaymentIntent; refunds: readonly Refund[] }) {
  const { id, status } = intent;
  const [isPrepared, setIsPrepared] = useState(false);
  const isWaiting = isPrepared && refunds.some((each) => each.status === RefundStatus.REQUIRES_TRANSFER);
  // What an open payment has received counts towards it, even if some of it goes back.
  const isEnded =
    status !== PaymentIntentStatus.REQUIRES_PAYMENT && status !== PaymentIntentStatus.PROCESSING;
  const cancel = () => api.cancelPaymentIntent({ id });
  return (
    <div class="actions">
      {status === PaymentIntentStatus.REQUIRES_PAYMENT && (
        <Opener label="Cancel this payment" doLabel="Cancel it" onDo={cancel}>
          <p>
            The payer will no longer be able to pay. You can refund what has arrived, and anything that is
            sent later.
          </p>
        </Opener>
      )}
      {isEnded && <RefundForm intent={intent} refunds={refunds} onDone={() => setIsPrepared(true)} />}
      <p role="status">{isWaiting && 'The refund is prepared. Sign it below, under “Refunds”.'}</p>
    </div>
  );
}

function IntentFacts({ intent }: { intent: PaymentIntent }) {
  const { id, chainId, expectedWallet, createdAt, expiresAt, metadata, tokenAddress: token } = intent;
  const { amountReceivedUnits: received = 0n, amountRefundedUnits: refunded = 0n } = intent;
  return (
    <Facts
      of={{
        'Paid towards it': <Money units={received} token={token} />,
        Returned: refunded > 0n && <Money units={refunded} token={token} />,
        Chain: chainOf(chainId)?.name,
        To: <Address of={expectedWallet} chainId={chainId} />,
        Created: <When at={createdAt} />,
        'Payable until': <When at={expiresAt} />,
        Id: <Copyable text={id} what="id" />,
      }}
      metadata={metadata}
    />
  );
}

const keyOf = ({ transactionHash, logIndex }: Pick<Transfer, 'transactionHash' | 'logIndex'>) =>
  `${transactionHash} ${logIndex}`;

function Transfers({ of: intent }: { of: PaymentIntent }) {
  const { id, chainId, payments } = intent;
  const { value: ids } = useLoaded(`${id} transfers`, async () => {
    const { transfers } = await api.listTransfers({ paymentIntent: id, pageSize: 100 });
    return new Map(transfers.map((each) => [keyOf(each), each.id]));
  });
  return (
    <section aria-labelledby="came">
      <h2 id="came">What came</h2>
      {isCut(intent) && (
        <p class="soft">
          The newest {payments.length} of {intent.paymentsCount}.
        </p>
      )}
      <Table
        rows={payments}
        keyOf={keyOf}
        numbers={['Amount']}
        columns={{
          Transaction: (row) => {
            const id = ids?.get(keyOf(row));
            return (
              <>
                <Transaction of={row.transactionHash} chainId={chainId} />
                {id !== undefined && (
                  <div>
                    <Link to={`/unattributed/${id}`}>Not for this payment?</Link>
                  </div>
                )}
              </>
            );
          },
          Amount: ({ amountUnits: units, tokenAddress: token }) => <Money units={units} token={token} />,
          Status: ({ status, confirmations, labels }) => (
            <>
              <Badge {...paymentStates[status]} />{' '}
              {status === PaymentStatus.PENDING && `${confirmations} of ${intent.confirmationsRequired}`}{' '}
              <Labels of={labels} />
            </>
          ),
          From: ({ fromAddress }) => <Address of={fromAddress} chainId={chainId} />,
          'In its block': ({ blockTime }) => <When at={blockTime} />,
        }}
      />
    </section>
  );
}
