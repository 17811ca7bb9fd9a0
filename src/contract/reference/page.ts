// Renders an OpenAPI document and Markdown guides as a reference page, readable without JavaScript.

import * as openapi from './document.ts';
import { credentialOf, exampleOfParameter, samplesOf } from './samples.ts';
import type { Section } from './text.ts';
import { blockOf, codeOnly, Html, html, inlineOf, jsonBlock, sectionsOf } from './text.ts';

interface PageOptions {
  document: openapi.OpenApiDocument;
  /** Each begins with a heading, which is its title. */
  guides?: readonly string[];
  changelog?: string;
}

/** Returns the page and its search index. Throws if the document refers to a missing component. */
export function renderPage({ document, guides = [], changelog = '' }: PageOptions) {
  const { title, version, description } = document.info;
  const topics = topicsOf(document);
  const objects = new Set(topics.flatMap((topic) => topic.objects));
  const context: PageContext = { document, sections: objects, index: [] };
  const [lead, ...basics] = sectionsOf(`${description}\n\n${changelog}`);
  const parts = guides.map(sectionsOf);
  const main = [
    ...parts.map((part) => guideSection(context, part)),
    ...basics.map((section) => guideSection(context, [section])),
    ...topics.map((topic) => topicSection(context, topic)),
    errorSection(context),
  ];
  const ofSection = ({ title }: Section): Item => [slugOf(title), title];
  const errors = Object.keys(document['x-errors']).map(
    (code): Item => [errorId(code), html`<code>${code}</code>`],
  );
  const contents: Group[] = [
    ['Guides', parts.flatMap((part) => part.slice(0, 1)).map(ofSection)],
    ['Basics', basics.map(ofSection)],
    ...topics.map((topic): Group => [topic.title, itemsOf(topic)]),
    ['Errors', [['errors', 'Overview'], ...errors]],
  ];
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}: API reference</title>
<link rel="icon" type="image/svg+xml" href="/docs/icon.svg">
<link rel="stylesheet" href="/docs/page.css">
<script src="/docs/page.js"></script>
<script src="/docs/search.js" defer></script>
<!--try-it--><script src="/docs/try-it.js" defer></script><!--/try-it-->
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
<header class="top">
<a class="title" href="#content">${title} <span class="soft">API reference</span></a>
<button type="button" class="find" hidden aria-haspopup="dialog" aria-keyshortcuts="/ Control+K">Search <kbd>/</kbd></button>
<a class="wide soft" href="/openapi.json">openapi.json</a>
<button type="button" class="theme" aria-label="Light or dark" hidden>◐</button>
<button type="button" class="menu" popovertarget="nav">Menu</button>
</header>
<nav id="nav" popover aria-label="Contents">
${contents.map(groupOf)}</nav>
<main id="content" tabindex="-1">
<section class="row"><div class="text"><h1>${title}</h1><p class="soft">${changelog === '' ? `Version ${version}` : html`<a href="#changelog">Version ${version}</a>`}</p>${lead?.body}</div>${lead?.side && html`<div class="side">${lead.side}</div>`}</section>
${main}
</main>
<dialog class="search" aria-label="Search"><input role="combobox" aria-label="Search the reference" aria-expanded="true" aria-controls="found" aria-autocomplete="list" placeholder="An endpoint, a field, an error, a guide" autocomplete="off" spellcheck="false"><ul id="found" role="listbox" aria-label="Results"></ul><p class="soft" role="status"></p></dialog>
</body>
</html>
`.text;
  return { page, index: context.index };
}

type Item = [id: string, label: Html | string];
type Group = [title: string, items: Item[]];

function itemsOf({ id, routes, objects }: Topic): Item[] {
  const operations = routes.map(({ method, operation }): Item => {
    return [operation.operationId, html`${methodOf(method)}${titleOf(operation)}`];
  });
  const rest = objects.map((name): Item => [objectId(name), `The ${nameOf(name)} object`]);
  return [[id, 'Overview'], ...operations, ...rest];
}

/** A group of the table of contents. The browser keeps only one open. */
function groupOf([title, items]: Group): Html {
  const rows = items.map(([id, label]) => html`<li><a href="#${id}">${label}</a></li>`);
  return html`${rows.length > 0 && html`<details name="contents"><summary>${title}</summary><ul role="list">${rows}</ul></details>`}
