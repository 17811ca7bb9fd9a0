/** The interface used to read a request's headers. A `Headers` object satisfies it. */
export interface RequestHeader {
  /** Returns a header's values in their order, joined by a comma, or null. The name is in lower case. */
  get(lowerCaseName: string): string | null;
}

/**
 * The headers of a request as Node keeps them: names and values in turn. Repeated headers are joined,
 * including `Authorization`: Node's own `headers` would keep only the first one. Building a `Headers` object
 * takes several times as long as looking up the few headers that are read.
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

  count(lowerCaseName: string): number {
    let count = 0;
    for (let i = 0; i < this.#raw.length; i += 2) if (this.#raw[i]?.toLowerCase() === lowerCaseName) count++;
    return count;
  }
}
