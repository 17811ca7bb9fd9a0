// The console's own door: who gets in, from which page, and what a session may do.

import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { parseKeyRing } from '../src/config/key-ring.ts';
import { createAudit, createAuditRemoval, entryOfCommand } from '../src/console/audit.ts';
import { createExport, createOpenExport } from '../src/console/export-payments.ts';
import { revokeSession } from '../src/console/sessions.ts';
import { ConsoleService } from '../src/contract/gen/console/v1/console_service_pb.ts';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../src/contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { isUnary } from '../src/contract/unary.ts';
import { newUuid } from '../src/database/identifiers.ts';
import { generateSecret } from '../src/merchants/api-keys.ts';
import { runAdmin } from './support/admin.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { doors } from './support/call.ts';
import { consoleOf, reasonOf } from './support/console.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, startService } from './support/service.ts';
import { bareEnvironment, databaseUrl, newKeyRing } from './support/test-environment.ts';
import { insertTransfers } from './support/transfer-rows.ts';

const API_KEY_PEPPERS = newKeyRing();
const service = await startService({ CONSOLE_PORT: '0', ROLES: 'api' }, { secrets: { API_KEY_PEPPERS } });
afterAll(() => service.close());
const { em, peppers, port, url, merchant, newLink, post, exchange, open } = consoleOf(service);
const { id } = merchant;

const createIntent = async (fields: object = {}) =>
  (await service.call('createPaymentIntent', { amount_units: 1_000, ...fields })).json;

describe('a link', () => {
  test('opens the console once', async () => {
    const { code, sessionId } = await newLink({ merchant });
    const first = await exchange(code);
    expect([first.status, first.json.token]).toEqual([200, expect.stringMatching(/^cs_[0-9A-Za-z]{49}$/)]);
    expect(first.json.session).toMatchObject({
      id: sessionId,
      name: 'Anna Meier',
      merchant: merchant.id,
      mode: 'testnet',
      is_operator: false,
      read_only: false,
    });
    const second = await exchange(code);
    expect([second.status, second.json.error.code]).toEqual([401, 'api_key_invalid']);
    expect(second.json.error.message).toMatch(/works once/);
  });

  test('lets in one of several that exchange it at the same time', async () => {
    const { code } = await newLink();
    const statuses = await Promise.all(Array.from({ length: 8 }, async () => (await exchange(code)).status));
    expect(statuses.sort()).toEqual([200, ...Array(7).fill(401)]);
  });

  test.each([
    ['is older than ten minutes', "code_expires_at = now() - interval '1 second'"],
    ['was revoked', 'revoked_at = now()'],
  ])('does not open the console if it %s', async (_, change) => {
    const { code } = await newLink();
    await service.query(`update console_sessions set ${change} where token_hash is null`);
    expect((await exchange(code)).status).toBe(401);
  });

  test('that was made up is refused, and neither code nor token is in the database', async () => {
    const other = parseKeyRing(newKeyRing());
    for (const code of [generateSecret('cl_', other), generateSecret('cl_', peppers), 'cl_x', '']) {
      expect((await exchange(code)).status).toBe(401);
    }
    const { code } = await newLink();
    const { json } = await exchange(code);
    const [row] = await service.query<{ text: string }>(
      'select json_agg(s)::text as text from console_sessions s',
    );
    expect(row?.text).not.toContain(code.slice(3));
    expect(row?.text).not.toContain(json.token.slice(3));
  });

  test.each([
    [400, '{', {}],
    [400, '{"code":1}', {}],
    [415, '{"code":"cl_"}', { 'content-type': 'text/plain' }],
    [413, `{"code":"${'x'.repeat(70_000)}"}`, {}],
  ])('answers %i to %.20s', async (status, body, headers) => {
    expect((await post('/console/session', body, headers)).status).toBe(status);
  });
});