`;
}

interface Topic {
  id: string;
  title: string;
  description: string | undefined;
  routes: openapi.Route[];
  /** Messages returned by its operations, each shown once on the page. */
  objects: string[];
}

/** The operations by their first tag, with the messages used only in answers. */
function topicsOf(document: openapi.OpenApiDocument): Topic[] {
  const routes = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([verb, operation]) => ({ method: verb.toUpperCase(), path, operation })),
  );
  const taken = new Set(['Error']);
  const homeOf = (name: string) =>
    document.tags.find((tag) => slugOf(tag.name) === slugOf(`${nameOf(name)}s`))?.name;
  /** The messages that a part of the document refers to, directly or not, and no other topic has. */
  const objectsIn = (part: object, topic: string): string[] =>
    [...JSON.stringify(part).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)].flatMap(
      ([, name = '']) => {
        if (taken.has(name) || (homeOf(name) ?? topic) !== topic) return [];
        taken.add(name);
        return [name, ...objectsIn(openapi.resolve(document, { $ref: name }), topic)];
      },
    );
  // An answer that is no resource is shown with its operation.
  const answers = routes.map(({ operation }) => `${capitalized(operation.operationId)}Response`);
  return document.tags.map(({ name, description }) => {
    const own = routes.filter(({ operation }) => operation.tags[0] === name);
    const successes = own.map(({ operation }) => openapi.successesOf(operation));
    const objects = objectsIn(successes, name).filter((object) => !answers.includes(object));
    return { id: slugOf(name), title: name, description, routes: own, objects };
  });
}

/** A guide. Its first section has its title; the others are parts of it. */
function guideSection({ index }: PageContext, parts: readonly Section[]): Html {
  const owner = parts[0]?.title ?? '';
  const guideId = slugOf(owner);
  const rows = parts.map(({ title, body, side }, i) => {
    const id = i === 0 ? guideId : `${guideId}-${slugOf(title)}`;
    const text = body.text.replace(/<[^>]*>|\s+/g, ' ').slice(0, 160);
    index.push([id, title, 'guide', i === 0 ? '' : owner, text]);
    const own = i > 0 && html` id="${id}"`;
    return html`<div class="row"${own}><div class="text">${heading(i === 0 ? 2 : 3, id, title)}${body}</div>${side && html`<div class="side">${side}</div>`}</div>`;
  });
  return html`<section class="topic" id="${guideId}" aria-labelledby="${guideId}-title">${rows}</section>
`;
}

function topicSection(context: PageContext, { id, title, description, routes, objects }: Topic): Html {
  return html`<section class="topic" id="${id}" aria-labelledby="${id}-title">
<div class="row"><div class="text">${heading(2, id, title)}${blockOf(description)}</div><div class="side"><ul role="list" aria-label="Endpoints">${routes.map(
    ({ method, path, operation }) =>
      html`<li>${methodOf(method)} <a href="#${operation.operationId}"><code>${path}</code></a></li>`,
  )}</ul></div></div>
${routes.map((route) => operationSection(context, route))}${objects.map((name) => objectSection(context, name))}</section>
`;
}

function objectSection(context: PageContext, name: string): Html {
  const id = objectId(name);
  const { document, index } = context;
  const schema = openapi.resolve(document, { $ref: name });
  const owner = `${capitalized(nameOf(name))} object`;
  index.push([id, `The ${nameOf(name)} object`, 'object', '', '']);
  return html`<section class="row object" id="${id}" aria-labelledby="${id}-title">
