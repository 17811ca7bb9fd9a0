// Where events are delivered to: the endpoints with their health, and what each was sent and has answered.

import { useState } from 'preact/hooks';
import { AttentionKind } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import type {
  WebhookDelivery,
  WebhookEndpoint,
} from '../../src/contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { webhookDeliveryStatusWords } from '../../src/contract/gen/words.ts';
import { api, useScope } from './api.ts';
import { ActionButton, Choice, Opener } from './forms.tsx';
import { Head, LiveList, rarelyMs, Shown, useLoaded } from './loading.tsx';
import { go, Link, numberIn, pathOf } from './routing.tsx';
import { Facts } from './tables.tsx';
import { Delivery, deedsOf, Entries } from './timeline.tsx';
import { Badge, Copyable, When } from './values.tsx';
import { deliveryStates, eventWords } from './words.ts';

export function Endpoints() {
  const endpoints = useLoaded('endpoints', () => api.listWebhookEndpoints({ pageSize: 100 }));
  const attention = useLoaded('attention', () => api.listAttention({}), rarelyMs);
  const undelivered = attention.value?.items.filter(({ kind }) => kind === AttentionKind.DELIVERIES) ?? [];
  const failed = new Set(undelivered.map(({ subject }) => subject));
  return (
    <>
      <h1>Webhooks</h1>
      <Shown of={endpoints}>
        {({ webhookEndpoints: rows }) =>
          rows.length === 0 ? (
            <p class="state">Your shop has no webhook endpoint: no events are sent. The API creates one.</p>
          ) : (
            <ul class="cards">
              {rows.map((row) => (
                <li key={row.id}>
                  <Link to={`/webhooks/${row.id}`}>{row.url}</Link> <Health of={row} />{' '}
                  {failed.has(row.id) && <Badge label="Not all delivered" tone="bad" />}
                  {row.description !== undefined && <p class="soft">{row.description}</p>}
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
    </>
  );
}

function Health({ of: { enabled, disabledReason } }: { of: WebhookEndpoint }) {
  if (enabled) return <Badge label="Enabled" tone="good" />;
  return (
    <>
      <Badge label="Disabled" tone="bad" /> <span class="soft">{disabledReason ?? 'by hand'}</span>
    </>
  );
}

const statuses = Object.entries(webhookDeliveryStatusWords).map(
  ([word, of]) => [word, deliveryStates[of].label] as const,
);

export function Endpoint({ id, parameters }: { id: string; parameters: URLSearchParams }) {
  const { isReadOnly } = useScope();
  const endpoint = useLoaded(id, () => api.getWebhookEndpoint({ id }));
  const changesOf = () => api.getTimeline({ webhookEndpoint: id });
  const changed = useLoaded(`${id} changes`, changesOf, rarelyMs);
  const chosen = parameters.get('show') ?? '';
  const status = numberIn(webhookDeliveryStatusWords, chosen);
  return (
    <Shown of={endpoint} isView>
      {(found) => (
        <>
          <Head kind="Endpoint" name={found.url}>
            <p>
              <Health of={found} />
            </p>
          </Head>
          {!isReadOnly && <EndpointActions endpoint={found} />}
          <Facts
            of={{
              Events: found.eventTypes.includes('*') ? 'everything' : found.eventTypes.join(', '),
              Since: <When at={found.createdAt} />,
              Id: <Copyable text={found.id} what="id" />,
            }}
          />
          <details>
            <summary id="changes">Who changed it</summary>
            <Shown of={changed}>{({ changes }) => <Entries name="changes" of={deedsOf(changes)} />}</Shown>
          </details>
          <h2 id="deliveries">What it was sent</h2>
          <p class="filters">
            <Choice
              label="Show"
              value={chosen}
              options={[['', 'Everything'], ...statuses]}
              onChoose={(show) => go(pathOf(`/webhooks/${id}`, { show }), { replaces: true })}
            />
          </p>
          <LiveList
            key={status}
            name={`${id} ${status}`}
            ask={(page) => api.listWebhookDeliveries({ id, status, ...page })}
            rowsOf={({ webhookDeliveries }) => webhookDeliveries}
            idOf={({ event }) => event}
            empty="Nothing."
          >
            {(rows) => <Entries name="deliveries" of={rows.map(entryOf)} />}
          </LiveList>
        </>
      )}
    </Shown>
  );
}

const entryOf = (row: WebhookDelivery) => ({
  key: row.id,
  at: row.createdAt,
  what: [
    <Link key="event" to={row.paymentIntent !== '' && `/payments/${row.paymentIntent}`}>
      {eventWords(row.eventType)}
    </Link>,
    <Delivery key="delivery" of={row} />,
  ],
});

function EndpointActions({ endpoint: { id, enabled } }: { endpoint: WebhookEndpoint }) {
  const [said, setSaid] = useState('');
  /** Nothing is said of an earlier action while this one may fail. */
  const saying = (act: () => Promise<string>) => async () => {
    setSaid('');
    setSaid(await act());
  };
  const test = saying(async () => {
    await api.pingWebhookEndpoint({ id });
    return 'A test is on its way.';
  });
  const enable = saying(async () => {
    await api.updateWebhookEndpoint({ id, enabled: true });
    return 'It is enabled.';
  });
  const sendFailed = saying(async () => {
    const { deliveriesCount: count } = await api.redeliverWebhookEndpoint({ id });
    return count === 1 ? '1 delivery is being sent again.' : `${count} deliveries are being sent again.`;
  });
  return (
    <div class="actions">
      {enabled ? (
        <>
          <Opener label="Send all that failed" doLabel="Send them" onDo={sendFailed}>
            <p>
              Sends up to 10,000 failed deliveries again, oldest first. An event keeps its id however often it
              is sent.
            </p>
          </Opener>
          <ActionButton label="Send a test" onDo={test} />
        </>
      ) : (
        <ActionButton label="Enable it" isMain onDo={enable} />
      )}
      <p role="status">{said}</p>
    </div>
  );
}
