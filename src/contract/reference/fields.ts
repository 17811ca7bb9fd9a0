// A message's fields with their types and rules, including nested fields.

import {
  type OpenApiDocument,
  type Parameter,
  referenceOf,
  resolve,
  type Schema,
  variantsOf,
} from './document.ts';
import { Html, html } from './html.ts';
import { blockOf } from './text.ts';

export interface FieldsContext {
  document: OpenApiDocument;
  /** Messages with their own section. A field links to the section instead of repeating them. */
  sections: ReadonlySet<string>;
  /** Whether to show which fields are required. An answer always has all of them. */
  isRequest: boolean;
}

/** The id of a message's section. */
export function objectId(name: string): string {
  return `object-${name}`;
}

/** Renders the fields of a message. Each field's id begins with `idPrefix`, so that it can be linked to. */
export function fieldsOf(context: FieldsContext, schema: Schema, idPrefix: string): Html | undefined {
  return fieldsWithin(context, schema, idPrefix, []);
}

function fieldsWithin(
  context: FieldsContext,
  schema: Schema,
  idPrefix: string,
  above: readonly string[],
): Html | undefined {
  const name = referenceOf(schema);
  // A recursive message is shown once.
  if (name !== undefined && above.includes(name)) return undefined;
  const path = name === undefined ? above : [...above, name];
  const { properties, required = [] } = resolve(context.document, schema);
  if (properties === undefined) return undefined;
  const rows = Object.entries(properties).map(([field, property]) => {
    const id = `${idPrefix}-${field}`;
    const within = isLinked(context, property)
      ? undefined
      : fieldsWithin(context, messageOf(context.document, property), id, path);
    const description = property.description ?? resolve(context.document, property).description;
    return row(context, id, field, property, {
      description,
      isRequired: required.includes(field),
      within,
    });
  });
  return html`<ul class="fields" role="list">${rows}</ul>`;
}

/** Renders the parameters of an operation in the same form as fields. */
export function parametersOf(
  context: FieldsContext,
  parameters: readonly Parameter[],
  idPrefix: string,
): Html {
  const rows = parameters.map(({ name, description, required = false, schema }) =>
    row(context, `${idPrefix}-${name}`, name, schema, { description, isRequired: required }),
  );
  return html`<ul class="fields" role="list">${rows}</ul>`;
}

interface RowOptions {
  description: string | undefined;
  isRequired: boolean;
  within?: Html | undefined;
}

function row(
  context: FieldsContext,
  id: string,
  name: string,
  schema: Schema,
  { description, isRequired, within }: RowOptions,
): Html {
  const necessity = !context.isRequest
    ? undefined
    : isRequired
      ? html` <span class="required">required</span>`
      : html` <span class="optional">optional</span>`;
  const rules = rulesOf(schema, description ?? '');
  return html`<li id="${id}"><div class="field"><a class="name" href="#${id}"><code>${name}</code></a> <span class="type">${typeOf(context, schema)}</span>${necessity}</div>${blockOf(description)}${rules.length > 0 && html`<ul class="rules" role="list" aria-label="Rules">${rules.map((rule) => html`<li>${rule}</li>`)}</ul>`}${within && html`<div class="nested">${within}</div>`}</li>
`;
}

/** The message in a field: its own, its list item's, or the alternative to null. */
function messageOf(document: OpenApiDocument, schema: Schema): Schema {
  const [variant] = variantsOf(schema);
  const target = variant ?? schema;
  if (target.$ref !== undefined) return target;
  return target.items === undefined ? target : messageOf(document, target.items);
}

function isLinked({ document, sections }: FieldsContext, schema: Schema): boolean {
  const name = referenceOf(messageOf(document, schema));
  return name !== undefined && sections.has(name);
}

function typeOf(context: FieldsContext, schema: Schema): Html {
  const name = referenceOf(schema);
  if (name !== undefined) {
    return context.sections.has(name)
      ? html`<a href="#${objectId(name)}">${name}</a>`
      : typeOf(context, { ...resolve(context.document, schema), description: '' });
  }
  const variants = variantsOf(schema);
  if (variants.length > 0)
    return join(
      variants.map((variant) => typeOf(context, variant)),
      ' or ',
    );
  if (schema.items !== undefined) return html`list of ${typeOf(context, schema.items)}`;
  const types = [schema.type ?? 'any'].flat().map((type) => (type === 'array' ? 'list' : type));
  const text = types.join(' or ');
  return schema.format === undefined ? html`${text}` : html`${text}, ${schema.format}`;
}

function join(parts: readonly Html[], separator: string): Html {
  return new Html(parts.map(({ text }) => text).join(separator));
}

/** The rules of a value beyond its type, one per entry. */
function rulesOf(schema: Schema, description: string): Html[] {
  const rules: Html[] = [];
  const values = (list: readonly unknown[]) =>
    join(
      list.filter((value) => value !== null).map((value) => html`<code>${textOf(value)}</code>`),
      ', ',
    );
  const allMentioned = (list: readonly unknown[]) =>
    list.every((value) => value === null || description.includes(`- \`${value}\`: `));
  const known = schema['x-extensible-enum'];
  if (schema.enum !== undefined && !allMentioned(schema.enum))
    rules.push(html`one of ${values(schema.enum)}`);
  if (known !== undefined) {
    rules.push(allMentioned(known) ? html`more may come` : html`${values(known)}; more may come`);
  }
  if (schema.const !== undefined) rules.push(html`always ${values([schema.const])}`);
  rules.push(...rangeOf(schema.minimum, schema.maximum, ''));
  rules.push(...rangeOf(schema.minLength, schema.maxLength, 'characters'));
  rules.push(...rangeOf(schema.minItems, schema.maxItems, 'entries'));
  if (schema.maxProperties !== undefined) rules.push(html`at most ${schema.maxProperties} keys`);
  if (schema.propertyNames?.maxLength !== undefined) {
    rules.push(html`keys of at most ${schema.propertyNames.maxLength} characters`);
  }
  if (schema.pattern !== undefined) rules.push(html`matches <code>${schema.pattern}</code>`);
  const fallback = schema['x-default'] ?? schema.default;
  if (fallback !== undefined) rules.push(html`default ${values([fallback])}`);
  return rules;
}

function rangeOf(min: number | undefined, max: number | undefined, unit: string): Html[] {
  if (min === undefined && max === undefined) return [];
  const text =
    min === undefined ? `at most ${max}` : max === undefined ? `at least ${min}` : `${min} to ${max}`;
  return [html`${unit === '' ? text : `${text} ${unit}`}`];
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