describe('another page', () => {
  test.each([
    [421, { host: 'attacker.example' }],
    [421, { host: `attacker.example:${port}` }],
    [421, { host: 'localhost' }],
    [421, { host: `127.0.0.1:${port + 1}` }],
    [403, { origin: 'https://attacker.example' }],
    [403, { origin: undefined }],
    [403, { origin: 'null' }],
    // Another loopback name is another origin.
    [403, { origin: `http://localhost:${port}` }],
    [403, { origin: `http://127.0.0.1:${port}/` }],
    [403, { 'sec-fetch-site': 'cross-site' }],
    [403, { 'sec-fetch-site': 'same-site' }],
  ])('is refused with %i: %o', async (status, headers) => {
    const { code } = await newLink();
    const { call } = await open();
    const asOperator = { 'x-merchant': id, 'x-mode': 'testnet' };
    expect((await call('TransferService/ListTransfers', {}, asOperator)).status).toBe(200);
    const refused = await call('TransferService/ListTransfers', {}, { ...asOperator, ...headers });
    expect([refused.status, refused.json.error.code]).toEqual([status, 'permission_denied']);
    expect((await post('/console/session', { code }, headers)).status).toBe(status);
    expect((await exchange(code)).status).toBe(200);
  });

  test('gets no CORS header in any answer', async () => {
    const { call } = await open({ merchant });
    const answers = [
      await call('TransferService/ListTransfers'),
      await exchange('cl_'),
      await post('/nowhere', {}),
    ];
    const names = answers.flatMap(({ headers }) => Object.keys(headers));
    expect(names.filter((name) => name.startsWith('access-control-'))).toEqual([]);
  });

  test("is refused behind a proxy that ends TLS, too; the console's own page is not", async () => {
    const origin = 'https://console.example';
    const proxied = await startService({ ROLES: 'api', CONSOLE_ORIGIN: origin });
    const door = consoleOf(proxied);
    const { code } = await door.newLink();
    const headers = { host: 'console.example', origin };
    expect(
      (await door.post('/console/session', { code }, { ...headers, origin: 'http://console.example' }))
        .status,
    ).toBe(403);
    expect((await door.post('/console/session', { code }, { ...headers, host: '127.0.0.1' })).status).toBe(
      421,
    );
    expect((await door.post('/console/session', { code }, headers)).status).toBe(200);
    await proxied.close();
  });

  test.each(['http://[/', 'http://127.0.0.1/console/session'])(
    'gets 404 for the target %s, which is one for a proxy',
    async (target) => {
      const socket = net.connect(port, '127.0.0.1');
      socket.end(
        `POST ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nOrigin: ${url}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`,
      );
      expect((await text(socket)).slice(0, 12)).toBe('HTTP/1.1 404');
    },
  );

  test('gains nothing from forwarded headers', async () => {
    const forwarded = { 'x-forwarded-host': `127.0.0.1:${port}`, forwarded: `host=127.0.0.1:${port}` };
    expect((await post('/console/session', {}, { host: 'attacker.example', ...forwarded })).status).toBe(421);
  });

  test.each(['GET', 'OPTIONS', 'PUT'])('gets nothing by %s', async (method) => {
    for (const path of ['/console/session', '/payments.v1.TransferService/ListTransfers']) {
      const { status, headers } = await httpRequest(url + path, { method, headers: { origin: url } });
      expect([status, headers['access-control-allow-origin']]).toEqual([405, undefined]);
    }
  });

  const forms = ['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data'];
  test.each([...forms, 'application/grpc', 'application/grpc-web'])(
    'cannot call as a form or a gRPC client does, with %s',
    async (type) => {
      const { call } = await open({ merchant });
      const { status } = await httpRequest(
        `${url}/payments.v1.TransferService/ListTransfers`,
        { headers: { origin: url, 'content-type': type } },
        '{}',
      );
      expect(status).toBe(415);
      expect((await call('TransferService/ListTransfers')).status).toBe(200);
    },
  );

  test('may not frame the console, whose answers are not stored', async () => {
    const { headers } = await exchange('cl_');
    expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect([headers['cache-control'], headers['set-cookie']]).toEqual(['no-store', undefined]);
  });

  test.each(['/', '/payments/pi_1', '/console/page.js'])(
    'cannot load %s, whose policy allows only its own code',
    async (path) => {
      const page = (host: string) => httpRequest(url + path, { method: 'GET', headers: { host } });
      const { status, headers } = await page(`127.0.0.1:${port}`);
      const policy = `${headers['content-security-policy']}`;
      expect([status, headers['set-cookie'], policy.includes('unsafe')]).toEqual([200, undefined, false]);
      for (const rule of [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
      ]) {
        expect(policy.split('; ')).toContain(rule);
      }
      expect((await page(`attacker.example:${port}`)).status).toBe(421);
    },
  );

  test('does not find the console at the public door', async () => {
    const { token } = await open();
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    for (const path of ['/console/session', '/console.v1.ConsoleService/ListMerchants', '/payments']) {
      expect([path, (await httpRequest(service.publicUrl + path, { headers }, '{}')).status]).toEqual([
        path,
        404,
      ]);
    }
  });
});

