import type { Call, CallTarget } from './calls.ts';
import type { CheckedCallOptions } from './options.ts';
import type { Method } from './protocol.ts';
import type { CheckedRequest } from './request-fields.ts';

/** One page of a list. */
export interface Page<Item> {
  /** The items. May be empty even if there is a next page. */
  items: Item[];
  /** The token of the next page, for the same filters. Undefined on the last page. */
  nextPageToken: string | undefined;
}

/**
 * The items that match the filters. `for await` reads them all, and fetches each page when it gets there;
 * nothing is sent before that. Each page is retried like any other call.
 */
export interface List<Item> extends AsyncIterable<Item> {
  /** Returns the first page, or the page for the `nextPageToken` of the page before. */
  page(pageToken?: string): Promise<Page<Item>>;
}

/** Returns the list of a method that answers in pages. */
export function createList<Item>(
  call: Call,
  method: Method & { lists: string },
  { id, request }: CallTarget,
  options: CheckedCallOptions,
): List<Item> {
  return {
    async page(pageToken) {
      const { resource } = await call(method, { id, request: withToken(request, pageToken) }, options);
      const found = resource as Record<string, Item[]> & Pick<Page<Item>, 'nextPageToken'>;
      return { items: found[method.lists] ?? [], nextPageToken: found.nextPageToken };
    },
    async *[Symbol.asyncIterator]() {
      for (let token: string | undefined; ; ) {
        const { items, nextPageToken } = await this.page(token);
        yield* items;
        if (nextPageToken === undefined) return;
        token = nextPageToken;
      }
    },
  };
}

/** Replaces `after`, which sets where the first page begins, with the page token. */
function withToken(request: CheckedRequest, pageToken: string | undefined): CheckedRequest {
  if (pageToken === undefined) return request;
  const [{ after: _, ...json }, { after: __, ...message }] = [request.json, request.message];
  return { json: { ...json, page_token: pageToken }, message: { ...message, pageToken } };
}
