// The nodes of each chain, from variables such as `RPC_URL_BASE`.

import type { ChainSettings } from '../contract/chains.ts';

/** A chain and its nodes. */
export interface ChainNodes extends ChainSettings {
  /** The first reads, the second confirms; a revert asks all. They may hold keys: never print them whole. */
  urls: readonly [string, ...string[]];
}

/** Throws if the text is not a list of addresses. The error does not repeat it. */
export function parseRpcUrls(text: string): [string, ...string[]] {
  const [first = '', ...others] = text.split(',').map((url) => url.trim());
  const urls: [string, ...string[]] = [first, ...others];
  for (const [i, url] of urls.entries()) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw new Error(`entry ${i + 1} is not an address that begins with http:// or https://`);
    }
  }
  if (new Set(urls).size < urls.length)
    throw new Error('an address is listed twice: the node that confirms must be another one');
  return urls;
}
