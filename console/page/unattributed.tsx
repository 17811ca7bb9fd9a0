// Money that names no payment: the list, and one transfer beside the payments that it may be for.

import { useState } from 'preact/hooks';
import { networkFor } from '../../src/contract/chains.ts';
import { type Transfer, TransferStatus } from '../../src/contract/gen/payments/v1/transfer_pb.ts';
import { chainWords, type Mode } from '../../src/contract/gen/words.ts';
import { nameOf } from '../../src/contract/words.ts';
import { api, useScope } from './api.ts';
import { Field, Opener } from './forms.tsx';
import { Head, LiveList, Shown, useLoaded } from './loading.tsx';
import { orderOf } from './payments.tsx';
import { Link } from './routing.tsx';
import { Facts, Table } from './tables.tsx';
import { Address, Badge, chainOf, Labels, Money, moneyText, Transaction, When } from './values.tsx';
import { stateOf } from './words.ts';

export function UnattributedTransfers() {
  return (
    <>
      <h1>Unattributed</h1>
      <p class="lead">
        Money that came to your wallet and names no payment. A person decides whose it is: nothing is guessed.
      </p>
      <LiveList
        name="unattributed"
        ask={(page) => api.listTransfers({ status: TransferStatus.UNATTRIBUTED, ...page })}
        rowsOf={({ transfers }) => transfers}
        empty="Every transfer has its payment."
      >
        {(rows) => <TransferTable rows={rows} />}
      </LiveList>
    </>
  );
}

export function TransferTable({ rows }: { rows: readonly Transfer[] }) {
  const { mode } = useScope().merchant;
  const chainIdOf = (row: Transfer) => chainIdIn(mode, row);
  return (
    <Table
      rows={rows}
      keyOf={({ id }) => id}
      numbers={['Amount']}
      columns={{
        Transfer: ({ id, paymentIntent, labels }) => (
          <>
            <Link to={paymentIntent === '' ? `/unattributed/${id}` : `/payments/${paymentIntent}`}>
              {paymentIntent === '' ? 'Whose is it?' : 'To its payment'}
            </Link>{' '}
            <Labels of={labels} />
          </>
        ),
        Amount: (row) => <Money units={row.amountUnits} token={row.tokenAddress} />,
        From: (row) => <Address of={row.fromAddress} chainId={chainIdOf(row)} />,
        Chain: (row) => chainOf(chainIdOf(row))?.name,
        'In its block': ({ blockTime }) => <When at={blockTime} />,
      }}
    />
  );
}

/** The EIP-155 id of the transfer's chain in that mode. */
function chainIdIn(mode: Mode, { chain }: Transfer): bigint {
  const name = nameOf(chainWords, chain);
  return name === undefined ? 0n : BigInt(networkFor(mode, name).chainId);
}

export function UnattributedTransfer({ id }: { id: string }) {
  const { isReadOnly } = useScope();
  const transfer = useLoaded(id, () => api.getTransfer({ id }));
  const detach = () => api.detachTransfer({ id });
  return (
    <Shown of={transfer} isView>
      {(found) => (
        <>
          <Head
            kind="Transfer"
            name={moneyText({ units: found.amountUnits, token: found.tokenAddress })}
            heading={<Money units={found.amountUnits} token={found.tokenAddress} />}
          >
            <p>
              {found.paymentIntent === '' ? (
                'It names no payment on its chain.'
              ) : (
                <>
                  It belongs to <Link to={`/payments/${found.paymentIntent}`}>its payment</Link>.
                </>
              )}
            </p>
          </Head>
          {found.paymentIntent !== '' && !isReadOnly && (
            <div class="actions">
              <Opener label="It is not for that payment" doLabel="Detach it" onDo={detach}>
                <p>
                  The payment changes to what it would be without this transfer, which becomes unattributed
                  again. Only a manual attribution can be detached. Refund a transfer that was attributed
                  automatically instead.
                </p>
              </Opener>
            </div>
          )}
          <TransferFacts of={found} />
          {found.paymentIntent === '' && <Candidates transfer={found} />}
        </>
      )}
    </Shown>
  );
}

