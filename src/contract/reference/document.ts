// The parts of an OpenAPI 3.1 document that the reference page shows.

type Text = '$ref' | 'format' | 'description' | 'pattern';
type Limit = 'minimum' | 'maximum' | 'minLength' | 'maxLength' | 'minItems' | 'maxItems' | 'maxProperties';
type Values = 'enum' | 'x-extensible-enum' | 'examples';

export interface Schema
  extends Partial<Record<Text, string> & Record<Limit, number> & Record<Values, unknown[]>> {
  type?: string | string[];
  const?: unknown;
  default?: unknown;
  'x-default'?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
  propertyNames?: Schema;
  items?: Schema;
}

/** A field or a parameter. */
export type Described = { schema: Schema; description?: string | undefined; required?: boolean };
export type Parameter = Described & { name: string; in: 'path' | 'query' | 'header'; example?: unknown };

type Media = { schema: Schema; example?: unknown; examples?: Record<string, { value: unknown }> };
type Content = Record<string, Media>;
export type Response = { description: string; headers?: Record<string, Schema>; content?: Content };

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
type Refusal = { status: number; retryable: boolean; message: string; description: string; example: unknown };

export interface OpenApiDocument {
  info: Record<'title' | 'version' | 'description', string>;
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, Operation>>;
  security?: object[];
  components: { schemas: Record<string, Schema>; headers?: Record<string, Schema> };
  'x-errors': Record<string, Refusal>;
}

/** An operation with its method and path. */
export type Route = { method: string; path: string; operation: Operation };

export function successesOf(operation: Operation): [string, Response][] {
  return Object.entries(operation.responses).filter(([status]) => status.startsWith('2'));
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

/** The JSON media type of a body. */
export function jsonOf(content: Content | undefined): Media | undefined {
  return content?.['application/json'];
}

/** The example of a body: its own, or one built from its schema's examples. Undefined if there is none. */
export function exampleOf(document: OpenApiDocument, media: Media | undefined): unknown {
  return media?.example ?? (media && exampleOfSchema(document, media.schema, []));
}

function exampleOfSchema(document: OpenApiDocument, schema: Schema, above: readonly Schema[]): unknown {
  const target = resolve(document, schema);
  const { examples = [], enum: words, 'x-extensible-enum': known, items, properties } = target;
  const own = examples[0] ?? target.const ?? (words ?? known)?.[0];
  // A recursive message has no example.
  if (own !== undefined || above.includes(target)) return own;
  const within = (inner: Schema) => exampleOfSchema(document, inner, [...above, target]);
  if (items !== undefined) return [within(items)].filter((item) => item !== undefined);
  const entries = Object.entries(properties ?? {}).map(([name, inner]) => [name, within(inner)]);
  return properties && Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}
