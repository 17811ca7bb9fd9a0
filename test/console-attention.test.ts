// What the console lists as needing a person, and who has done what about a payment.

import { beforeEach, describe, expect, test } from 'vitest';
import { createAudit, entryOfCommand } from '../src/console/audit.ts';
import { migrate } from '../src/database/orm.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { consoleOf, reasonOf } from './support/console.ts';
import { insertOf } from './support/intent-rows.ts';
import { takeBackFigures } from './support/migrations.ts';
import { openClient } from './support/open-client.ts';
import { insertTransfers, type TransferSettings } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api', UNATTRIBUTED_MIN_UNITS: '2' });
const { merchant, open } = consoleOf(service);
const { call } = await open({ merchant });
const owner = service.merchant;
/** Sessions of another merchant, and of the same one in the other mode. */
const openOthers = async () => [
  await open({ merchant: { id: (await service.newMerchant()).merchantId, mode: 'testnet' } }),
  await open({ merchant: { ...merchant, mode: 'mainnet' } }),
];

beforeEach(() =>
  service.query(
    `truncate resolved_attention, transfers, payment_intents, refunds, webhook_endpoints, webhook_deliveries`,
  ),
);

interface Item {
  id: string;
  kind: string;
  subject: string;
  amountUnits?: string;
  count?: number;
}

const items = async (): Promise<Item[]> => (await call('ConsoleService/ListAttention')).json.items ?? [];
const subjects = async () => (await items()).map(({ subject }) => subject);
const resolve = (id: string) => call('ConsoleService/ResolveAttention', { id, note: 'seen to' });
const metadata = { order_id: '1001' };
const createIntent = async (): Promise<string> =>
  (await service.call('createPaymentIntent', { amount_units: 1_000, metadata })).json.id;
const receive = (...payments: TransferSettings[]) =>
  insertTransfers(
    service,
    owner,
    payments.map((each) => ({ state: 'confirmed' as const, ...each })),
  );
const end = (status: string, labels: string[]) =>
  service.query(
    `update payment_intents set status = $1::payment_intent_status, labels = $2, expired_at = now(), succeeded_at = now()`,
    [status, labels],
  );

