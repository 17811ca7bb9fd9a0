import { type HttpAnswer, maxAnswerBytes, readText, refusalOf, unexpectedAnswer } from './answer.ts';
import type { CheckedOptions } from './options.ts';
import type { Send, Try } from './protocol.ts';
import { FieldFault, readJson } from './resource-fields.ts';

/** The public port: JSON over HTTP. */
export function json({ baseUrl, apiKey }: CheckedOptions): Send {
  return async (tried) => {
    const { method, idempotencyKey, signal } = tried;
    const { verb, path, body } = routeOf(tried);
    const response = await fetch(baseUrl + path, {
      method: verb,
      headers: {
        ...headersOf(apiKey, idempotencyKey),
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
      },
      ...(body !== undefined && { body }),
      // Following a redirect would turn a POST into a GET, or send the API key elsewhere.
      redirect: 'manual',
      // Next.js keeps answers otherwise. Older workerd knows no `cache`, and refuses it.
      ...(typeof Request === 'function' && 'cache' in Request.prototype && { cache: 'no-store' }),
      signal,
    });
    const isExpected = response.status === method.status;
    const text =
      response.body === null ? '' : await readText(response.body, isExpected ? maxAnswerBytes : undefined);
    const answer = { status: response.status, headers: response.headers, text };
    if (!isExpected) throw refusalOf(answer);
    const replayed = response.headers.get('Idempotent-Replayed') === 'true';
    return { resource: resourceIn(answer, tried), replayed };
  };
}

/** Returns the HTTP request of a try. Its fields go into the body, or into the query if it has no body. */
function routeOf({ method, id = '', request }: Try): {
  verb: string;
  path: string;
  body: string | undefined;
} {
  const [verb = '', template = ''] = method.http.split(' ');
  const path = template.replace('{id}', encodeURIComponent(id));
  if (verb === 'POST' || verb === 'PATCH') return { verb, path, body: JSON.stringify(request.json) };
  // Not URLSearchParams: it writes a space as a plus sign, which the service reads as a plus sign.
  const query = Object.entries(request.json).map(
    ([name, value]) => `${name}=${encodeURIComponent(String(value))}`,
  );
  return { verb, path: query.length === 0 ? path : `${path}?${query.join('&')}`, body: undefined };
}

/** Reads the answer. Throws `unexpected_answer` for a body that is not the method's answer. */
function resourceIn(answer: HttpAnswer, { method }: Try): object {
  let body: unknown;
  try {
    body = JSON.parse(answer.text);
  } catch {
    throw unexpectedAnswer(answer, 'the body is not JSON');
  }
  try {
    return readJson(method.answer, body);
  } catch (fault) {
    if (!(fault instanceof FieldFault)) throw fault;
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw unexpectedAnswer(answer, 'the body is not an object');
    }
    throw unexpectedAnswer({ ...answer, text: '' }, fault.message);
  }
}

/** The version in package.json. */
const version = '0.1.0';

/** Returns the headers of a request over either protocol. */
export function headersOf(apiKey: string, idempotencyKey?: string) {
  return {
    Authorization: `Bearer ${apiKey}`,
    ...(idempotencyKey !== undefined && { 'Idempotency-Key': idempotencyKey }),
    'User-Agent': userAgent(),
  };
}

/** Returns this client's version and its runtime. */
function userAgent(): string {
  const { process, navigator } = globalThis as {
    process?: { versions?: { node?: string } };
    navigator?: { userAgent?: string };
  };
  const node = process?.versions?.node;
  // An edge runtime has no Node.js version, but it has a user agent.
  const runtime = node === undefined ? (navigator?.userAgent ?? '') : `node/${node}`;
  return `payment-intents-client/${version} ${runtime.replaceAll(/[^\x20-\x7e]/g, '')}`.trim();
}
