// One question to a node: JSON-RPC over HTTP. Its answer is parsed as it arrives, because a stranger decides how large a block
// is; viem parses the whole of it at once, and nothing else has its turn meanwhile.

import { JSONParser } from '@streamparser/json';
import { turn } from '../scheduling/slices.ts';
import { type Elements, NodeError } from './node-answers.ts';
import { readRefusal } from './node-refusals.ts';

/** Largest answer in bytes. A block with 2,000 transfers has receipts of 3.3 MB. */
const maxAnswerBytes = 64 * 1024 * 1024;
/** So much is read of an answer that may say why there is none. */
const maxErrorBytes = 64 * 1024;
const maxText = 200;

/**
 * Resolves with the `result` of the answer, whatever it is. Rejects with NodeError, which names the host alone: the rest of
 * the address may be a secret. `timeoutMs` is for the whole of it, the answer's body included.
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
      `${host} cannot be reached, or does not answer ${method} as a node does`,
    );
  }
}

/** More than is read of an answer. */
class TooLarge extends Error {}
/** The node has answered, but not with JSON. */
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
    await turn();
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

/** What an answer with a status of an error says, in JSON or as text. */
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

/** Words of the node are passed on if they are JSON-RPC's: a page of its server may repeat the address, with its secret. */
function faultOf({ status, statusText, headers, ok }: Response, error: unknown, refused: string): NodeError {
  const { code, message } = (typeof error === 'object' ? (error ?? {}) : { message: error }) as {
    code?: unknown;
    message?: unknown;
  };
  const details = typeof message === 'string' ? message : '';
  const text =
    typeof code === 'number' ? `${details.slice(0, maxText)} (${code})` : `HTTP ${status} ${statusText}`;
  const { fault, retryAfterMs } = readRefusal({ ...(!ok && { status, headers }), code, details }) ?? {
    // What is in front of the node may answer in its place: that says nothing about the question.
    fault: typeof code === 'number' ? 'refused' : 'unreachable',
    retryAfterMs: undefined,
  };
  return new NodeError(fault, `${refused}: ${text.trim()}`, { retryAfterMs });
}