describe('what needs a person', () => {
  test('a transfer without a payment, until somebody has attributed it', async () => {
    const [transfer = ''] = await receive({ amountUnits: 400 });
    expect(await items()).toMatchObject([
      { kind: 'ATTENTION_KIND_UNATTRIBUTED', subject: transfer, amountUnits: '400' },
    ]);
    const intent = await createIntent();
    await call('TransferService/AttributeTransfer', { id: transfer, paymentIntent: intent });
    expect(await items()).toEqual([]);
  });

  test.each([
    ['expired', ['late'], 1_000, 1_000],
    ['expired', ['underpaid'], 300, 300],
    ['succeeded', ['overpaid'], 1_500, 500],
    ['canceled', ['after_cancel'], 1_000, 1_000],
  ])(
    'money of an intent that is %s and %s, until it is returned but for dust',
    async (status, labels, units, surplus) => {
      const id = await createIntent();
      await receive({ paymentIntent: id, amountUnits: units });
      await end(status, labels);
      expect(await items()).toMatchObject([{ subject: id, amountUnits: String(surplus), metadata }]);
      await service.query('update payment_intents set amount_refunded_units = $1', [surplus - 2]);
      expect(await items()).toMatchObject([{ subject: id, amountUnits: '2' }]);
      await service.query('update payment_intents set amount_refunded_units = $1', [surplus - 1]);
      expect(await items()).toEqual([]);
    },
  );

  test('a transfer that was detached, after the note about it from before it was attributed', async () => {
    const [id = ''] = await receive({ amountUnits: 400 });
    await resolve((await items())[0]?.id ?? '');
    expect(await items()).toEqual([]);
    await service.call('attributeTransfer', { id, payment_intent: await createIntent() });
    await service.call('detachTransfer', { id });
    expect(await subjects()).toEqual([id]);
  });

  test('an intent whose payment was reorged after success, until somebody resolves it', async () => {
    const id = await createIntent();
    await end('succeeded', ['reorged']);
    const [item] = await items();
    expect(item).toMatchObject({ subject: id });
    expect((await resolve(item?.id ?? '')).status).toBe(200);
    expect(await items()).toEqual([]);
    await end('succeeded', ['reorged', 'late']);
    expect(await subjects()).toEqual([id]);
  });

  test('a refund that nobody has signed, until it is canceled', async () => {
    const id = await createIntent();
    await receive({ paymentIntent: id, amountUnits: 1_000 });
    await end('succeeded', []);
    const refund = { payment_intent: id, destination: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed' };
    const { json } = await service.call('createRefund', refund);
    expect(await items()).toMatchObject([{ subject: json.id, paymentIntent: id, metadata }]);
    await service.call('cancelRefund', { id: json.id });
    expect(await items()).toEqual([]);
  });

  test('an endpoint, each time that the service disables it, but not if it is disabled by hand', async () => {
    const { json } = await service.call('createWebhookEndpoint', { url: 'https://shop.example/hooks' });
    await service.call('updateWebhookEndpoint', { id: json.id, enabled: false });
    expect(await items()).toEqual([]);
    const disable = (since: string) =>
      service.query(
        `update webhook_endpoints set enabled = false, disabled_reason = 'it answered 410 Gone', failing_since = $1`,
        [since],
      );
    await disable('2026-11-01');
    const [item] = await items();
    expect(item).toMatchObject({ kind: 'ATTENTION_KIND_ENDPOINT', subject: json.id });
    await resolve(item?.id ?? '');
    expect(await items()).toEqual([]);
    await disable('2026-11-02');
    expect(await subjects()).toEqual([json.id]);
  });

  test('an endpoint that has failed for 15 minutes, until it succeeds', async () => {
    const { json } = await service.call('createWebhookEndpoint', { url: 'https://shop.example/hooks' });
    const fail = (minutes: number | null) =>
      service.query(
        `update webhook_endpoints set failures = 4, failing_since = now() - $1 * interval '1 minute'`,
        [minutes],
      );
    await fail(14);
    expect(await items()).toEqual([]);
    await fail(16);
    expect(await items()).toMatchObject([{ kind: 'ATTENTION_KIND_ENDPOINT', subject: json.id, count: 4 }]);
    await fail(null);
    expect(await items()).toEqual([]);
  });

  test('deliveries that have failed for good, and again when a redelivery fails', async () => {
    const { json } = await service.call('createWebhookEndpoint', { url: 'https://shop.example/hooks' });
    await service.query(
      `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, attempts)
       select merchant_id, gen_random_uuid(), id, gen_random_uuid(), 'failed', now(), 8 from webhook_endpoints`,
    );
    const [item] = await items();
    expect(item).toMatchObject({ kind: 'ATTENTION_KIND_DELIVERIES', subject: json.id, count: 1 });
    await resolve(item?.id ?? '');
    expect(await items()).toEqual([]);
    await service.query('update webhook_deliveries set leased_until = now()');
    expect(await subjects()).toEqual([json.id]);
  });

  test('deliveries that fail with their endpoint, after the note about an earlier one', async () => {
    const { json } = await service.call('createWebhookEndpoint', { url: 'https://shop.example/hooks' });
    for (let i = 0; i < 4; i++) await service.call('pingWebhookEndpoint', { id: json.id });
    const made = () => service.query<{ event_id: string }>('select event_id from webhook_deliveries');
    await expect.poll(made).toHaveLength(4);
    await service.query(
      `update webhook_deliveries set leased_until = now() + interval '30 s', next_attempt_at = 'infinity'`,
    );
    const failed = `update webhook_deliveries set status = 'failed', next_attempt_at = null where event_id = $1`;
    await service.query(failed, [(await made())[0]?.event_id]);
    const [item] = await items();
    expect(item).toMatchObject({ kind: 'ATTENTION_KIND_DELIVERIES', count: 1 });
    await resolve(item?.id ?? '');
    await service.call('updateWebhookEndpoint', { id: json.id, enabled: false });
    await service.call('updateWebhookEndpoint', { id: json.id, enabled: true });
    expect(await items()).toMatchObject([{ kind: 'ATTENTION_KIND_DELIVERIES', count: 4 }]);
  });

  test('a payment in another token, and again when more of it comes', async () => {
    const id = await createIntent();
    const other = { paymentIntent: id, labels: ['wrong_token'], amountUnits: 700 };
    await receive(other);
    await end('expired', ['wrong_token']);
    await resolve((await items())[0]?.id ?? '');
    expect(await items()).toEqual([]);
    await receive(other);
    expect(await subjects()).toEqual([id]);
  });

  test('a refund that was sent twice, and again when it gets one more transfer', async () => {
    const id = await createIntent();
    await receive({ paymentIntent: id, amountUnits: 1_000 });
    await end('succeeded', []);
    const destination = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
    const { json } = await service.call('createRefund', { payment_intent: id, destination });
    await service.query(`update refunds set status = 'succeeded', labels = '{twice}'`);
    const another = async () => {
      await receive({ isRefund: true, labels: ['twice'] });
      await service.query('update transfers set refund = (select id from refunds) where is_refund');
    };
    await another();
    await resolve((await items())[0]?.id ?? '');
    expect(await items()).toEqual([]);
    await another();
    expect(await subjects()).toEqual([json.id]);
  });

  test('a smaller item, once fifty larger ones are resolved', async () => {
    const [small] = await receive({ amountUnits: 500 });
    await receive(...Array.from({ length: 50 }, () => ({ amountUnits: 1_000 })));
    for (const { id } of await items()) await resolve(id);
    expect(await subjects()).toEqual([small]);
  });

  test('a reorged payment and a large transfer, behind fifty small ones that strangers have sent later', async () => {
    const reorged = await createIntent();
    await receive({ paymentIntent: reorged, amountUnits: 1_000 });
    await end('succeeded', ['reorged']);
    const [large] = await receive({ amountUnits: 500_000 });
    const ids = await Promise.all(Array.from({ length: 50 }, () => createIntent()));
    await receive(...ids.map((paymentIntent) => ({ paymentIntent, amountUnits: 10_000 })));
    await receive(...ids.map(() => ({ amountUnits: 10_000 })));
    await service.query(
      `update payment_intents set status = 'expired', expired_at = now(), labels = '{late}' where labels is null`,
    );
    expect(await subjects()).toEqual(expect.arrayContaining([reorged, large]));
  });

  test('an older item behind a thousand newer intents that need nothing; of those that do, fifty', async () => {
    const id = await createIntent();
    await receive({ paymentIntent: id, amountUnits: 1_000 });
    await end('expired', ['late']);
    const columns = { status: `'expired'`, labels: `'{underpaid}'`, expired_at: 'now()' };
    const rows = { merchantId: owner.id, count: 1_000, firstAtMs: Date.now() + 1_000, columns };
    await service.query(...insertOf(rows));
    expect(await subjects()).toEqual([id]);
    // Something of every second one was returned.
    await end('succeeded', ['reorged']);
    await service.query('update payment_intents set amount_refunded_units = nullif(amount_units % 2, 0)');
    expect(await items()).toHaveLength(50);
  });

  test('no item of another merchant or mode, and such an item cannot be resolved', async () => {
    const [transfer] = await receive({ amountUnits: 400 });
    const [item] = await items();
    for (const theirs of await openOthers()) {
      expect((await theirs.call('ConsoleService/ListAttention')).json).toEqual({});
      const refused = await theirs.call('ConsoleService/ResolveAttention', { id: item?.id });
      expect(reasonOf(refused)).toBe('invalid_state');
    }
    expect(await subjects()).toEqual([transfer]);
  });

  test.each(['', 'x', 'unattributed:01a213d9-1996-71df-83bc-120a9e1ef695:', 'a\u0000', 'unattributed:\n'])(
    'nothing is resolved by the id %j',
    async (id) => {
      const { status } = await resolve(id);
      expect([status, await service.query('select from resolved_attention')]).toEqual([400, []]);
    },
  );
});

describe('a timeline', () => {
  test('shows who has attributed a transfer, and who has detached it', async () => {
    const [transfer] = await receive({ amountUnits: 400 });
    const paymentIntent = await createIntent();
    await call('TransferService/AttributeTransfer', { id: transfer, paymentIntent });
    await call('TransferService/DetachTransfer', { id: transfer });
    // It lists commands, too. A refused one does not tie its transfer to the intent.
    const { run } = createAudit(service.database.orm.em, () => {});
    const done = async () => {};
    await run(entryOfCommand('transfer attribute', ['--intent', paymentIntent, `${transfer}`]), done);
    await run(entryOfCommand('transfer detach', [`--transfer=${transfer}`]), done);
    const foreign = [`--intent=${paymentIntent}`, `--transfer=${(await receive({ amountUnits: 7 }))[0]}`];
    await run(entryOfCommand('transfer attribute', foreign), () => Promise.reject(new Error())).catch(done);
    const { changes } = (await call('ConsoleService/GetTimeline', { paymentIntent })).json;
    expect(changes).toMatchObject([
      { method: 'payments.v1.TransferService/AttributeTransfer', actorName: 'Anna Meier' },
      { method: 'payments.v1.TransferService/DetachTransfer', actorName: 'Anna Meier' },
      { method: 'admin transfer attribute', actor: 'cli' },
      { method: 'admin transfer detach', actor: 'cli' },
    ]);
    for (const other of await openOthers()) {
      const refused = await other.call('ConsoleService/GetTimeline', { paymentIntent });
      expect(reasonOf(refused)).toBe('resource_missing');
    }
  });
});

test('the timeline of an intent shows its refunds: who changed them, and the deliveries of their events', async () => {
  const paymentIntent = await createIntent();
  await receive({ paymentIntent, amountUnits: 1_000 });
  await end('succeeded', []);
  await service.call('createWebhookEndpoint', { url: 'https://shop.example/hooks' });
  const destination = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
  const { id } = (await call('RefundService/CreateRefund', { paymentIntent, destination })).json;
  await call('RefundService/CancelRefund', { id });
  // The service may have made it already.
  await service.query(
    `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at)
     select e.merchant_id, e.id, w.id, gen_random_uuid(), 'pending', now()
       from events e join refunds r on r.id = e.refund cross join webhook_endpoints w on conflict do nothing`,
  );
  const { webhookDeliveries, changes } = (await call('ConsoleService/GetTimeline', { paymentIntent })).json;
  expect(webhookDeliveries).toMatchObject([{ eventType: 'refund.canceled', paymentIntent }]);
  const methods = changes.map(({ method }: { method: string }) => method.split('/')[1]);
  expect(methods).toEqual(['CreateRefund', 'CancelRefund']);
});

test('the timeline of an endpoint shows its merchant who changed it, even after it was deleted', async () => {
  const url = 'https://shop.example/hooks';
  const { id } = (await call('WebhookEndpointService/CreateWebhookEndpoint', { url })).json;
  await call('WebhookEndpointService/UpdateWebhookEndpoint', { id, enabled: false, eventTypes: ['*'] });
  await call('WebhookEndpointService/DeleteWebhookEndpoint', { id });
  const timeline = { webhookEndpoint: id };
  expect((await call('ConsoleService/GetTimeline', timeline)).json.changes).toMatchObject([
    { method: 'payments.v1.WebhookEndpointService/CreateWebhookEndpoint', target: id, outcome: 'ok' },
    { actorName: 'Anna Meier', note: 'eventTypes ["*"], enabled false' },
    { method: 'payments.v1.WebhookEndpointService/DeleteWebhookEndpoint' },
  ]);
  for (const other of await openOthers()) {
    expect((await other.call('ConsoleService/GetTimeline', timeline)).json).toEqual({});
  }
  // Entries of `admin` have no merchant.
  for (const webhookEndpoint of [service.merchant.keys.testnet.keyId, '\u0000']) {
    const refused = await call('ConsoleService/GetTimeline', { webhookEndpoint });
    expect(reasonOf(refused)).toBe('resource_missing');
  }
});

test('a migration waits in short turns for a payment in settlement, and does not block it', async () => {
  await takeBackFigures(service);
  const ledger = await openClient(service.location);
  await ledger.query('begin');
  await ledger.query("update transfers set state = 'confirmed' where false");
  const migrated = migrate(service.location);
  await sessionsWaiting(service, 1);
  // Its lock request has ended, so others can go on before it tries again.
  await sessionsWaiting(service, 0);
  await sessionsWaiting(service, 1);
  await ledger.query('update payment_intents set amount_units = amount_units where false');
  await ledger.query('commit');
  await ledger.end();
  expect(await migrated).toHaveLength(1);
});
