// One JSON-RPC request to a node over HTTP. The answer is parsed as it arrives: strangers decide how large a
// block is, and parsing all of it at once, as viem does, would block the event loop.

import querystring from 'node:querystring';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { JSONParser, TokenType } from '@streamparser/json';
import { Agent, type Dispatcher, request } from 'undici';
import { beforeAbort } from '../scheduling/before-abort.ts';
import { nextSlice } from '../scheduling/slices.ts';
import { type Elements, NodeError } from './node-answers.ts';

/** Largest answer, in bytes. The receipts of a block with 2,000 transfers take 3.3 MB. */
const maxAnswerBytes = 64 * 1024 * 1024;
/**
 * Most tokens of an answer, or of one element of its list, that become values: a token of two bytes may take
 * a hundred as a value. A block's transactions by hash are some 40,000.
 */
const maxTokens = 500_000;
/** Deepest nesting of an answer. The storage keys of a block's transactions are in the seventh level. */
const maxDepth = 32;
/** Bytes read of an error response. */
const maxErrorBytes = 64 * 1024;
const maxText = 200;
/** HTTP/1.1 only, as with `fetch`. By default undici lets a node choose HTTP/2, which is new in undici. */
const dispatcher = new Agent({ allowH2: false });

/**
 * Resolves with the `result` of the answer. Rejects with NodeError, which names only the host: the rest of
 * the URL may contain a key. `timeoutMs` includes reading the body.
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
  const names = [username, password].map((part) => querystring.unescape(part));
  const credentials = Buffer.from(names.join(':')).toString('base64');
  try {
    const signal = AbortSignal.timeout(timeoutMs);
    const headers = {
      'Content-Type': 'application/json',
      'Accept-Encoding': 'gzip',
      ...(username !== '' && { Authorization: `Basic ${credentials}` }),
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
    // Redirects are not followed: they would turn the call into a GET. undici heeds the signal only once it is
    // connected.
    const response = await beforeAbort(signal, () =>
      request(target, { method: 'POST', headers, body, signal, dispatcher }),
    );
    const text = textOf(response);
    const subject = `${host} answered ${method} with`;
    const answer = isOk(response) ? await readJson(text, elements, subject) : await readError(text);
    const { error, result } = (answer ?? {}) as { error?: unknown; result?: unknown };
    if (isOk(response) && error == null) return result;
    throw faultOf(response, error, `${host} refused ${method}`, url);
  } catch (reason) {
    if (reason instanceof NodeError) throw reason;
    if (reason instanceof DOMException && reason.name === 'TimeoutError') {
      throw new NodeError('late', `${host} did not answer ${method} within ${timeoutMs / 1000} s`);
    }
    throw new NodeError(
      'unreachable',
      `${host} cannot be reached, or did not answer ${method} with JSON-RPC`,
    );
  }
}

const isOk = ({ statusCode }: Dispatcher.ResponseData) => statusCode >= 200 && statusCode < 300;

function textOf({ headers, body }: Dispatcher.ResponseData): Readable {
  // An error of either stream ends the other, and is thrown where the body is read.
  return headers['content-encoding'] === 'gzip' ? pipeline(body, createGunzip(), () => {}) : body;
}

/** `subject`: the beginning of an error's message. */
async function readJson(body: Readable, elements: Elements | undefined, subject: string): Promise<unknown> {
  let found: unknown;
  let size = 0;
  let tokens = 0;
  let depth = 0;
  const parser = new JSONParser({ paths: elements === undefined ? ['$'] : ['$', elements.path] });
  parser.onToken = ({ token }) => {
    if (++tokens > maxTokens) throw new NodeError('too_large', `${subject} more than ${maxTokens} tokens`);
    if (token === TokenType.LEFT_BRACE || token === TokenType.LEFT_BRACKET) depth++;
    if (token === TokenType.RIGHT_BRACE || token === TokenType.RIGHT_BRACKET) depth--;
    if (depth > maxDepth) throw new NodeError('malformed', `${subject} more than ${maxDepth} nested values`);
  };
  parser.onValue = ({ value, key, parent, stack }) => {
    if (stack.length === 0) found = value;
    else if (elements !== undefined && key !== undefined) {
      Object.assign(parent ?? {}, { [key]: elements.read(value) });
      tokens = 0;
    }
  };
  const parse = (run: () => void) => {
    try {
      run();
    } catch (reason) {
      if (reason instanceof NodeError) throw reason;
      throw new NodeError('malformed', `${subject} something that is not JSON`);
    }
  };
  for await (const chunk of body) {
    size += chunk.length;
    if (size > maxAnswerBytes)
      throw new NodeError('too_large', `${subject} more than ${maxAnswerBytes} bytes`);
    await nextSlice();
    parse(() => parser.write(chunk));
  }
  if (!parser.isEnded) parse(() => parser.end());
  return found;
}

