// One JSON-RPC request to a node over HTTP. The answer is parsed as it arrives: a stranger decides how large a block
// is, and parsing all of it at once, as viem does, would block the event loop.

import { JSONParser } from '@streamparser/json';
import { nextSlice } from '../scheduling/slices.ts';
import { type Elements, NodeError } from './node-answers.ts';
import { readRefusal } from './node-refusals.ts';

/** Largest answer, in bytes. The receipts of a block with 2,000 transfers take 3.3 MB. */
const maxAnswerBytes = 64 * 1024 * 1024;
/** Bytes read of an error response. */
const maxErrorBytes = 64 * 1024;
const maxText = 200;

/**
 * Resolves with the `result` of the answer. Rejects with NodeError, which names only the host: the rest of the URL may
 * contain a key. `timeoutMs` includes reading the body.
 */
export async function callJsonRpc(
  url: URL,
  method: string,
  params: readonly unknown[],
  timeoutMs: number,
  elements?: Elements,
): Promise<unknown> {
  const { host, username, password } = url;
  const target = new URL(url);
  target.username = '';
  target.password = '';
  const credentials = btoa(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`);
  try {
    const response = await fetch(target, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        ...(username !== '' && { Authorization: `Basic ${credentials}` }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const answer = response.ok ? await readJson(response, elements) : await readError(response);
    const { error, result } = (answer ?? {}) as { error?: unknown; result?: unknown };
    if (response.ok && error == null) return result;
    throw faultOf(response, error, `${host} refused ${method}`);
  } catch (reason) {
    if (reason instanceof NodeError) throw reason;
    if (reason instanceof TooLarge) {
      throw new NodeError('too_large', `${host} answered ${method} with more than ${maxAnswerBytes} bytes`);
    }
    if (reason instanceof NotJson) {
      throw new NodeError('malformed', `${host} answered ${method} with something that is not JSON`);
    }
    if (reason instanceof DOMException && reason.name === 'TimeoutError') {
      throw new NodeError('late', `${host} did not answer ${method} within ${timeoutMs / 1000} s`);
    }
    throw new NodeError(
      'unreachable',
      `${host} cannot be reached, or did not answer ${method} with JSON-RPC`,
    );
  }
}

class TooLarge extends Error {}
class NotJson extends Error {}

async function readJson({ body }: Response, elements: Elements | undefined): Promise<unknown> {
  let found: unknown;
  let size = 0;
  const parser = new JSONParser({ paths: elements === undefined ? ['$'] : ['$', elements.path] });
  parser.onValue = ({ value, key, parent, stack }) => {
    if (stack.length === 0) found = value;
    else if (elements !== undefined && key !== undefined)
      Object.assign(parent ?? {}, { [key]: elements.read(value) });
  };
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > maxAnswerBytes) throw new TooLarge();
    await nextSlice();
    parse(() => parser.write(chunk));
  }
  if (!parser.isEnded) parse(() => parser.end());
  return found;
}

function parse(run: () => void): void {
  try {
    run();
  } catch (reason) {
    if (reason instanceof NodeError) throw reason;
    throw new NotJson();
  }
}

async function readError({ body }: Response): Promise<{ error?: unknown }> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > maxErrorBytes) break;
  }
  const text = Buffer.concat(chunks).toString();
  try {
    return JSON.parse(text);
  } catch {
    return { error: text };
  }
}

/** Only a JSON-RPC error message is passed on: an HTML error page may repeat the URL with its key. */
function faultOf({ status, statusText, headers, ok }: Response, error: unknown, refused: string): NodeError {
  const { code, message } = (typeof error === 'object' ? (error ?? {}) : { message: error }) as {
    code?: unknown;
    message?: unknown;
  };
  const details = typeof message === 'string' ? message : '';
  const text =
    typeof code === 'number' ? `${details.slice(0, maxText)} (${code})` : `HTTP ${status} ${statusText}`;
  const { fault, retryAfterMs } = readRefusal({ ...(!ok && { status, headers }), code, details }) ?? {
    // A proxy in front of the node may have answered.
    fault: typeof code === 'number' ? 'refused' : 'unreachable',
    retryAfterMs: undefined,
  };
  return new NodeError(fault, `${refused}: ${text.trim()}`, { retryAfterMs });
}
