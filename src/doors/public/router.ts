import type { DescField } from '@bufbuild/protobuf';
import type { HttpRoute } from '../../contract/http-routes.ts';

/** The match of a path: its endpoints by HTTP method, and the values of its variables. */
export interface Match<Endpoint> {
  byMethod: ReadonlyMap<string, Endpoint>;
  /** Decoded values, by field. */
  variables: readonly (readonly [DescField, string])[];
}

export interface Router<Endpoint> {
  /**
   * Returns the match of a path without its query, or undefined. A literal segment takes precedence over a variable.
   */
  find(path: string): Match<Endpoint> | undefined;
}

/** Paths with a common prefix, segment by segment. */
interface Node<Endpoint> {
  literals: Map<string, Node<Endpoint>>;
  variable: Node<Endpoint> | undefined;
  endpoints: Map<string, { endpoint: Endpoint; fields: readonly DescField[] }>;
}

/** Throws if two routes have the same HTTP method and match the same paths. */
export function createRouter<Endpoint extends HttpRoute>(endpoints: readonly Endpoint[]): Router<Endpoint> {
  const root = newNode<Endpoint>();
  /** Paths without variables, found by one lookup. */
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
    if (node.endpoints.has(endpoint.httpMethod)) {
      throw new Error(`${endpoint.httpMethod} ${endpoint.path} is annotated on two methods`);
    }
    const fields = endpoint.segments.filter((segment) => typeof segment !== 'string');
    node.endpoints.set(endpoint.httpMethod, { endpoint, fields });
    if (fields.length === 0) literalPaths.set(endpoint.path, matchOf(node, []));
  }

  return {
    find(path) {
      const literal = literalPaths.get(path);
      if (literal !== undefined) return literal;
      const found = search(root, path.split('/').slice(1), 0, []);
      return found && matchOf(found.node, found.values);
    },
  };
}

function newNode<Endpoint>(): Node<Endpoint> {
  return { literals: new Map(), variable: undefined, endpoints: new Map() };
}

function search<Endpoint>(
  node: Node<Endpoint>,
  segments: readonly string[],
  at: number,
  values: readonly string[],
): { node: Node<Endpoint>; values: readonly string[] } | undefined {
  const segment = segments[at];
  if (segment === undefined) return node.endpoints.size > 0 ? { node, values } : undefined;
  const literal = node.literals.get(segment);
  const found = literal && search(literal, segments, at + 1, values);
  if (found !== undefined || node.variable === undefined) return found;
  const value = decoded(segment);
  return value === undefined ? undefined : search(node.variable, segments, at + 1, [...values, value]);
}

/** Undefined for an empty segment and for one that is not percent-encoded UTF-8: no route matches such a path. */
function decoded(segment: string): string | undefined {
  try {
    return segment === '' ? undefined : decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}

function matchOf<Endpoint>({ endpoints }: Node<Endpoint>, values: readonly string[]): Match<Endpoint> {
  const [first] = endpoints.values();
  const variables = (first?.fields ?? []).map((field, i) => [field, values[i] ?? ''] as const);
  return {
    byMethod: new Map([...endpoints].map(([httpMethod, { endpoint }]) => [httpMethod, endpoint])),
    variables,
  };
}
