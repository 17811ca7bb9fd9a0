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

/** Returns the list whose pages `page` returns, each for the token of the one before. */
export function createList<Item>(page: (pageToken?: string) => Promise<Page<Item>>): List<Item> {
  return {
    page,
    async *[Symbol.asyncIterator]() {
      for (let token: string | undefined; ; ) {
        const { items, nextPageToken } = await page(token);
        yield* items;
        if (nextPageToken === undefined) return;
        token = nextPageToken;
      }
    },
  };
}
