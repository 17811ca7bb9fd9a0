// Renders the reference page of an OpenAPI document as static HTML, readable without JavaScript. It depends only on
// OpenAPI, not on this service's operations.

import {
  type ErrorEntry,
  exampleOf,
  jsonOf,
  type OpenApiDocument,
  type Operation,
  type Parameter,
  type Response,
  type Route,
  referenceOf,
  resolve,
  resolveHeader,
  routesOf,
  type Schema,
} from './document.ts';
import { type FieldsContext, fieldsOf, objectId, parametersOf } from './fields.ts';
import { type Html, html } from './html.ts';
import { samplesOf } from './samples.ts';
import { blockOf, codeOnly, inlineOf, jsonBlock, type Section, sectionsOf, slugOf } from './text.ts';
import { tryItForm } from './try-it-form.ts';

interface Topic {
  id: string;
  title: string;
  description: string | undefined;
  routes: Route[];
  /** Messages returned by its operations, each shown once on the page. */
  objects: string[];
}

interface Page {
  document: OpenApiDocument;
  topics: Topic[];
  sections: ReadonlySet<string>;
}

/** Renders the whole page. Throws if the document has a reference to a missing component. */
export function renderPage(document: OpenApiDocument): string {
  const topics = topicsOf(document);
  const page = { document, topics, sections: new Set(topics.flatMap(({ objects }) => objects)) };
  const { title, version, description } = document.info;
  const { lead, sections: guide } = sectionsOf(description);
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}: API reference</title>
<link rel="icon" type="image/svg+xml" href="/docs/icon.svg">
<link rel="stylesheet" href="/docs/page.css">
<script src="/docs/page.js" defer></script>
<!--try-it--><script src="/docs/try-it.js" defer></script><!--/try-it-->
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
<header class="top">
<a class="title" href="#content">${title} <span>API reference</span></a>
<a class="document" href="/openapi.json">openapi.json</a>
<button type="button" class="menu" popovertarget="nav">Contents</button>
</header>
${navigation(page, guide)}
<main id="content" tabindex="-1">
<div class="row"><div class="text"><h1>${title}</h1><p class="version">Version ${version}</p>${lead}</div></div>
${guide.map(guideSection)}
${topics.map((topic) => topicSection(page, topic))}
${errorSection(document)}
</main>
</body>
</html>
`.text;
}

/** The operations by their first tag, with the messages used only in answers. */
function topicsOf(document: OpenApiDocument): Topic[] {
  const routes = routesOf(document);
  const taken = new Set<string>(['Error']);
  return document.tags.map(({ name, description }) => {
    const own = routes.filter(({ operation }) => operation.tags[0] === name);
    const objects: string[] = [];
    const collect = (schema: Schema | undefined): void => {
      if (schema === undefined) return;
      const reference = referenceOf(schema);
      if (reference !== undefined) {
        if (taken.has(reference)) return;
        taken.add(reference);
        objects.push(reference);
      }
      const target = resolve(document, schema);
      for (const property of Object.values(target.properties ?? {})) collect(property);
      collect(target.items);
      for (const variant of [...(target.anyOf ?? []), ...(target.oneOf ?? []), ...(target.allOf ?? [])]) {
        collect(variant);
      }
    };
    for (const { operation } of own) {
      for (const [, response] of successesOf(operation)) collect(jsonOf(response.content)?.schema);
    }
    return { id: slugOf(name), title: name, description, routes: own, objects };
  });
}

function successesOf(operation: Operation): [string, Response][] {
  return Object.entries(operation.responses).filter(([status]) => status.startsWith('2'));
}

function navigation({ document, topics }: Page, guide: readonly Section[]): Html {
  const item = (id: string, label: Html | string) => html`<li><a href="#${id}">${label}</a></li>`;
  const group = (title: string, items: readonly Html[]) =>
    html`<p class="group">${title}</p><ul role="list">${items}</ul>`;
  const ofTopic = ({ title, routes, objects }: Topic) =>
    group(title, [
      ...objects.map((name) =>
        item(
          objectId(name),
          html`${capitalized(spaced(name).toLowerCase())} <span class="verb">object</span>`,
        ),
      ),
      ...routes.map(({ method, operation }) =>
        item(
          operation.operationId,
          html`${titleOf(operation)} <span class="verb ${method.toLowerCase()}">${method}</span>`,
        ),
      ),
    ]);
  const codes = Object.keys(document['x-errors']).map((code) =>
    item(errorId(code), html`<code>${code}</code>`),
  );
  return html`<nav id="nav" popover aria-label="Contents">