<div class="text">${heading(3, id, `The ${nameOf(name)} object`)}${blockOf(schema.description)}${fieldsOf({ ...context, isRequest: false, owner }, { ...schema }, id)}</div>
<div class="side">${jsonBlock(openapi.exampleOf(document, { schema: { $ref: name } }), owner)}</div>
</section>
`;
}

function operationSection(page: PageContext, route: openapi.Route): Html {
  const { document, index } = page;
  const { method, path, operation } = route;
  const { operationId: id, summary, parameters = [] } = operation;
  const context: FieldsContext = { ...page, isRequest: true, owner: titleOf(operation) };
  index.push([id, context.owner, 'endpoint', `${method} ${path}`, summary]);
  const body = openapi.jsonOf(operation.requestBody?.content);
  const named = (place: openapi.Parameter['in'], title: string) => {
    const own = parameters.filter((parameter) => parameter.in === place);
    return own.length > 0 && html`<h4>${title}</h4>${parametersOf(context, own, `${id}-${place}`)}`;
  };
  const answers = openapi.successesOf(operation).map(([status, { content }]) => {
    const example = openapi.exampleOf(document, openapi.jsonOf(content));
    return example !== undefined && jsonBlock(example, `Answer ${status}`);
  });
  return html`<section class="row operation" id="${id}" aria-labelledby="${id}-title">
<div class="head">${heading(3, id, context.owner)}
<p class="endpoint">${methodOf(method)} <code>${path}</code></p></div>
<div class="side">${samples(document, route)}<!--try-it-->${tryItForm(document, route)}<!--/try-it-->${answers}</div>
<div class="text"><p>${inlineOf(summary)}</p>${blockOf(operation.description)}
${named('path', 'Path')}${named('query', 'Query')}${named('header', 'Headers')}
${body && html`<h4>Body</h4>${blockOf(openapi.resolve(document, body.schema).description)}${fieldsOf(context, body.schema, `${id}-body`)}`}
<h4>Answer</h4>${openapi.successesOf(operation).map((success) => successOf(context, id, success))}
${refusalsOf(page, operation)}
</div>
</section>
`;
}

function successOf(context: FieldsContext, id: string, [status, response]: [string, openapi.Response]): Html {
  const { document, sections } = context;
  const schema = openapi.jsonOf(response.content)?.schema;
  const name = (schema && openapi.referenceOf(schema)) ?? '';
  const link =
    sections.has(name) && html` The body is <a href="#${objectId(name)}">the ${nameOf(name)} object</a>.`;
  const fields =
    schema && !sections.has(name) && fieldsOf({ ...context, isRequest: false }, schema, `${id}-${status}`);
  const headers = Object.entries(response.headers ?? {}).map(([header, value]) => {
    const { description = '' } = document.components.headers?.[openapi.referenceOf(value) ?? ''] ?? value;
    return html`<li><code>${header}</code> ${inlineOf(description)}</li>`;
  });
  return html`<p><span class="status good">${status}</span> ${inlineOf(response.description)}${link}</p>${fields}${headers.length > 0 && html`<details class="nested"><summary>Headers</summary><ul>${headers}</ul></details>`}`;
}

/** The error codes of an operation, each as a link to its entry. */
function refusalsOf({ document }: PageContext, operation: openapi.Operation): Html {
  const refusals = Object.entries(operation.responses).filter(([status]) => !status.startsWith('2'));
  const rows = refusals.map(([status, { content, description }]) => {
    const codes = [...JSON.stringify(content ?? {}).matchAll(/"code":"(\w+)"/g)].map(([, code = '']) => code);
    const known = codes.filter((code) => code in document['x-errors']);
    const links = known.map((code) => html`<a href="#${errorId(code)}"><code>${code}</code></a> `);
    return html`<li><span class="status">${status}</span> ${links.length > 0 ? links : inlineOf(description)}</li>`;
  });
  return html`<details class="nested"><summary>Errors</summary><ul role="list">${rows}</ul></details>`;
}

/** One set of radio buttons per block. It works by keyboard and without JavaScript. */
function samples(document: openapi.OpenApiDocument, route: openapi.Route): Html {
  const id = route.operation.operationId;
  const tabs = Object.entries(samplesOf(document, route)).map(
    ([language, code], i) =>
      html`<input type="radio" name="${id}-language" id="${id}-${language}" value="${language}"${i === 0 && html` checked`}><label for="${id}-${language}">${language}</label><div class="panel" data-language="${language}">${codeOnly(code, language, `${language} sample`)}</div>`,
  );
  return html`<fieldset class="code samples"><legend>Language of the sample: ${titleOf(route.operation)}</legend>${tabs}</fieldset>`;
}

/** The form that sends an operation's request. Hidden until try-it.ts has checked that the page may send. */
function tryItForm(document: openapi.OpenApiDocument, { method, path, operation }: openapi.Route): Html {
  const id = `${operation.operationId}-try`;
  const body = openapi.exampleOf(document, openapi.jsonOf(operation.requestBody?.content));
  const inputs = (operation.parameters ?? []).map(
    (parameter) =>
      html`<label for="${id}-${parameter.name}">${parameter.name}</label><input id="${id}-${parameter.name}" name="${parameter.name}" data-in="${parameter.in}" value="${parameter.in !== 'query' && exampleOfParameter(parameter)}" placeholder="${exampleOfParameter(parameter)}" autocomplete="off" autocapitalize="off" spellcheck="false"${parameter.required === true && html` required`}>`,
  );
  const credential = credentialOf(document, operation);
  const text = JSON.stringify(body, null, 2);
  return html`<details class="try" hidden><summary>Try it</summary>
