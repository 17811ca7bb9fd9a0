import type { HttpRoute } from '../../contract/http-routes.ts';
import { percentDecoded } from './percent-decoding.ts';

/** The routes of a path. */
export interface Match<Route> {
  /** By HTTP method. */
  byMethod: ReadonlyMap<string, Route>;
  /** The values of the path variables, in order, decoded. */
  values: readonly string[];
}

export interface Router<Route> {
  /** Returns the match of a path without its query, or undefined. Literal segments take precedence over variables. */
  find(path: string): Match<Route> | undefined;
}

/** A tree of path segments. */
interface PathSegment<Route> {
  literals: Map<string, PathSegment<Route>>;
  variable: PathSegment<Route> | undefined;
  byMethod: Map<string, Route>;
}

/** Throws if two routes have the same HTTP method and match the same paths. */
export function createRouter<Route extends HttpRoute>(routes: readonly Route[]): Router<Route> {
  const root = newSegment<Route>();
  /** Paths without variables, found by one lookup. */
  const literalPaths = new Map<string, Match<Route>>();
  for (const route of routes) {
    let node = root;
    for (const segment of route.segments) {
      if (typeof segment !== 'string') {
        node.variable ??= newSegment();
        node = node.variable;
        continue;
      }
      const next = node.literals.get(segment) ?? newSegment<Route>();
      node.literals.set(segment, next);
      node = next;
    }
    if (node.byMethod.has(route.httpMethod)) {
      throw new Error(`${route.httpMethod} ${route.path} is annotated on two methods`);
    }
    node.byMethod.set(route.httpMethod, route);
    if (route.pathFields.length === 0) literalPaths.set(route.path, { byMethod: node.byMethod, values: [] });
  }
  return {
    find(path) {
      // HTTP/2 allows paths without a leading slash. No route has one.
      if (!path.startsWith('/')) return undefined;
      return literalPaths.get(path) ?? search(root, path.split('/'), 1, []);
    },
  };
}

function newSegment<Route>(): PathSegment<Route> {
  return { literals: new Map(), variable: undefined, byMethod: new Map() };
}

function search<Route>(
  { literals, variable, byMethod }: PathSegment<Route>,
  segments: readonly string[],
  at: number,
  values: readonly string[],
): Match<Route> | undefined {
  const segment = segments[at];
  if (segment === undefined) return byMethod.size > 0 ? { byMethod, values } : undefined;
  const literal = literals.get(segment);
  const found = literal && search(literal, segments, at + 1, values);
  if (found !== undefined || variable === undefined) return found;
  const value = percentDecoded(segment);
  // A variable matches neither an empty segment nor one that cannot be decoded.
  return value === undefined || value === ''
    ? undefined
    : search(variable, segments, at + 1, [...values, value]);
}
