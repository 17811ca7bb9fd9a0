// The reference page may send requests on a developer's own machine with testnet keys. All other browser requests are
// refused.

import { describe, expect, test } from 'vitest';
import { httpRequest, postJson, type TestService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const create = async (
  service: TestService,
  origin: string,
  { mode = 'testnet', host }: { mode?: 'testnet' | 'mainnet'; host?: string } = {},
) => {
  const { apiKey } = service.merchant.keys[mode];
  const { status, headers, body } = await postJson(
    `${service.publicUrl}/v1/payment_intents`,
    apiKey,
    undefined,
    { headers: { origin, ...(host !== undefined && { host }) } },
  );
  const cors = Object.keys(headers).filter((name) => name.startsWith('access-control-'));
  return [status, JSON.parse(body).error?.code ?? 'ok', cors];
};
const refused = [403, 'browser_forbidden', []];

describe('embedded', async () => {
  const service = await useService();
  const portOf = () => service.server.ports.http;

  test.each(['localhost', '127.0.0.1'])('allowed: a testnet key from http://%s, same port', async (host) => {
    expect(await create(service, `http://${host}:${portOf()}`)).toEqual([201, 'ok', []]);
  });

  test.each(['localhost', '127.0.0.1'])('refused: a mainnet key from http://%s', async (host) => {
    expect(await create(service, `http://${host}:${portOf()}`, { mode: 'mainnet' })).toEqual(refused);
  });

  test.each<[string, (port: number) => string]>([
    ['another scheme', (port) => `https://localhost:${port}`],
    ['another port', (port) => `http://localhost:${port + 1}`],
    ['no port', () => 'http://localhost'],
    ['another name', (port) => `http://evil.example:${port}`],
    ['a longer name', (port) => `http://localhost.evil.example:${port}`],
    ['a name in capitals', (port) => `http://LOCALHOST:${port}`],
    ['a path', (port) => `http://localhost:${port}/`],
    ['another loopback address', (port) => `http://127.0.0.2:${port}`],
    ['IPv6', (port) => `http://[::1]:${port}`],
    ['two', (port) => `http://localhost:${port}, http://localhost:${port}`],
    ['null', () => 'null'],
    ['nothing', () => ''],
  ])('refused: %s', async (_, origin) => {
    expect(await create(service, origin(portOf()))).toEqual(refused);
  });

  test('refused: a host name that DNS rebinding points to this machine', async () => {
    const host = `rebound.example:${portOf()}`;
    expect(await create(service, `http://${host}`, { host })).toEqual(refused);
  });

  test('a preflight is answered without a CORS header', async () => {
    const { status, headers } = await httpRequest(`${service.publicUrl}/v1/payment_intents`, {
      method: 'OPTIONS',
      headers: { Origin: 'https://shop.example', 'Access-Control-Request-Method': 'POST' },
    });
    expect([status, Object.keys(headers).filter((name) => name.startsWith('access-control-'))]).toEqual([
      403,
      [],
    ]);
  });

  test('the page has its form and script', async () => {
    expect(await (await fetch(`${service.publicUrl}/docs`)).text()).toMatch(
      /try-it\.js[\s\S]*Testnet API key/,
    );
    expect((await fetch(`${service.publicUrl}/docs/try-it.js`)).status).toBe(200);
  });
});

describe('with an external database', async () => {
  const service = await useService({}, { embedded: false });

  test.each(['localhost', '127.0.0.1'])('refused: http://%s and the public port', async (host) => {
    expect(await create(service, `http://${host}:${service.server.ports.http}`)).toEqual(refused);
  });

  test('the page has neither a form nor a script that sends', async () => {
    const page = await (await fetch(`${service.publicUrl}/docs`)).text();
    expect(page).toContain('API reference');
    expect(page).not.toMatch(/<form|try-it|API key<\/label>/);
    expect((await fetch(`${service.publicUrl}/docs/try-it.js`)).status).toBe(404);
  });
});