<form data-method="${method}" data-path="${path}" autocomplete="off" aria-label="Try ${method} ${path}">
<label for="${id}-key">${credential?.label}</label><input id="${id}-key" class="key" data-in="key" placeholder="${credential?.placeholder}" autocomplete="off" autocapitalize="off" spellcheck="false" required aria-describedby="${id}-note">
<p class="note" id="${id}-note">It stays in the memory of this page and is gone when you leave. ${credential?.label === 'Client secret' ? html`The answer of a creation has one.` : html`The demo merchant's key is in <code>.data/demo.json</code>.`}</p>
${inputs}
${body !== undefined && html`<label for="${id}-body">Body</label><textarea id="${id}-body" data-in="body" rows="${text.split('\n').length}" autocomplete="off" autocapitalize="off" spellcheck="false">${text}</textarea>`}
<button type="submit">Send ${method}</button>
<p class="said" role="status"></p><div class="result"></div>
</form></details>`;
}

function errorSection(context: PageContext): Html {
  const { document, index } = context;
  const error = openapi.resolve(document, { $ref: 'Error' });
  const fields: FieldsContext = { ...context, sections: new Set(), isRequest: false, owner: 'Error' };
  index.push(['errors', 'Errors', 'guide', '', '']);
  const entries = Object.entries(document['x-errors']).map(([code, entry]) => {
    const { status, retryable, message, description, example } = entry;
    const id = errorId(code);
    index.push([id, code, 'error', `${status}`, message]);
    return html`<section class="row error" id="${id}" aria-labelledby="${id}-title">
<div class="text">${heading(3, id, html`<code>${code}</code>`)}
<p><span class="status">${status}</span> <strong>${retryable ? 'retry' : 'do not retry'}</strong></p>
<p>${message}</p>${blockOf(description)}</div>
<div class="side">${jsonBlock(example, `Answer ${status}`)}</div>
</section>
`;
  });
  return html`<section class="topic" id="errors" aria-labelledby="errors-title">