describe('a session', () => {
  /** Methods that change nothing. The contract marks each of them; this list repeats it on purpose. */
  const reads = [
    ...['GetPaymentIntent', 'ListPaymentIntents', 'GetEvent', 'ListEvents', 'GetTransfer', 'ListTransfers'],
    ...['GetRefund', 'ListRefunds', 'GetWebhookEndpoint', 'ListWebhookEndpoints', 'ListWebhookDeliveries'],
    ...['GetSummary', 'ListMerchants', 'ListAttention', 'GetTimeline', 'FindTransaction'],
    ...['FindRefundTransfers', 'CreateExport', 'EndSession'],
  ];
  const operations = ['ListChains', 'ListApiKeys'];
  const services = [
    PaymentIntentService,
    EventService,
    TransferService,
    RefundService,
    WebhookEndpointService,
  ];
  const methods = [...services, ConsoleService].flatMap((desc) =>
    desc.methods.filter(isUnary).map(({ name }) => [desc.name, name] as const),
  );

  const asOperator = { 'x-merchant': id, 'x-mode': 'testnet' };
  test.each([
    ["an operator's", {}, asOperator, true],
    ["an operator's, for reading", { isReadOnly: true }, asOperator, false],
    ["a merchant's", { merchant }, {}, true],
    ["a merchant's, for reading", { merchant, isReadOnly: true }, {}, false],
  ])('%s may call only what it is allowed to', async (whose, options, headers, mayChange) => {
    for (const [name, method] of methods) {
      const { call } = await open(options);
      const reason = reasonOf(await call(`${name}/${method}`, {}, headers));
      const isOperation = operations.includes(method);
      const isAllowed = reads.includes(method) || (isOperation ? whose === "an operator's" : mayChange);
      expect([method, reason === 'permission_denied']).toEqual([method, !isAllowed]);
    }
  });

  test("an operator's intents are paid to the merchant's wallet of their mode", async () => {
    const { call } = await open({});
    for (const mode of ['testnet', 'mainnet'] as const) {
      const request = { amountUnits: '1', chain: 'CHAIN_BASE' };
      const headers = { ...asOperator, 'x-mode': mode };
      const { json } = await call('PaymentIntentService/CreatePaymentIntent', request, headers);
      expect([json.mode, json.expectedWallet]).toEqual([
        `MODE_${mode.toUpperCase()}`,
        service.merchant.wallets[mode].base,
      ]);
    }
  });

  test('sees its merchant, and nothing of another', async () => {
    const other = await service.newMerchant();
    const intent = await createIntent();
    const mine = await open({ merchant });
    const theirs = await open({ merchant: { ...merchant, id: other.merchantId } });
    const live = await open({ merchant: { ...merchant, mode: 'mainnet' } });
    const request = { id: intent.id };
    expect((await mine.call('PaymentIntentService/GetPaymentIntent', request)).json.id).toBe(intent.id);
    for (const { call } of [theirs, live]) {
      for (const method of ['GetPaymentIntent', 'CancelPaymentIntent']) {
        expect(reasonOf(await call(`PaymentIntentService/${method}`, request))).toBe('resource_missing');
      }
    }
    const named = await mine.call('PaymentIntentService/GetPaymentIntent', request, { 'x-merchant': id });
    expect([named.status, reasonOf(named)]).toEqual([400, 'invalid_body']);
  });

  test('of an operator names the merchant and the mode of each call', async () => {
    const intent = await createIntent();
    const { call } = await open();
    const get = (headers: Record<string, string>) =>
      call('PaymentIntentService/GetPaymentIntent', { id: intent.id }, headers);
    expect((await get(asOperator)).json.id).toBe(intent.id);
    for (const headers of [
      {},
      { 'x-merchant': id },
      { 'x-mode': 'testnet' },
      { ...asOperator, 'x-mode': 'x' },
      { ...asOperator, 'x-merchant': 'mer_01m7yzn0mtexwagr0spq4wg7vz' },
    ]) {
      expect(reasonOf(await get(headers as Record<string, string>))).toBe('invalid_body');
    }
    // No other door reads these headers.
    const other = await service.newMerchant();
    const publicly = await fetch(`${service.publicUrl}/v1/payment_intents/${intent.id}`, {
      headers: { ...asOperator, authorization: `Bearer ${other.keys.testnet.apiKey}` },
    });
    expect(publicly.status).toBe(404);
  });

  test('lists the merchants that it may see', async () => {
    const other = await service.newMerchant();
    const seenBy = async (options: Parameters<typeof open>[0]) =>
      (await (await open(options)).call('ConsoleService/ListMerchants')).json.merchants.map(
        (each: { id: string }) => each.id,
      );
    const all = await seenBy({ isReadOnly: true });
    expect(all[0]).toBe(other.merchantId);
    expect(all).toContain(id);
    expect(await seenBy({ merchant })).toEqual([id]);
  });

  test('gets 304 for an answer that it has, until the answer changes', async () => {
    const { call } = await open({ merchant });
    const ask = (known?: string) =>
      call('PaymentIntentService/ListPaymentIntents', {}, { 'if-none-match': known });
    const { headers } = await ask();
    const again = await ask(headers.etag);
    expect([again.status, again.json, again.headers.etag]).toEqual([304, undefined, headers.etag]);
    const { id } = await createIntent();
    const changed = await ask(headers.etag);
    expect([changed.status, changed.json.paymentIntents[0].id]).toEqual([200, id]);
    expect(changed.headers.etag).not.toBe(headers.etag);
  });

  test('gets no client secret', async () => {
    const intent = await createIntent();
    const { call } = await open({ merchant });
    const answers = await Promise.all([
      call('PaymentIntentService/GetPaymentIntent', { id: intent.id }),
      call('PaymentIntentService/ListPaymentIntents'),
      call('PaymentIntentService/CreatePaymentIntent', { amountUnits: '1000' }),
      call('PaymentIntentService/CancelPaymentIntent', { id: intent.id }),
      call('EventService/ListEvents'),
    ]);
    for (const { status, json } of answers) {
      expect(status).toBe(200);
      expect(JSON.stringify(json)).not.toMatch(/_secret_|clientSecret/);
    }
  });

  test('does not work as an API key, nor an API key as a session', async () => {
    const { token, call } = await open({ merchant });
    const publicly = await fetch(`${service.publicUrl}/v1/payment_intents`, {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(publicly.status).toBe(401);
    const { apiKey } = service.merchant.keys.testnet;
    const refused = await call('TransferService/ListTransfers', {}, { authorization: `Bearer ${apiKey}` });
    expect([refused.status, reasonOf(refused)]).toEqual([401, 'api_key_invalid']);
  });

  test.each([
    ['its time is over', "expires_at = now() - interval '1 second'"],
    ['nobody has called for an hour', "used_at = now() - interval '61 minutes'"],
  ])('ends when %s', async (_, change) => {
    const { call } = await open({ merchant });
    expect((await call('TransferService/ListTransfers')).status).toBe(200);
    await service.query(`update console_sessions set ${change}`);
    await revokeSession(em, (await newLink()).sessionId);
    const ended = await call('TransferService/ListTransfers');
    expect([ended.status, reasonOf(ended)]).toEqual([401, 'api_key_invalid']);
  });

  test.each([
    ['is kept open by a call', {}, true],
    ['is not kept open by a page that polls', { 'x-unattended': '1' }, false],
  ])('%s', async (_, headers, isKept) => {
    const { call } = await open({ merchant });
    await service.query("update console_sessions set used_at = now() - interval '59 minutes'");
    expect((await call('TransferService/ListTransfers', {}, headers)).status).toBe(200);
    const [row] = await service.query<{ is_kept: boolean }>(
      "select max(used_at) > now() - interval '1 minute' as is_kept from console_sessions",
    );
    expect(row?.is_kept).toBe(isKept);
  });

  test('that is revoked ends at once on every process', async () => {
    const { call, sessionId } = await open({ merchant });
    expect((await call('TransferService/ListTransfers')).status).toBe(200);
    await revokeSession(em, sessionId);
    expect((await call('TransferService/ListTransfers')).status).toBe(401);
  });
});

test('connections without a session do not close the connection of a session', async () => {
  const { token } = await open({ merchant });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const headers = { origin: url, 'content-type': 'application/json', authorization: `Bearer ${token}` };
  const ask = async () =>
    (await httpRequest(`${url}/payments.v1.TransferService/ListTransfers`, { headers, agent }, '{}')).status;
  expect(await ask()).toBe(200);
  const [socket] = Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? []);
  const strangers = Array.from({ length: 300 }, () => net.connect(port, '127.0.0.1').on('error', () => {}));
  // The listener has closed the excess connections.
  const closed = () => strangers.filter((each) => each.closed).length;
  await vi.waitFor(() => expect(closed()).toBeGreaterThan(40), 10_000);
  expect([await ask(), socket?.destroyed]).toEqual([200, false]);
  for (const each of strangers) each.destroy();
  agent.destroy();
});

test('a session has a rate limit', async () => {
  const limited = await startService({ CONSOLE_PORT: '0', ROLES: 'api', RATE_LIMIT: '1' });
  onTestFinished(() => limited.close());
  const [{ call }, other] = [await consoleOf(limited).open(), await consoleOf(limited).open()];
  const calls = Array.from({ length: 9 }, () => call('ConsoleService/ListMerchants'));
  expect((await Promise.all(calls)).map(({ status }) => status)).toContain(429);
  expect((await other.call('ConsoleService/ListMerchants')).status).toBe(200);
});

describe('an export', () => {
  test('is not sent over HTTP/1.0, where a cut file looks complete', async () => {
    const socket = net.connect(port, '127.0.0.1');
    socket.write(`GET /console/export?ticket=ct_1 HTTP/1.0\r\nHost: 127.0.0.1:${port}\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 505 [\s\S]*set proxy_http_version 1\.1/);
  });

  const range = { fromTime: '2026-11-01T00:00:00Z', beforeTime: '2026-12-01T00:00:00Z' };
  const get = (ticket: string, headers: Record<string, string> = {}) =>
    httpRequest(`${url}/console/export?ticket=${ticket}`, { method: 'GET', headers });

  test('is opened once by its ticket, and has only payments of the merchant that asked', async () => {
    const other = await service.newMerchant();
    const blockTime = new Date('2026-11-24T12:00:00Z');
    await insertTransfers(service, service.merchant, [
      { blockTime, amountUnits: 1_250_000, state: 'confirmed' },
    ]);
    await insertTransfers(service, other, [{ blockTime, amountUnits: 7_770_000, state: 'confirmed' }]);
    const { call } = await open({ merchant, isReadOnly: true });
    const { ticket } = (await call('ConsoleService/CreateExport', range)).json;
    const file = await get(ticket);
    expect([file.status, file.headers['content-type']]).toEqual([200, 'text/csv; charset=utf-8']);
    expect(file.headers['content-disposition']).toBe('attachment');
    expect(file.body).toContain(',1.25,1250000,');
    expect(file.body).not.toContain('7770000');
    expect((await get(ticket)).status).toBe(404);
    const last = { fromTime: '9999-01-01T00:00:00Z', beforeTime: '9999-12-31T23:59:59.999999999Z' };
    expect((await call('ConsoleService/CreateExport', last)).json).toHaveProperty('ticket');
  });

  test('is not opened after its time or session, by another page, or with an invalid ticket', async () => {
    const { call } = await open({ merchant });
    const { ticket } = (await call('ConsoleService/CreateExport', range)).json;
    const late = "select from export_tickets where expires_at > now() + interval '30 seconds'";
    expect(await service.query(late)).toEqual([]);
    expect((await get(ticket, { 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await get(ticket, { host: 'attacker.example' })).status).toBe(421);
    await service.query("update export_tickets set expires_at = now() - interval '1 second'");
    expect((await get(ticket)).status).toBe(404);
    const { ticket: ofEnded } = (await call('ConsoleService/CreateExport', range)).json;
    await call('ConsoleService/EndSession');
    expect((await get(ofEnded)).status).toBe(404);
    expect((await post(`/console/export?ticket=${ticket}`, {})).status).toBe(405);
    // The database is not asked about a made-up ticket.
    await service.query('alter table export_tickets rename to elsewhere');
    for (const made of ['', 'x', `ct_${'0'.repeat(49)}`]) expect((await get(made)).status).toBe(404);
    await service.query('alter table elsewhere rename to export_tickets');
    expect(JSON.stringify(await service.query('select t::text from export_tickets t'))).not.toContain(ticket);
  });

  test.each([
    ['fails', 'transfers_elsewhere', { level: 'error', code: 'internal' }],
    ['is left by its client', undefined, { level: 'info', code: 'canceled' }],
  ])('that %s after its beginning is not logged as ok', async (_, renamed, logged) => {
    const blockTime = new Date('2026-11-24T12:00:00Z');
    // More than a connection buffers.
    const rows = Array(20_000).fill({ blockTime, amountUnits: 1_250_000, state: 'confirmed' });
    await insertTransfers(service, service.merchant, rows);
    onTestFinished(async () => void (await service.query('delete from transfers')));
    const { call } = await open({ merchant });
    const { ticket } = (await call('ConsoleService/CreateExport', range)).json;
    const file = await fetch(`${url}/console/export?ticket=${ticket}`);
    const reader = file.body?.getReader();
    await reader?.read();
    if (renamed === undefined) await reader?.cancel();
    else {
      await service.query(`alter table transfers rename to ${renamed}`);
      onTestFinished(async () => void (await service.query(`alter table ${renamed} rename to transfers`)));
      await expect(async () => {
        while (!(await reader?.read())?.done);
      }).rejects.toThrow();
    }
    const requestId = file.headers.get('x-request-id');
    const line = service.loggedLine((each) => each.rpc === 'Export' && each.request_id === requestId);
    expect(await line).toMatchObject(logged);
  });

  test('is one of at most two that a merchant may have open', async () => {
    const { call } = await open({ merchant });
    const openExport = createOpenExport(em, peppers);
    const begin = async (ends: Promise<void>) => {
      const { ticket } = (await call('ConsoleService/CreateExport', range)).json;
      const begun = Promise.withResolvers<void>();
      const ended = openExport(ticket, async () => {
        begun.resolve();
        await ends;
      });
      await Promise.race([begun.promise, ended]);
      return { ended };
    };
    const { promise, resolve } = Promise.withResolvers<void>();
    const { ended } = await begin(promise);
    await begin(promise);
    await expect(begin(promise)).rejects.toMatchObject({ code: 'rate_limited' });
    resolve();
    await ended;
    await begin(promise);
  });

  test('of a time that the database cannot represent is refused', () => {
    const request = { beforeTime: { seconds: -62_135_683_200n, nanos: 0 } } as never;
    const refused = createExport(em, peppers).violations?.(request, {} as never);
    expect(refused).toContainEqual({
      field: 'before_time',
      message: expect.stringContaining('the years 1 to'),
    });
  });

  test.each([
    [{ ...range, fromTime: undefined }, 'from_time'],
    [{ ...range, beforeTime: '2026-11-01T00:00:00Z' }, 'before_time'],
    [{ ...range, beforeTime: '2027-12-31T00:00:00Z' }, 'before_time'],
  ])('of %o is refused', async (request, field) => {
    const { call } = await open({ merchant });
    const refused = await call('ConsoleService/CreateExport', request);
    expect([refused.status, JSON.stringify(refused.json)]).toEqual([400, expect.stringContaining(field)]);
  });
});

describe('a change', () => {
  const entries = (target: string) =>
    service.query(
      'select actor, actor_name, method, merchant_id, mode, fields, outcome, request_id from audit_log where target = $1',
      [target],
    );

  test('is in the audit log, with its outcome; reading is not', async () => {
    const intent = await createIntent();
    const { call, sessionId } = await open({ name: 'Björn', merchant });
    await call('PaymentIntentService/GetPaymentIntent', { id: intent.id });
    const canceled = await call('PaymentIntentService/CancelPaymentIntent', { id: intent.id });
    expect(canceled.status).toBe(200);
    expect(await entries(intent.id)).toEqual([
      {
        actor: sessionId,
        actor_name: 'Björn',
        method: `${PaymentIntentService.typeName}/CancelPaymentIntent`,
        merchant_id: service.merchant.id,
        mode: 'testnet',
        fields: { id: intent.id },
        outcome: 'ok',
        request_id: canceled.headers['x-request-id'],
      },
    ]);
    const unknown = 'pi_01m7yzn0mtexwagr0spq4wg7vz';
    await call('PaymentIntentService/CancelPaymentIntent', { id: unknown });
    expect(await entries(unknown)).toMatchObject([{ outcome: 'resource_missing' }]);
  });

  test.each(doors)('by a key over %s is logged, too, unless it creates an intent', async (door) => {
    const intent = await createIntent();
    expect(await service.call('cancelPaymentIntent', { id: intent.id }, { door })).toMatchObject({
      code: 'ok',
    });
    await expect
      .poll(() => entries(intent.id))
      .toMatchObject([
        {
          actor: service.merchant.keys.testnet.keyId,
          actor_name: 'API key',
          method: `${PaymentIntentService.typeName}/CancelPaymentIntent`,
          merchant_id: service.merchant.id,
          fields: { id: intent.id },
          outcome: 'ok',
        },
      ]);
  });

  test('leaves no secret in the audit log, and nothing of a call that is refused at once', async () => {
    const intent = await createIntent();
    const { apiKey } = service.merchant.keys.testnet;
    const { call } = await open({ merchant });
    const cancel = (sent: string) => call('PaymentIntentService/CancelPaymentIntent', { id: sent });
    const url = 'https://user:hunter2@shop.example/hooks';
    expect((await call('WebhookEndpointService/CreateWebhookEndpoint', { url })).status).toBe(400);
    const strange = ['pi_\u0000', `\x1cs_${'A'.repeat(40)}`, 'x'.repeat(9_000)];
    const code = 'k'.repeat(49);
    for (const sent of [intent.client_secret, apiKey, `see\ncs_${code}`, ...strange]) {
      expect((await cancel(sent)).status).toBeLessThan(500);
    }
    // No secret, although `cs_` and many characters are in it.
    const hook = 'https://shop.example/metrics_collector_production_of_all_the_shops_of_this_company';
    expect((await call('WebhookEndpointService/CreateWebhookEndpoint', { url: hook })).status).toBe(200);
    const note = 'y'.repeat(60_000);
    expect((await call('ConsoleService/ResolveAttention', { id: 'x', note })).status).toBe(400);
    const [log] = await service.query<{ text: string }>('select json_agg(a)::text as text from audit_log a');
    expect(log?.text).toContain(hook);
    for (const secret of [
      'hunter2',
      intent.client_secret.slice(40),
      code,
      apiKey.slice(12),
      note,
      'x'.repeat(9_000),
    ]) {
      expect(log?.text).not.toContain(secret);
    }
  });

  test('that creates something is logged with its id', async () => {
    const { call, sessionId } = await open({ merchant });
    const { id } = (await call('PaymentIntentService/CreatePaymentIntent', { amountUnits: '1000' })).json;
    expect(await entries(id)).toMatchObject([{ actor: sessionId, outcome: 'ok' }]);
  });

  test('is logged for the end of a session, too', async () => {
    const { call, sessionId } = await open({ merchant, isReadOnly: true });
    expect((await call('ConsoleService/EndSession')).status).toBe(200);
    expect((await call('ConsoleService/ListMerchants')).status).toBe(401);
    const left = 'select method, outcome from audit_log where actor = $1';
    expect(await service.query(left, [sessionId])).toEqual([
      { method: `${ConsoleService.typeName}/EndSession`, outcome: 'ok' },
    ]);
  });

  test('that Connect itself refuses is in the log as refused', async () => {
    const { call } = await open({ merchant });
    const { status } = await call('PaymentIntentService/CancelPaymentIntent', '{');
    expect(status).toBe(400);
    await service.loggedLine(({ rpc, code }) => rpc === 'CancelPaymentIntent' && code === 'invalid_body');
  });

  test('is not made if the audit log cannot be written', async () => {
    const intent = await createIntent();
    const { call } = await open({ merchant });
    await service.query('alter table audit_log rename to gone');
    const refused = await call('PaymentIntentService/CancelPaymentIntent', { id: intent.id });
    await service.query('alter table gone rename to audit_log');
    expect(refused.status).toBeGreaterThanOrEqual(500);
    expect((await service.call('getPaymentIntent', { id: intent.id })).json.status).toBe('requires_payment');
  });

  test('is in the audit log for 400 days', async () => {
    const age = (days: number) => Date.now() - days * 86_400_000;
    const [old, kept] = [newUuid(age(401)), newUuid(age(399))];
    const insert = `insert into audit_log (id, actor, actor_name, method, fields, request_id)
                    select id, 'cli', 'x', 'x', '{}', '' from unnest($1::uuid[]) as w (id)`;
    await service.query(insert, [[old, kept]]);
    await createAuditRemoval(em)();
    const left = 'select id from audit_log where id = any ($1::uuid[])';
    expect(await service.query(left, [[old, kept]])).toEqual([{ id: kept }]);
  });

  test('has its outcome once the log is settled, which a service that stops waits for', async () => {
    const { run, settled } = createAudit(em, () => {});
    const { id: target } = await createIntent();
    const blocker = await openClient(service.location);
    const lock = () => blocker.query('begin; lock table audit_log in exclusive mode');
    await run({ ...entryOfCommand('x', []), target, isPerson: false }, lock);
    const settledEntries = settled().then(() => entries(target));
    await sessionsWaiting(service, 1);
    await blocker.end();
    expect(await settledEntries).toMatchObject([{ outcome: 'ok' }]);
    expect(await settled()).toEqual([]);
  });
});

describe('admin console', () => {
  function admin(env: Record<string, string>, ...args: string[]) {
    return runAdmin(['console', ...args, '--json'], {
      ...bareEnvironment(),
      DATABASE_URL: databaseUrl(service.location),
      API_KEY_PEPPERS,
      ...env,
    });
  }
  const isOn = { CONSOLE_PORT: '9465' };

  test('prints a link, lists its session, and revokes it', async () => {
    const made = await admin(
      isOn,
      'link',
      '--for',
      'Carla',
      '--merchant',
      id,
      '--mode',
      'testnet',
      '--read-only',
    );
    const link = JSON.parse(made.stdout);
    expect(link).toMatchObject({
      name: 'Carla',
      merchant_id: id,
      mode: 'testnet',
      read_only: true,
      status: 'code',
    });
    expect(link.link).toMatch(/^http:\/\/127\.0\.0\.1:9465\/#cl_[0-9A-Za-z]{49}$/);
    expect(Date.parse(link.expires_at) - Date.parse(link.created_at)).toBe(600_000);
    const lasting = "select lasts_seconds from console_sessions where name = 'Carla'";
    expect(await service.query(lasting)).toEqual([{ lasts_seconds: 43_200 }]);
    const listed = JSON.parse((await admin(isOn, 'list')).stdout);
    expect(listed[0]).toEqual(expect.objectContaining({ session_id: link.session_id, status: 'code' }));
    expect(JSON.stringify(listed)).not.toContain('cl_');
    const revoked = JSON.parse((await admin(isOn, 'revoke', '--session', link.session_id)).stdout);
    expect(revoked).toMatchObject({ session_id: link.session_id, status: 'revoked' });
  });

  test.each([
    ['CONSOLE_PORT turns it on', {}, ['--for', 'Carla']],
    ['7 days at most', isOn, ['--for', 'Carla', '--expires-in', '8d']],
    ['more than 0 seconds', isOn, ['--for', 'Carla', '--expires-in', '0s']],
    ['--merchant and --mode go together', isOn, ['--for', 'Carla', '--mode', 'testnet']],
    [
      'there is no merchant',
      isOn,
      ['--for', 'C', '--merchant', 'mer_01m7yzn0mtexwagr0spq4wg7vz', '--mode', 'testnet'],
    ],
    ["a session's name", isOn, ['--for', 'x'.repeat(101)]],
  ])('refuses in one line: %s', async (words, env, args) => {
    const { code, stderr } = await admin(env, 'link', ...args);
    expect([code, stderr.trim().split('\n').length]).toEqual([1, 1]);
    expect(stderr).toContain(words);
  });
});
