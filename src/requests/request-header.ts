/** What is read of a request's headers; a `Headers` object is one. */
export interface RequestHeader {
  /** The values of a header in the order they came, joined by a comma, or null. The name is in lower case. */
  get(lowerCaseName: string): string | null;
}

/**
 * The headers of a request as Node keeps them: names and values in turn. A header that came more than once is joined,
 * `Authorization` too: Node's own `headers` would keep the first and hide that there were two. To build a `Headers` object
 * takes several times as long as to look for the few that are read.
 */
export class RawHeaders implements RequestHeader {
  readonly #raw: readonly string[];

  constructor(rawHeaders: readonly string[]) {
    this.#raw = rawHeaders;
  }

  get(lowerCaseName: string): string | null {
    const raw = this.#raw;
    let found: string | null = null;
    for (let i = 0; i + 1 < raw.length; i += 2) {
      const name = raw[i] as string;
      if (name.length !== lowerCaseName.length || name.toLowerCase() !== lowerCaseName) continue;
      const value = raw[i + 1] as string;
      found = found === null ? value : `${found}, ${value}`;
    }
    return found;
  }

  /** How often a header was sent. */
  count(lowerCaseName: string): number {
    let count = 0;
    for (let i = 0; i < this.#raw.length; i += 2) if (this.#raw[i]?.toLowerCase() === lowerCaseName) count++;
    return count;
  }

  /** The same as a `Headers` object, for whoever needs one. */
  toHeaders(): Headers {
    const headers = new Headers();
    for (let i = 0; i + 1 < this.#raw.length; i += 2) {
      const name = this.#raw[i] as string;
      // HTTP/2 has its pseudo-headers among them.
      if (!name.startsWith(':')) headers.append(name, this.#raw[i + 1] as string);
    }
    return headers;
  }
}
