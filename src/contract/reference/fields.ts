// A message's fields with their types and rules. Nested fields and patterns are folded.

import {
  type Described,
  type OpenApiDocument,
  type Parameter,
  referenceOf,
  resolve,
  type Schema,
} from './document.ts';
import { Html, html } from './html.ts';
import { blockOf } from './text.ts';

/** Something that the search finds. The owner is what it is a part of; by the text it is found, too. */
type SearchEntry = [id: string, title: string, kind: string, owner: string, text: string];

export interface PageContext {
  document: OpenApiDocument;
  /** Messages with their own section. A field links to the section instead of repeating them. */
  sections: ReadonlySet<string>;
  /** What the search finds. Each part of the page adds itself. */
  index: SearchEntry[];
}

export interface FieldsContext extends PageContext {
  /** Whether to show which fields are required. An answer always has all of them. */
  isRequest: boolean;
  /** What the fields belong to, as the search shows it. */
  owner: string;
}

/** The id of a message's section. */
export function objectId(name: string): string {
  return `object-${name}`;
}

/** Renders the fields of a message. Each field's id begins with `idPrefix`, so that it can be linked to. */
export function fieldsOf(context: FieldsContext, schema: Schema, idPrefix: string, above: string[] = []) {
  const name = referenceOf(schema);
  // A recursive message is shown once.
  if (name !== undefined && above.includes(name)) return undefined;
  const path = name === undefined ? above : [...above, name];
  const { properties, required = [] } = resolve(context.document, schema);
  if (properties === undefined) return undefined;
  const rows = Object.entries(properties).map(([field, property]) => {
    const { description = resolve(context.document, property).description } = property;
    const options = { description, schema: property, required: required.includes(field) };
    return row(context, `${idPrefix}-${field}`, field, options, path);
  });
  return html`<ul class="fields" role="list">${rows}</ul>`;
}

/** Renders the parameters of an operation in the same form as fields. */
export function parametersOf(context: FieldsContext, parameters: readonly Parameter[], idPrefix: string) {
  const rows = parameters.map((each) => row(context, `${idPrefix}-${each.name}`, each.name, each));
  return html`<ul class="fields" role="list">${rows}</ul>`;
}

function row(context: FieldsContext, id: string, name: string, field: Described, path: string[] = []): Html {
  const { description = '', schema, required } = field;
  const [text = ''] = description.replace(/[`*]|\n.*/gs, '').split(/(?<=\.) /);
  context.index.push([id, name, 'field', context.owner, text]);
  // The message in the field, or in the items of its list.
  const inner = schema.items ?? schema;
  const isLinked = context.sections.has(referenceOf(inner) ?? '');
  const within = isLinked ? undefined : fieldsOf(context, inner, id, path);
  const necessity = html` <span class="${required ? 'required' : 'soft'}">${required ? 'required' : 'optional'}</span>`;
  const rules = rulesOf(schema, description);
  return html`<li id="${id}"><div class="field"><a class="name" href="#${id}"><code>${name}</code></a> <span class="type soft">${typeOf(context, schema)}</span>${context.isRequest && necessity}</div>${blockOf(description)}${rules.length > 0 && html`<ul class="rules soft" role="list" aria-label="Rules">${rules.map((rule) => html`<li>${rule}</li>`)}</ul>`}${within && html`<details class="nested"><summary>Fields of ${name}</summary>${within}</details>`}</li>
`;
}

function typeOf(context: FieldsContext, schema: Schema): Html {
  const name = referenceOf(schema);
  if (name !== undefined) {
    return context.sections.has(name)
      ? html`<a href="#${objectId(name)}">${name}</a>`
      : typeOf(context, resolve(context.document, schema));
  }
  if (schema.items !== undefined) return html`list of ${typeOf(context, schema.items)}`;
  if (schema.type === undefined) throw new Error(`the page cannot show ${JSON.stringify(schema)}`);
  const text = [schema.type].flat().join(' or ');
  return html`${schema.format === undefined ? text : `${text}, ${schema.format}`}`;
}

/** The rules of a value beyond its type, one per entry. */
function rulesOf(schema: Schema, description: string): Html[] {
  const rules: Html[] = [];
  const values = (list: readonly unknown[]) => {
    const shown = list
      .filter((value) => value !== null)
      .map((value) => html`<code>${typeof value === 'object' ? JSON.stringify(value) : `${value}`}</code>`);
    return new Html(shown.map(({ text }) => text).join(', '));
  };
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
  rules.push(...rangeOf(schema.minLength, schema.maxLength, ' characters'));
  rules.push(...rangeOf(schema.minItems, schema.maxItems, ' entries'));
  if (schema.maxProperties !== undefined) rules.push(html`at most ${schema.maxProperties} keys`);
  const keyLength = schema.propertyNames?.maxLength;
  if (keyLength !== undefined) rules.push(html`keys of at most ${keyLength} characters`);
  const fallback = schema['x-default'] ?? schema.default;
  if (fallback !== undefined) rules.push(html`default ${values([fallback])}`);
  const { pattern } = schema;
  if (pattern) rules.push(html`<details><summary>pattern</summary><code>${pattern}</code></details>`);
  return rules;
}

function rangeOf(min: number | undefined, max: number | undefined, unit: string): Html[] {
  if (min === undefined && max === undefined) return [];
  const ofOne = min === undefined ? `at most ${max}` : `at least ${min}`;
  return [html`${min === undefined || max === undefined ? ofOne : `${min} to ${max}`}${unit}`];
}