function TransferFacts({ of: transfer }: { of: Transfer }) {
  const chainId = chainIdIn(useScope().merchant.mode, transfer);
  return (
    <Facts
      of={{
        Transaction: <Transaction of={transfer.transactionHash} chainId={chainId} />,
        From: <Address of={transfer.fromAddress} chainId={chainId} />,
        To: <Address of={transfer.toAddress} chainId={chainId} />,
        Chain: chainOf(chainId)?.name,
        'In its block': <When at={transfer.blockTime} />,
        Confirmations: transfer.confirmations,
      }}
    />
  );
}

function Candidates({ transfer }: { transfer: Transfer }) {
  const { isReadOnly } = useScope();
  const [other, setOther] = useState('');
  const isOnChain = transfer.confirmations > 0;
  return (
    <section aria-labelledby="candidates">
      <h2 id="candidates">Whose may it be?</h2>
      {transfer.candidates.length === 0 ? (
        <p>
          {!isOnChain
            ? 'It is no longer on the chain: it was reorganised. It is listed again if it returns.'
            : 'No payment for this wallet and chain existed at that time. Ask the sender where to return it: money sent back to an exchange may not reach the customer.'}
        </p>
      ) : (
        <ul class="candidates">
          {transfer.candidates.map((candidate) => (
            <Candidate key={candidate.id} id={candidate.id} transfer={transfer} />
          ))}
        </ul>
      )}
      {isOnChain && !isReadOnly && (
        <Field label="Another payment, by its id" value={other} onInput={setOther} />
      )}
      {isOnChain && /^\s*pi_[0-9a-z]{26}\s*$/.test(other) && (
        <ul class="candidates">
          <Candidate key={other.trim()} id={other.trim()} transfer={transfer} />
        </ul>
      )}
    </section>
  );
}

/** A payment that the transfer may be for, with the differences. */
function Candidate({ id, transfer }: { id: string; transfer: Transfer }) {
  const { isReadOnly } = useScope();
  const loaded = useLoaded(id, () => api.getPaymentIntent({ id }));
  return (
    <li>
      <Shown of={loaded}>
        {(intent) => {
          const { amountUnits, tokenAddress: token, amountReceivedUnits: received = 0n } = intent;
          const missing = amountUnits > received ? amountUnits - received : 0n;
          const difference = transfer.amountUnits - missing;
          const isSame = transfer.tokenAddress === token;
          const isWaiting = isSame && stateOf(intent).tone === 'busy' && missing > 0n;
          const money = (units: bigint) => moneyText({ units, token });
          const moreOrLess = difference > 0n ? `${money(difference)} more` : `${money(-difference)} less`;
          const different = isSame ? moreOrLess : 'another token';
          const request = { id: transfer.id, paymentIntent: id, allowEnded: !isWaiting };
          const attribute = () => api.attributeTransfer(request);
          return (
            <>
              <p>
                <Link to={`/payments/${id}`}>{orderOf(intent) || id}</Link> <Badge {...stateOf(intent)} />
              </p>
              <Facts
                of={{
                  'Still to pay': money(missing),
                  'The transfer has': isSame && difference === 0n ? 'exactly this' : <mark>{different}</mark>,
                  Created: <When at={intent.createdAt} />,
                }}
              />
              {!isReadOnly && (
                <Opener label="It is this one" doLabel="Attribute the transfer" onDo={attribute}>
                  <p>{consequenceOf(isSame, isWaiting, difference)} Your shop is notified by an event.</p>
                </Opener>
              )}
            </>
          );
        }}
      </Shown>
    </li>
  );
}

/** What attributing it will do to the payment. */
function consequenceOf(isSame: boolean, isWaiting: boolean, difference: bigint): string {
  if (!isSame)
    return 'Another token never pays it: the transfer is listed with the payment, and nothing else changes.';
  if (!isWaiting) {
    return 'The payment is already complete or closed and stays as it is. The transfer is listed with it so that you can refund it.';
  }
  if (difference < 0n) return 'The payment gets a part of its money, and keeps waiting for the rest.';
  return difference === 0n
    ? 'The payment gets all of its money, and succeeds once the transfer is confirmed.'
    : 'The payment gets more than it asked for, and succeeds once the transfer is confirmed.';
}
