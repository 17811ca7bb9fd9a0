// Renders Markdown and code as HTML when the page is generated. Highlighting uses only classes, so that the page needs
// no inline style.

import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import go from 'highlight.js/lib/languages/go';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import typescript from 'highlight.js/lib/languages/typescript';
import MarkdownIt from 'markdown-it';
import { Html, html } from './html.ts';

hljs.registerLanguage('bash', bash);
hljs.registerLanguage('go', go);
hljs.registerLanguage('json', json);
hljs.registerLanguage('python', python);
hljs.registerLanguage('typescript', typescript);

const languageNames: Readonly<Record<string, string>> = { bash: 'Shell', sh: 'Shell', json: 'JSON' };

// HTML in the text is shown as text.
const markdown = new MarkdownIt({ html: false });
markdown.renderer.rules.fence = (tokens, index) => {
  const { content, info } = tokens[index] as { content: string; info: string };
  return codeBlock(content.trimEnd(), info === 'sh' ? 'bash' : info, languageNames[info] ?? info).text;
};
markdown.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>';
markdown.renderer.rules.table_close = () => '</table></div>';

/** A code block that can be scrolled by keyboard and, with JavaScript, copied. */
function codeBlock(code: string, syntax: string, label: string): Html {
  return html`<figure class="code"><figcaption>${label}</figcaption>${codeOnly(code, syntax, label)}</figure>`;
}

export function codeOnly(code: string, syntax: string, label: string): Html {
  const known = hljs.getLanguage(syntax) !== undefined;
  const content = known ? new Html(hljs.highlight(code, { language: syntax }).value) : code;
  // Long lines of an example may wrap, because it is only read. A sample is copied.
  return html`<pre${syntax === 'json' && html` class="wrap"`} tabindex="0" role="group" aria-label="${label}"><code>${content}</code></pre>`;
}

export function jsonBlock(value: unknown, label: string): Html {
  return codeBlock(JSON.stringify(value, null, 2), 'json', label);
}

export function blockOf(text: string | undefined): Html | undefined {
  return text === undefined || text === '' ? undefined : new Html(markdown.render(text));
}

export function inlineOf(text: string): Html {
  return new Html(markdown.renderInline(text));
}

export interface Section {
  id: string;
  title: string;
  body: Html;
}

/** Splits a text into its lead and the sections under its second-level headings. */
export function sectionsOf(text: string): { lead: Html; sections: Section[] } {
  const tokens = markdown.parse(text, {});
  const starts = tokens.flatMap(({ type, tag }, i) => (type === 'heading_open' && tag === 'h2' ? [i] : []));
  const render = (from: number, to: number | undefined) =>
    new Html(markdown.renderer.render(tokens.slice(from, to), markdown.options, {}));
  const sections = starts.map((start, i) => {
    // A heading is three tokens: start, text, end.
    const title = tokens[start + 1]?.content ?? '';
    return { id: slugOf(title), title, body: render(start + 3, starts[i + 1]) };
  });
  return { lead: render(0, starts[0]), sections };
}

export function slugOf(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');
}
