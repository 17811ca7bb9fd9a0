// Renders the reference page of an OpenAPI document, with guides in Markdown. It is readable without JavaScript.

import type { OpenApiDocument } from './document.ts';
import { objectId, type PageContext } from './fields.ts';
import { type Html, html } from './html.ts';
import * as sections from './sections.ts';
import { type Section, sectionsOf, slugOf } from './text.ts';

export interface PageOptions {
  document: OpenApiDocument;
  /** Each with a title as its first heading. */
  guides?: readonly string[];
  changelog?: string;
}

/** Returns the page and what its search finds. Throws if the document has a reference to a missing component. */
export function renderPage({ document, guides = [], changelog = '' }: PageOptions) {
  const { title, version, description } = document.info;
  const topics = sections.topicsOf(document);
  const objects = new Set(topics.flatMap((topic) => topic.objects));
  const context: PageContext = { document, sections: objects, index: [] };
  const [lead, ...basics] = sectionsOf(`${description}\n\n${changelog}`);
  const parts = guides.map(sectionsOf);
  const main = [
    ...parts.map((part) => sections.guideSection(context, part)),
    ...basics.map((section) => sections.guideSection(context, [section])),
    ...topics.map((topic) => sections.topicSection(context, topic)),
    sections.errorSection(context),
  ];
  const ofSection = ({ title }: Section): Item => [slugOf(title), title];
  const errors = Object.keys(document['x-errors']).map(
    (code): Item => [sections.errorId(code), html`<code>${code}</code>`],
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

function itemsOf({ id, routes, objects }: sections.Topic): Item[] {
  const operations = routes.map(({ method, operation }): Item => {
    return [operation.operationId, html`${sections.methodOf(method)}${sections.titleOf(operation)}`];
  });
  const rest = objects.map((name): Item => [objectId(name), `The ${sections.nameOf(name)} object`]);
  return [[id, 'Overview'], ...operations, ...rest];
}

/** A group of the contents. The browser keeps one of them open. */
function groupOf([title, items]: Group): Html {
  const rows = items.map(([id, label]) => html`<li><a href="#${id}">${label}</a></li>`);
  return html`${rows.length > 0 && html`<details name="contents"><summary>${title}</summary><ul role="list">${rows}</ul></details>`}
`;
}
