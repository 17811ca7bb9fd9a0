// The parts of an OpenAPI 3.1 document that the reference page shows.

export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  'x-extensible-enum'?: unknown[];
  'x-default'?: unknown;
  default?: unknown;
  example?: unknown;
  examples?: unknown[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  maxProperties?: number;
  propertyNames?: Schema;
  pattern?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  description?: string;
  required?: boolean;
  schema: Schema;
  example?: unknown;
}

export interface Header {
  $ref?: string;
  description?: string;
  schema?: Schema;
  example?: unknown;
}

export interface Media {
  schema: Schema;
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}

type Content = Record<string, Media>;

export interface Response {
  description: string;
  headers?: Record<string, Header>;
  content?: Content;
}

export interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Content };
  responses: Record<string, Response>;
  security?: object[];
}

/** An error code, as described in the document's `x-errors`. */
export interface ErrorEntry {
  status: number;
  retryable: boolean;
  message: string;
  description: string;
  example: unknown;
}

export interface OpenApiDocument {
  info: { title: string; version: string; description: string };
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, Operation>>;
  security?: object[];
  components: {
    schemas: Record<string, Schema>;
    headers?: Record<string, Header>;
  };
  'x-errors': Record<string, ErrorEntry>;
}

/** An operation with its method and path. */
export interface Route {
  method: string;
  path: string;
  operation: Operation;
}

export function routesOf(document: OpenApiDocument): Route[] {
  return Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operation,
    })),
  );
}

/** The name of the component that a schema refers to. */
export function referenceOf({ $ref }: { $ref?: string }): string | undefined {
  return $ref?.slice($ref.lastIndexOf('/') + 1);
}

/** A schema, or the component that it refers to. Throws if there is none. */
export function resolve(document: OpenApiDocument, schema: Schema): Schema {
  const name = referenceOf(schema);
  if (name === undefined) return schema;
  const component = document.components.schemas[name];
  if (component === undefined) throw new Error(`the document has no schema ${name}`);
  return component;
}

export function resolveHeader(document: OpenApiDocument, header: Header): Header {
  const name = referenceOf(header);
  return name === undefined ? header : (document.components.headers?.[name] ?? header);
}

/** The JSON media type of a body. */
export function jsonOf(content: Content | undefined): Media | undefined {
  return content?.['application/json'];
}

/** The example of a body: its own, or one built from its schema's examples. Undefined if there is none. */
export function exampleOf(document: OpenApiDocument, media: Media | undefined): unknown {
  if (media === undefined) return undefined;
  if (media.example !== undefined) return media.example;
  const [first] = Object.values(media.examples ?? {});
  return first?.value ?? exampleOfSchema(document, media.schema, []);
}

function exampleOfSchema(document: OpenApiDocument, schema: Schema, above: readonly string[]): unknown {
  const name = referenceOf(schema);
  // A recursive message.
  if (name !== undefined && above.includes(name)) return undefined;
  const path = name === undefined ? above : [...above, name];
  const target = resolve(document, schema);
  const own = target.examples?.[0] ?? target.example ?? target.const;
  if (own !== undefined) return own;
  const known = target.enum ?? target['x-extensible-enum'];
  if (known !== undefined) return known[0];
  if (target.properties !== undefined) {
    const entries = Object.entries(target.properties).map(([key, property]) => [
      key,
      exampleOfSchema(document, property, path),
    ]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  }
  if (target.items !== undefined) {
    const item = exampleOfSchema(document, target.items, path);
    return item === undefined ? [] : [item];
  }
  const [variant] = variantsOf(target);
  return variant === undefined ? undefined : exampleOfSchema(document, variant, path);
}

/** The alternative schemas of a value, without `null`. */
export function variantsOf({ anyOf, oneOf, allOf }: Schema): Schema[] {
  return (anyOf ?? oneOf ?? allOf ?? []).filter(({ type }) => type !== 'null');
}