${group(
  'Guide',
  guide.map(({ id, title }) => item(id, title)),
)}
${topics.map(ofTopic)}
${group('Errors', [item('errors', 'All errors'), ...codes])}
</nav>`;
}

function guideSection({ id, title, body }: Section): Html {
  return html`<section class="row" id="${id}" aria-labelledby="${id}-title"><div class="text">${heading(2, id, title)}${body}</div></section>
`;
}

function topicSection(page: Page, topic: Topic): Html {
  return html`<section class="topic" id="${topic.id}" aria-labelledby="${topic.id}-title">
<div class="row"><div class="text">${heading(2, topic.id, topic.title)}${blockOf(topic.description)}</div></div>
${topic.objects.map((name) => objectSection(page, name))}
${topic.routes.map((route) => operationSection(page, route))}
</section>
`;
}

function objectSection({ document, sections }: Page, name: string): Html {
  const id = objectId(name);
  const schema = resolve(document, { $ref: name });
  const example = exampleOf(document, { schema: { $ref: name } });
  const context: FieldsContext = { document, sections, isRequest: false };
  return html`<section class="row" id="${id}" aria-labelledby="${id}-title">
<div class="text">${heading(3, id, `The ${spaced(name).toLowerCase()} object`)}${blockOf(schema.description)}${fieldsOf(context, { ...schema }, id)}</div>
<div class="side">${jsonBlock(example, capitalized(`${spaced(name).toLowerCase()} object`))}</div>
</section>
`;
}

function operationSection(page: Page, route: Route): Html {
  const { document } = page;
  const { method, path, operation } = route;
  const { operationId: id, parameters = [] } = operation;
  const context: FieldsContext = { ...page, isRequest: true };
  const body = jsonOf(operation.requestBody?.content);
  const named = (place: Parameter['in'], title: string) => {
    const own = parameters.filter((parameter) => parameter.in === place);
    return own.length > 0 && html`<h4>${title}</h4>${parametersOf(context, own, `${id}-${place}`)}`;
  };
  const answers = successesOf(operation).map(([status, { content }]) => {
    const example = exampleOf(document, jsonOf(content));
    return example !== undefined && jsonBlock(example, `Answer ${status}`);
  });
  return html`<section class="row operation" id="${id}" aria-labelledby="${id}-title">