<div class="row"><div class="text">${heading(2, 'errors', 'Errors')}${blockOf(error.description)}${fieldsOf(fields, { ...error.properties?.error }, 'error-body')}</div></div>
${entries}
</section>
`;
}

function slugOf(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');
}

const errorId = (code: string) => `error-${code}`;

function heading(level: 2 | 3, id: string, title: Html | string): Html {
  const link = html`<a class="anchor" href="#${id}">${title}</a>`;
  return level === 2 ? html`<h2 id="${id}-title">${link}</h2>` : html`<h3 id="${id}-title">${link}</h3>`;
}

function methodOf(method: string): Html {
  return html`<span class="verb ${method.toLowerCase()}">${method}</span>`;
}

/** Returns "Create payment intent" for `createPaymentIntent`. */
function titleOf({ operationId }: openapi.Operation): string {
  return capitalized(nameOf(operationId));
}

/** Returns "payment intent" for `PaymentIntent`. */
function nameOf(name: string): string {
  return name.replace(/(?<=[a-z\d])(?=[A-Z])/g, ' ').toLowerCase();
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** An entry of the search. `owner` is what it is part of. `text` is searched too. */
type SearchEntry = [id: string, title: string, kind: string, owner: string, text: string];

interface PageContext {
  document: openapi.OpenApiDocument;
  /** Messages with their own section. A field links to it instead of repeating them. */
  sections: ReadonlySet<string>;
  /** The search index. Each part of the page adds itself. */
  index: SearchEntry[];
}

interface FieldsContext extends PageContext {
  /** Whether to show which fields are required. Answers always have the required ones. */
  isRequest: boolean;
  /** What the fields belong to, as the search shows it. */
  owner: string;
}

/** The id of a message's section. */
const objectId = (name: string) => `object-${name}`;

/** Renders the fields of a message. Each field's id begins with `idPrefix`, so that it can be linked to. */
function fieldsOf(context: FieldsContext, schema: openapi.Schema, idPrefix: string, above: string[] = []) {
  const name = openapi.referenceOf(schema);
  // A recursive message is shown once.
  if (name !== undefined && above.includes(name)) return undefined;
  const path = name === undefined ? above : [...above, name];
  const { properties, required = [] } = openapi.resolve(context.document, schema);
  if (properties === undefined) return undefined;
  const rows = Object.entries(properties).map(([field, property]) => {
    const { description = openapi.resolve(context.document, property).description } = property;
    const options = { description, schema: property, required: required.includes(field) };
    return row(context, `${idPrefix}-${field}`, field, options, path);
  });
  return html`<ul class="fields" role="list">${rows}</ul>`;
}

/** Renders the parameters of an operation in the same form as fields. */
function parametersOf(context: FieldsContext, parameters: readonly openapi.Parameter[], idPrefix: string) {
  const rows = parameters.map((each) => row(context, `${idPrefix}-${each.name}`, each.name, each, []));
  return html`<ul class="fields" role="list">${rows}</ul>`;
}

function row(
  context: FieldsContext,
  id: string,
  name: string,
  field: openapi.Described,
  path: string[],
): Html {
  const { description = '', schema, required } = field;
  const [text = ''] = description.replace(/[`*]|\n.*/gs, '').split(/(?<=\.) /);
  context.index.push([id, name, 'field', context.owner, text]);
  // The message in the field, or in the items of its list.
  const inner = schema.items ?? schema;
  const isLinked = context.sections.has(openapi.referenceOf(inner) ?? '');
  const within = isLinked ? undefined : fieldsOf(context, inner, id, path);
  const necessity = html` <span class="${required ? 'required' : 'soft'}">${required ? 'required' : 'optional'}</span>`;
  const rules = rulesOf(schema, description);
  return html`<li id="${id}"><div class="field"><a class="name" href="#${id}"><code>${name}</code></a> <span class="type soft">${typeOf(context, schema)}</span>${context.isRequest && necessity}</div>${blockOf(description)}${rules.length > 0 && html`<ul class="rules soft" role="list" aria-label="Rules">${rules.map((rule) => html`<li>${rule}</li>`)}</ul>`}${within && html`<details class="nested"><summary>Fields of ${name}</summary>${within}</details>`}</li>
`;
}

function typeOf(context: FieldsContext, schema: openapi.Schema): Html {
  const name = openapi.referenceOf(schema);
  if (name !== undefined) {
    return context.sections.has(name)
      ? html`<a href="#${objectId(name)}">${name}</a>`
      : typeOf(context, openapi.resolve(context.document, schema));
  }
  if (schema.items !== undefined) return html`list of ${typeOf(context, schema.items)}`;
  if (schema.type === undefined) throw new Error(`the page cannot show ${JSON.stringify(schema)}`);
  const text = [schema.type].flat().join(' or ');
  // Every integer has the same size for a reader.
  const format = schema.format === 'int64' ? undefined : schema.format;
  return html`${format === undefined ? text : `${text}, ${format}`}`;
}

/** The rules of a value beyond its type, one per entry. */
function rulesOf(schema: openapi.Schema, description: string): Html[] {
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
