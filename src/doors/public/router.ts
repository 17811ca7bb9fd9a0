import type { HttpRoute } from '../../contract/http-routes.ts';
import { percentDecoded } from './query.ts';

/** The routes of a path. */
export interface Match<Route> {
  byMethod: ReadonlyMap<string, Route>;
  /** The values of the path variables, in order, decoded. */
  values: readonly string[];
}

/** Throws if two routes have the same HTTP method and match the same paths. */
export function createRouter<Route extends HttpRoute>(routes: readonly Route[]) {
  /** Sorts a path before those that have a variable where it has a literal segment. */
  const rankOf = ({ path }: Route) => path.replace(/[^/]+/g, (part) => (part.startsWith('{') ? '1' : '0'));
  const inOrder = routes.toSorted((a, b) => rankOf(a).localeCompare(rankOf(b)));
  const forms = Map.groupBy(inOrder, ({ path }) =>
    path.replaceAll('.', '\\.').replaceAll(/\{\w+\}/g, '([^/]+)'),
  );
  const patterns = [...forms].map(([form, ofForm]) => {
    const byMethod = new Map(ofForm.map((route) => [route.httpMethod as string, route]));
    if (byMethod.size < ofForm.length)
      throw new Error(`${form} has an HTTP method that is annotated on two methods`);
    return { pattern: new RegExp(`^${form}$`), byMethod };
  });
  return {
    /** Returns the match of a path without its query, or undefined. Literal segments win over variables. */
    find(path: string): Match<Route> | undefined {
      for (const { pattern, byMethod } of patterns) {
        const values = pattern.exec(path)?.slice(1).map(percentDecoded);
        // A variable does not match a segment that cannot be decoded.
        if (values?.every((value) => value !== undefined)) return { byMethod, values };
      }
      return undefined;
    },
  };
}
