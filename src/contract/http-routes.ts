// HTTP routes read from the google.api.http annotations of a service. No library for Node serves them.

import type { DescMethodUnary, DescService } from '@bufbuild/protobuf';
import { getOption, hasOption } from '@bufbuild/protobuf';
import { http } from './gen/google/api/annotations_pb.ts';
import { isUnary } from './unary.ts';

export interface HttpRoute {
  httpMethod: 'POST' | 'PUT' | 'PATCH';
  path: string;
  method: DescMethodUnary;
  /** 201 for a method that creates a resource (AIP-133: its name begins with Create), else 200. */
  successStatus: 200 | 201;
}

/**
 * The routes of a service's annotated methods. Methods without the annotation have none.
 *
 * Supported is what the contract uses: a literal path and the whole message as the body (`body: "*"`). Any
 * other form throws and names the method, so that a contract that is only half served never starts.
 */
export function httpRoutesOf(service: DescService): HttpRoute[] {
  const routes: HttpRoute[] = [];
  for (const method of service.methods) {
    if (!hasOption(method, http)) continue;
    const refuse = (why: string): never => {
      throw new Error(`${service.typeName}.${method.name} has an unsupported google.api.http rule: ${why}`);
    };
    const rule = getOption(method, http);
    if (!isUnary(method)) return refuse('the method streams');
    const { case: verb, value: path } = rule.pattern;
    if (verb === undefined) return refuse('it names no HTTP method');
    if (verb === 'get' || verb === 'delete')
      return refuse(`"${verb}" takes its fields from the path and query`);
    if (verb === 'custom') return refuse('custom HTTP methods');
    if (rule.body !== '*') return refuse(`body is "${rule.body}", not "*"`);
    if (rule.responseBody !== '') return refuse('response_body');
    if (rule.additionalBindings.length > 0) return refuse('additional_bindings');
    if (!/^(?:\/[A-Za-z0-9_.~-]+)+$/.test(path)) return refuse(`the path "${path}" is not literal`);
    routes.push({
      httpMethod: verb.toUpperCase() as HttpRoute['httpMethod'],
      path,
      method,
      successStatus: method.name.startsWith('Create') ? 201 : 200,
    });
  }
  return routes;
}
