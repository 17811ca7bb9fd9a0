import type { HttpRoute } from '../../contract/http-routes.ts';
import { percentDecoded } from './percent-decoding.ts';

/** What a path leads to. */
export interface Match<Endpoint> {
  /** The endpoints of the path by HTTP method. */
  byMethod: ReadonlyMap<string, Endpoint>;
  /** The values of the path's variables in their order, decoded. */
  values: readonly string[];
}

export interface Router<Endpoint> {
  /** Returns the match of a path without its query, or undefined. A literal segment goes before a variable. */
  find(path: string): Match<Endpoint> | undefined;
}

/** Paths that share their beginning, segment by segment. */
interface Node<Endpoint> {
  literals: Map<string, Node<Endpoint>>;
  variable: Node<Endpoint> | undefined;
  byMethod: Map<string, Endpoint>;
}

/** Throws if two routes have the same HTTP method and match the same paths. */
export function createRouter<Endpoint extends HttpRoute>(endpoints: readonly Endpoint[]): Router<Endpoint> {
  const root = newNode<Endpoint>();
  /** Paths without variables, which are found at once. */
  const literalPaths = new Map<string, Match<Endpoint>>();
  for (const endpoint of endpoints) {
    let node = root;
    for (const segment of endpoint.segments) {
      if (typeof segment !== 'string') {
        node.variable ??= newNode();
        node = node.variable;
        continue;
      }
      const next = node.literals.get(segment) ?? newNode<Endpoint>();
      node.literals.set(segment, next);
      node = next;
    }
    if (node.byMethod.has(endpoint.httpMethod)) {
      throw new Error(`${endpoint.httpMethod} ${endpoint.path} is annotated on two methods`);
    }
    node.byMethod.set(endpoint.httpMethod, endpoint);
    if (endpoint.pathFields.length === 0)
      literalPaths.set(endpoint.path, { byMethod: node.byMethod, values: [] });
  }
  return {
    find(path) {
      // HTTP/2 also has paths without a slash at their beginning, which no route has.
      if (!path.startsWith('/')) return undefined;
      return literalPaths.get(path) ?? search(root, path.split('/'), 1, []);
    },
  };
}

function newNode<Endpoint>(): Node<Endpoint> {
  return { literals: new Map(), variable: undefined, byMethod: new Map() };
}

function search<Endpoint>(
  { literals, variable, byMethod }: Node<Endpoint>,
  segments: readonly string[],
  at: number,
  values: readonly string[],
): Match<Endpoint> | undefined {
  const segment = segments[at];
  if (segment === undefined) return byMethod.size > 0 ? { byMethod, values } : undefined;
  const literal = literals.get(segment);
  const found = literal && search(literal, segments, at + 1, values);
  if (found !== undefined || variable === undefined) return found;
  const value = percentDecoded(segment);
  // No route has an empty segment, or one that cannot be decoded.
  return value === undefined || value === ''
    ? undefined
    : search(variable, segments, at + 1, [...values, value]);
}
