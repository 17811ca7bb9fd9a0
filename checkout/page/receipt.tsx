// A payment on its way, and what has arrived.

import type { CheckoutPayment } from '../sdk/gen/checkout.ts';
import { type Checkout, chainFacts } from './checkout.ts';
import { amountWithToken, Row, ShortAddress, type StepProps } from './parts.tsx';
import { isWrongToken, returnedIn } from './state.ts';
import { labels } from './texts.ts';
import { shownDate } from './time.ts';

/** A bar of the confirmations so far: the fewest of any payment that counts. */
export function Confirmations({ checkout }: { checkout: Checkout }) {
  const { payments = [], confirmations_required } = checkout;
  const confirmations = payments.filter(({ counts }) => counts).map((payment) => payment.confirmations);
  const count = Math.min(confirmations_required, ...confirmations);
  const label = labels.confirmations(count, confirmations_required);
  return (
    <div class="confirmations">
      <progress max={confirmations_required} value={count} aria-label={label} />
      <p>{label}</p>
    </div>
  );
}

/** The pending transaction, if its hash is known. */
export function OwnTransaction({ facts: { transfer, isLocal }, checkout }: StepProps) {
  const hash =
    transfer?.hash ??
    checkout.payments?.find(({ status }) => status === 'reorged')?.transaction_hash ??
    checkout.authorization?.transaction_hash;
  if (!hash) return null;
  return (
    <dl>
      <Row name={labels.transaction}>
        <Transaction hash={hash} chainId={checkout.chain_id} isLocal={isLocal} />
      </Row>
    </dl>
  );
}

function Transaction({ hash, chainId, isLocal }: { hash: string; chainId: number; isLocal: boolean }) {
  const short = <code title={hash} translate={false}>{`${hash.slice(0, 8)}…${hash.slice(-6)}`}</code>;
  // No explorer has a local chain.
  if (isLocal) return short;
  return (
    <a href={`${chainFacts(chainId).explorer}/tx/${hash}`} target="_blank" rel="noopener noreferrer">
      {short}
      <span class="hidden"> {labels.seeTransaction}</span>
      <span aria-hidden="true"> ↗</span>
    </a>
  );
}

/** One transaction may hold several transfers. */
const keyOf = ({ block_hash, log_index }: CheckoutPayment) => `${block_hash} ${log_index}`;

/** What has arrived, and in which transaction. */
export function Receipt({ checkout, facts, words }: StepProps) {
  const { payments = [], expected_wallet, chain_id } = checkout;
  const shown = payments.filter(({ status }) => status !== 'reorged');
  const isFinal = checkout.status === 'succeeded';
  return (
    <div class="receipt">
      <h2>{isFinal ? labels.receipt : labels.payment}</h2>
      {shown.map((payment) => (
        <dl key={keyOf(payment)} data-counts={payment.counts === true}>
          <Row name={isFinal && payment.counts ? labels.paidAmount : labels.amount}>
            {isWrongToken(payment) ? labels.otherToken : amountWithToken(payment.amount_units, checkout)}
          </Row>
          <Row name={labels.date}>{shownDate(Date.parse(payment.block_time))}</Row>
          <Row name={labels.transaction}>
            <Transaction hash={payment.transaction_hash} chainId={chain_id} isLocal={facts.isLocal} />
          </Row>
        </dl>
      ))}
      <dl>
        <Row name={labels.to}>
          <bdi>{words.merchant}</bdi>, <ShortAddress of={expected_wallet} />
        </Row>
      </dl>
    </div>
  );
}

/** What the merchant has returned, or is returning. */
export function Returned({ checkout, facts }: StepProps) {
  const { chain_id } = checkout;
  const refunds = returnedIn(checkout);
  if (refunds.length === 0) return null;
  return (
    <div class="receipt" data-returned>
      <h2>{labels.refund}</h2>
      {refunds.map((refund) => (
        <dl key={keyOf(refund)} data-counts>
          <Row name={refund.status === 'confirmed' ? labels.returnedAmount : labels.amount}>
            {amountWithToken(refund.amount_units, checkout)}
          </Row>
          <Row name={labels.date}>{shownDate(Date.parse(refund.block_time))}</Row>
          <Row name={labels.transaction}>
            <Transaction hash={refund.transaction_hash} chainId={chain_id} isLocal={facts.isLocal} />
          </Row>
          <Row name={labels.to}>
            <ShortAddress of={refund.to_address} />
          </Row>
        </dl>
      ))}
    </div>
  );
}
