// Reads HTTP routes from a service's google.api.http annotations. No Node.js library supports them.

import type { DescField, DescMethodUnary, DescService } from '@bufbuild/protobuf';
import { getOption, hasOption, ScalarType } from '@bufbuild/protobuf';
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import { http } from './gen/google/api/annotations_pb.ts';
import { isUnary } from './unary.ts';

export interface HttpRoute {
  httpMethod: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** The path as annotated: `/v1/payment_intents/{id}/cancel`. */
  path: string;
  /** The fields that the path's variables fill, in their order. */
  pathFields: readonly DescField[];
  method: DescMethodUnary;
  /** True if the fields that are not in the path come in the body, false if they come in the query. */
  hasBody: boolean;
  /** The fields allowed in the query; none if there is a body. */
  queryFields: readonly DescField[];
  /** 201 for a method that creates a resource (AIP-133: its name begins with Create), else 200. */
  successStatus: 200 | 201;
}

/**
 * Returns the routes of a service's annotated methods. Methods without the annotation have none.
 *
 * A path has literal segments and variables of one segment, `{id}`, each a string field of the request. The
 * other fields come in the body (`body: "*"`) or else in the query. Any other form throws an error with the
 * method's name, so that the service does not start with a partly supported contract.
 */
export function httpRoutesOf(service: DescService): HttpRoute[] {
  return service.methods
    .filter((method) => hasOption(method, http))
    .map((method) => {
      try {
        if (!isUnary(method)) throw new Error('the method streams');
        return routeOf(method);
      } catch (error) {
        const why = error instanceof Error ? error.message : error;
        throw new Error(`${service.typeName}.${method.name} has an unsupported google.api.http rule: ${why}`);
      }
    });
}

function routeOf(method: DescMethodUnary): HttpRoute {
  const rule = getOption(method, http);
  const { case: verb, value: path } = rule.pattern;
  if (verb === undefined) throw new Error('it names no HTTP method');
  if (verb === 'custom') throw new Error('custom HTTP methods');
  if (rule.body !== '*' && rule.body !== '') throw new Error(`body is "${rule.body}", not "*" or absent`);
  if (rule.responseBody !== '') throw new Error('response_body');
  if (rule.additionalBindings.length > 0) throw new Error('additional_bindings');
  const hasBody = rule.body === '*';
  if (hasBody && verb === 'get') throw new Error('GET with a body');
  const pathFields = pathFieldsOf(path, method);
  if (new Set(pathFields).size < pathFields.length) throw new Error(`the path "${path}" takes a field twice`);
  const queryFields = hasBody ? [] : method.input.fields.filter((field) => !pathFields.includes(field));
  for (const field of queryFields) assertFitsQuery(field);
  return {
    httpMethod: verb.toUpperCase() as HttpRoute['httpMethod'],
    path,
    pathFields,
    method,
    hasBody,
    queryFields,
    successStatus: method.name.startsWith('Create') ? 201 : 200,
  };
}

function pathFieldsOf(path: string, method: DescMethodUnary): DescField[] {
  if (!/^(?:\/(?:[A-Za-z0-9_.~-]+|\{[a-z0-9_]+\}))+$/.test(path)) {
    throw new Error(`the path "${path}" has more than literal segments and variables of one segment`);
  }
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => {
    const field = method.input.fields.find((candidate) => candidate.name === name);
    if (field?.fieldKind !== 'scalar' || field.scalar !== ScalarType.STRING) {
      throw new Error(`the path takes "${name}", which is not a string field of ${method.input.typeName}`);
    }
    return field;
  });
}

/** A query can hold scalars, enums and times, each at most once. */
function assertFitsQuery(field: DescField): void {
  const fits =
    field.fieldKind === 'scalar' ||
    field.fieldKind === 'enum' ||
    (field.fieldKind === 'message' && field.message.typeName === 'google.protobuf.Timestamp');
  if (!fits) throw new Error(`"${field.name}" would come in the query, which has no form for it`);
}

/** A method not marked as safe to repeat takes an idempotency key, which makes it safe. */
export function takesIdempotencyKey({ method }: HttpRoute): boolean {
  return method.idempotency === MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
}
