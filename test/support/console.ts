// Calls the console's port as its pages do.

import { createLink } from '../../src/console/sessions.ts';
import { httpRequest, type TestService } from './service.ts';

type Headers = Record<string, string | undefined>;

export function consoleOf(service: TestService) {
  const { em } = service.database.orm;
  const peppers = service.database.keyRing('API_KEY_PEPPERS');
  const port = service.server.ports.console ?? 0;
  const url = `http://127.0.0.1:${port}`;
  const merchant = { id: service.merchant.merchantId, mode: 'testnet' } as const;

  const newLink = (options: Partial<Parameters<typeof createLink>[2]> = {}) =>
    createLink(em, peppers, { name: 'Anna Meier', isReadOnly: false, lastsMs: 3_600_000, ...options });

  async function post(path: string, body: object | string, headers: Headers = {}) {
    const all = { origin: url, 'content-type': 'application/json', ...headers };
    const given = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await httpRequest(url + path, { headers: given as Record<string, string> }, text);
    return {
      status: answer.status,
      json: answer.body === '' ? undefined : JSON.parse(answer.body),
      headers: answer.headers,
    };
  }

  const exchange = (code: string) => post('/console/session', { code });

  async function open(options?: Parameters<typeof newLink>[0]) {
    const { code, sessionId } = await newLink(options);
    const { json } = await exchange(code);
    const call = (method: string, request: object | string = {}, headers: Headers = {}) =>
      post(`/${method.startsWith('ConsoleService') ? 'console' : 'payments'}.v1.${method}`, request, {
        authorization: `Bearer ${json.token}`,
        ...headers,
      });
    return { call, sessionId, token: json.token as string, session: json.session };
  }

  return { em, peppers, port, url, merchant, newLink, post, exchange, open };
}

/** The code of the catalogue that a call was refused with. */
export function reasonOf({
  json,
}: {
  json: { details?: unknown; error?: { code: string } };
}): string | undefined {
  const [detail] = (json.details ?? []) as { debug?: { reason?: string } }[];
  return detail?.debug?.reason?.toLowerCase() ?? json.error?.code;
}
