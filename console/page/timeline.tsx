// What happened to a payment, in order: its transfers, its events with what each endpoint was sent and
// answered, and what people did.

import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { AuditedChange } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import { type Event, EventSchema } from '../../src/contract/gen/payments/v1/event_pb.ts';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import type { WebhookDelivery } from '../../src/contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { createJsonCodec } from '../../src/contract/json/json-codec.ts';
import { api, useScope } from './api.ts';
import { ActionButton } from './forms.tsx';
import { Shown, useLoaded } from './loading.tsx';
import { Link } from './routing.tsx';
import { Badge, moneyText, Transaction, When } from './values.tsx';
import { deedOf, deliveryStates, eventWords, paymentStates } from './words.ts';

const maxPages = 5;

/** The first five hundred: many small payments make as many events. */
async function eventsOf(paymentIntent: string): Promise<Event[]> {
  const all: Event[] = [];
  let pageToken = '';
  for (let page = 0; page < maxPages; page++) {
    const { events, nextPageToken } = await api.listEvents({ paymentIntent, pageSize: 100, pageToken });
    all.push(...events);
    if (nextPageToken === '') break;
    pageToken = nextPageToken;
  }
  return all;
}

export function Timeline({ intent }: { intent: PaymentIntent }) {
  const { id, createdAt } = intent;
  const timeline = useLoaded(`${id} timeline`, () =>
    Promise.all([eventsOf(id), api.getTimeline({ paymentIntent: id })]),
  );
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">What happened</h2>
      <Shown of={timeline}>
        {([events, { webhookDeliveries, changes }]) => {
          const byEvent = Map.groupBy(webhookDeliveries, ({ event }) => event);
          // A block's time is in whole seconds: a payment may seem to be older than its intent.
          const created: Entry = { key: 'created', at: createdAt, what: 'Created' };
          const entries: Entry[] = [
            ...intent.payments.map((each) => ({
              key: `${each.transactionHash} ${each.logIndex}`,
              at: each.blockTime,
              what: [
                <Badge key="status" {...paymentStates[each.status]} />,
                ` ${moneyText({ units: each.amountUnits, token: each.tokenAddress })} came. `,
                <Transaction key="hash" of={each.transactionHash} chainId={intent.chainId} />,
              ],
            })),
            ...events.map((event) => ({
              key: event.id,
              at: event.createdAt,
              what: [
                eventWords(event.type),
                ...(byEvent.get(event.id) ?? []).map((each) => <Delivery key={each.id} of={each} />),
              ],
            })),
            ...deedsOf(changes),
          ];
          const ms = ({ at }: Entry) => (at === undefined ? 0 : timestampMs(at));
          return <Entries of={[created, ...entries.sort((a, b) => ms(a) - ms(b))]} />;
        }}
      </Shown>
    </section>
  );
}

interface Entry {
  key: string;
  at: Timestamp | undefined;
  what: ComponentChildren;
}

export function Entries({ of, name = 'timeline' }: { of: readonly Entry[]; name?: string }) {
  return (
    <ol class="timeline" aria-labelledby={name}>
      {of.map(({ key, at, what }) => (
        <li key={key}>
          <When at={at} />
          <div>{what}</div>
        </li>
      ))}
    </ol>
  );
}

/** What people, keys and commands have done. */
export const deedsOf = (changes: readonly AuditedChange[]): Entry[] =>
  changes.map((change, place) => ({ key: `change ${place}`, at: change.at, what: <Deed of={change} /> }));

function Deed({ of: { actor, actorName, method, target, outcome, note } }: { of: AuditedChange }) {
  const isUnknown = ['', 'internal', 'unavailable'].includes(outcome);
  const refused = outcome === 'refused' ? ' (refused)' : ` (refused: ${outcome})`;
  const end = outcome === 'ok' ? '' : isUnknown ? ' (outcome unknown)' : refused;
  return (
    <>
      <strong title={actor}>{actorName}</strong>{' '}
      <Link to={target.startsWith('tr_') && `/unattributed/${target}`}>{deedOf(method)}</Link>
      {end}
      {note !== '' && <>: “{note}”</>}
    </>
  );
}

/** A delivery, with what its endpoint answered last. */
export function Delivery({ of: { event: id, status, webhookEndpoint, attempts } }: { of: WebhookDelivery }) {
  const { isReadOnly } = useScope();
  const last = attempts.at(-1);
  const [isOpen, setIsOpen] = useState(false);
  const [isSent, setIsSent] = useState(false);
  const sendAgain = async () => {
    setIsSent(false);
    await api.redeliverEvent({ id, webhookEndpoint });
    setIsSent(true);
  };
  return (
    <div class="delivery">
      <Badge {...deliveryStates[status]} /> <Link to={`/webhooks/${webhookEndpoint}`}>to your shop</Link>
      {last !== undefined && (
        <details>
          <summary>
            {last.statusCode === undefined ? (last.error ?? 'no answer') : `answered ${last.statusCode}`}
            {attempts.length > 1 && `, attempt ${attempts.length}`}
          </summary>
          <ul>
            {attempts.map((attempt, place) => (
              <li key={`${place} ${attempt.durationMs}`}>
                <When at={attempt.at} /> · {attempt.durationMs} ms · {attempt.statusCode ?? attempt.error}
                {attempt.response !== undefined && attempt.response !== '' && (
                  <pre translate={false}>{attempt.response}</pre>
                )}
              </li>
            ))}
          </ul>
        </details>
      )}
      <details onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
        <summary>what is sent</summary>
        {isOpen && <Sent id={id} />}
      </details>
      {!isReadOnly && <ActionButton label="Send again" isSmall onDo={sendAgain} />}
      {isSent && <span class="soft"> It is being sent again.</span>}
    </div>
  );
}

const eventCodec = createJsonCodec(EventSchema);

/** The body of a delivery. */
function Sent({ id }: { id: string }) {
  const event = useLoaded(`${id} as sent`, () => api.getEvent({ id }), 0);
  const textOf = (found: Event) => JSON.stringify(JSON.parse(eventCodec.encode(found)), undefined, 2);
  return (
    <Shown of={event}>
      {(found) => (
        <pre class="whole" translate={false}>
          {textOf(found)}
        </pre>
      )}
    </Shown>
  );
}
