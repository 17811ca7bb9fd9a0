import type { Asked, Call } from './calls.ts';
import type { CheckedCallOptions } from './options.ts';
import type { Method } from './protocol.ts';
import type { CheckedRequest } from './request-fields.ts';

/** One answer of a list. */
export interface Page<Item> {
  /** The items. There may be none, and still a next page. */
  items: Item[];
  /** Names the next page, for the same filters. Undefined on the last one. */
  nextPageToken: string | undefined;
}

/**
 * What matches the filters of a list. `for await` reads all of it, page by page as it goes; nothing is sent before.
 * Each page is retried like any other call.
 */
export interface List<Item> extends AsyncIterable<Item> {
  /** Returns the first page, or the one that `nextPageToken` of the page before names. */
  page(pageToken?: string): Promise<Page<Item>>;
}

/** Returns the list that a method answers. */
export function createList<Item>(
  call: Call,
  method: Method & { lists: string },
  { id, request }: Asked,
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

/** A page token takes the place of `after`, which says where the first page begins. */
function withToken(request: CheckedRequest, pageToken: string | undefined): CheckedRequest {
  if (pageToken === undefined) return request;
  const [{ after: _, ...json }, { after: __, ...message }] = [request.json, request.message];
  return { json: { ...json, page_token: pageToken }, message: { ...message, pageToken } };
}