async function readError(body: Readable): Promise<{ error?: unknown }> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
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

// Providers use their own messages: these are the patterns of Alchemy, Ankr, Blast, Chainstack, dRPC, Infura,
// QuickNode, Geth and Erigon.

/** The request or its answer is larger than the node allows. */
const ofSize =
  /\brange\b|\bblocks? (?:limit|distance)|(?:more than|up to|maximum|max|limited to|exceeds?)\b.{0,40}\b(?:blocks|results|logs)|too (?:large|wide|many (?:blocks|results|logs))|(?:response|result) (?:size|set)|query (?:returned|exceeds)/i;
/** The request is for blocks that the node does not have yet. */
const ofHead = /\bblock is out of range|beyond (?:the )?current head|invalid block range params/i;
const ofRate =
  /rate.?limit|too many requests|compute units|throughput|throttl|capacity|quota|credits|per second|(?:request|call|daily|limit).{0,20}exceeded|exceeded.{0,40}(?:limit|capacity|requests)/i;
/** `LimitExceeded`. Some nodes also use it for sizes. */
const limitExceeded = -32005;
const maxRead = 1_000;

/** Hides what may be a key: each longer part of the URL behind its host, which a message may repeat. */
function withoutKeys(text: string, { username, password, pathname, search }: URL): string {
  const parts = [username, password, pathname, search].flatMap((part) => part.split(/[/?&=]/));
  const keys = parts.filter(({ length }) => length >= 8);
  return keys.reduce((hidden, key) => hidden.replaceAll(key, '…'), text);
}

/** Classifies a refused request. Only a JSON-RPC error message is passed on, without the keys of the URL. */
function faultOf(response: Dispatcher.ResponseData, error: unknown, words: string, url: URL): NodeError {
  const { statusCode: status, statusText, headers } = response;
  const { code, message } = (typeof error === 'object' ? (error ?? {}) : { message: error }) as {
    code?: unknown;
    message?: unknown;
  };
  const read = typeof message === 'string' ? message.slice(0, maxRead) : '';
  const shown = withoutKeys(typeof code === 'number' ? read : statusText, url).slice(0, maxText);
  const text = typeof code === 'number' ? `${shown} (${code})` : `HTTP ${status} ${shown}`;
  const retryAfter = isOk(response) ? undefined : headers['retry-after'];
  const retryAfterMs = typeof retryAfter === 'string' ? msOf(retryAfter) : undefined;
  const is429 = status === 429 || code === 429;
  const isTooMany = is429 && !/\brange\b/i.test(read);
  const isTooLarge = status === 413 || (!isTooMany && ofSize.test(read) && !ofHead.test(read));
  const isRate = is429 || code === limitExceeded || ofRate.test(read) || retryAfterMs !== undefined;
  // A proxy in front of the node may have answered.
  const otherwise = typeof code === 'number' ? 'refused' : 'unreachable';
  const fault = isTooLarge ? 'too_large' : isRate ? 'rate_limited' : otherwise;
  return new NodeError(fault, `${words}: ${text.trim()}`, { retryAfterMs });
}

/** In milliseconds, at most a minute. */
function msOf(value: string): number | undefined {
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1_000;
  return Number.isNaN(seconds) ? undefined : Math.min(Math.max(0, seconds * 1_000), 60_000);
}
