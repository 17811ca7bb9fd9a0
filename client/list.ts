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