<div class="text">${heading(3, id, titleOf(operation))}
<p class="endpoint"><span class="verb ${method.toLowerCase()}">${method}</span> <code>${path}</code></p>
<p class="summary">${inlineOf(operation.summary)}</p>
${blockOf(operation.description)}
${named('path', 'Path')}${named('query', 'Query')}${named('header', 'Headers')}
${body && html`<h4>Body</h4>${blockOf(resolve(document, body.schema).description)}${fieldsOf(context, body.schema, `${id}-body`)}`}
<h4>Answers</h4>${successesOf(operation).map((success) => successOf(page, id, success))}
${refusalsOf(page, operation)}
</div>
<div class="side">${samples(document, route)}<!--try-it-->${tryItForm(document, route)}<!--/try-it-->${answers}</div>
</section>
`;
}

function successOf(page: Page, id: string, [status, response]: [string, Response]): Html {
  const { document, sections } = page;
  const schema = jsonOf(response.content)?.schema;
  const name = schema && referenceOf(schema);
  const link =
    name !== undefined &&
    sections.has(name) &&
    html` The body is <a href="#${objectId(name)}">the ${spaced(name).toLowerCase()} object</a>.`;
  const fields =
    schema !== undefined &&
    name === undefined &&
    fieldsOf({ ...page, isRequest: false }, schema, `${id}-${status}`);
  const headers = Object.entries(response.headers ?? {}).map(([header, value]) => {
    const { description = '' } = resolveHeader(document, value);
    return html`<li><code>${header}</code> ${inlineOf(description)}</li>`;
  });
  return html`<p><span class="status good">${status}</span> ${inlineOf(response.description)}${link}</p>${fields}${headers.length > 0 && html`<p>Its headers:</p><ul class="headers">${headers}</ul>`}`;
}

/** The error codes of an operation, each as a link to its entry. */
function refusalsOf({ document }: Page, operation: Operation): Html {
  const rows = Object.entries(operation.responses)
    .filter(([status]) => !status.startsWith('2'))
    .map(([status, { content, description }]) => {
      const media = jsonOf(content);
      const examples = media?.examples
        ? Object.values(media.examples).map(({ value }) => value)
        : [media?.example];
      const codes = examples.flatMap((example) => codeOf(example) ?? []);
      const known = codes.filter((code) => code in document['x-errors']);
      const links = known.map((code) => html`<a href="#${errorId(code)}"><code>${code}</code></a> `);
      return html`<li><span class="status">${status}</span> ${links.length > 0 ? links : inlineOf(description)}</li>`;
    });
  return html`<p>Refusals:</p><ul class="refusals" role="list">${rows}</ul>`;
}

function codeOf(example: unknown): string | undefined {
  return (example as { error?: { code?: string } } | undefined)?.error?.code;
}

/** One set of radio buttons per block. It works by keyboard and without JavaScript. */
function samples(document: OpenApiDocument, route: Route): Html {
  const id = route.operation.operationId;
  const all = samplesOf(document, route);
  const tabs = all.map(
    ({ language }, i) =>
      html`<input type="radio" name="${id}-language" id="${id}-${language}" value="${language}"${i === 0 && html` checked`}><label for="${id}-${language}">${language}</label>`,
  );
  const panels = all.map(
    ({ language, syntax, code }) =>
      html`<div class="panel" data-language="${language}">${codeOnly(code, syntax, `${language} sample`)}</div>`,
  );
  return html`<fieldset class="code samples"><legend>Language of the sample: ${titleOf(route.operation)}</legend>${tabs}${panels}</fieldset>`;
}

function errorSection(document: OpenApiDocument): Html {
  const { properties = {} } = resolve(document, { $ref: 'Error' }).properties?.error ?? {};
  const context: FieldsContext = { document, sections: new Set(), isRequest: false };
  return html`<section class="topic" id="errors" aria-labelledby="errors-title">
<div class="row"><div class="text">${heading(2, 'errors', 'Errors')}${blockOf(resolve(document, { $ref: 'Error' }).description)}${fieldsOf(context, { properties }, 'error-body')}</div></div>
${Object.entries(document['x-errors']).map(([code, entry]) => errorEntry(code, entry))}
</section>
`;
}

function errorEntry(code: string, { status, retryable, message, description, example }: ErrorEntry): Html {
  const id = errorId(code);
  return html`<section class="row error" id="${id}" aria-labelledby="${id}-title">
<div class="text">${heading(3, id, html`<code>${code}</code>`)}
<p class="facts"><span class="status">${status}</span> ${retryable ? html`<span class="retry">retry</span>` : html`<span class="final">do not retry</span>`}</p>
<p class="message">${message}</p>${blockOf(description)}</div>
<div class="side">${jsonBlock(example, `Answer ${status}`)}</div>
</section>
`;
}

function errorId(code: string): string {
  return `error-${code}`;
}

function heading(level: 2 | 3, id: string, title: Html | string): Html {
  const link = html`<a class="anchor" href="#${id}">${title}</a>`;
  return level === 2 ? html`<h2 id="${id}-title">${link}</h2>` : html`<h3 id="${id}-title">${link}</h3>`;
}

/** Returns "Create payment intent" for `createPaymentIntent`. */
function titleOf({ operationId }: Operation): string {
  return capitalized(spaced(operationId).toLowerCase());
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function spaced(name: string): string {
  return name.replace(/(?<=[a-z\d])(?=[A-Z])/g, ' ');
}
