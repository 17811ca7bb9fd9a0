// Renders Markdown and code as HTML. Highlighting uses only classes, so that the page needs no inline style.

import hljs from 'highlight.js/lib/common';
import MarkdownIt from 'markdown-it';

hljs.registerAliases('curl', { languageName: 'bash' });

// HTML in the text is shown as text.
const markdown = new MarkdownIt({ html: false });
markdown.renderer.rules.fence = (tokens, index) => {
  const { content, info } = tokens[index] as { content: string; info: string };
  const [language = '', ...title] = info.split(' ');
  return codeBlock(content.trimEnd(), language, title.join(' ') || language).text;
};
markdown.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>';
markdown.renderer.rules.table_close = () => '</table></div>';

/** A code block that can be scrolled by keyboard and, with JavaScript, copied. */
function codeBlock(code: string, language: string, label: string): Html {
  return html`<figure class="code"><figcaption>${label}</figcaption>${codeOnly(code, language, label)}</figure>`;
}

export function codeOnly(code: string, language: string, label: string): Html {
  const isKnown = hljs.getLanguage(language) !== undefined;
  const colored = isKnown && hljs.highlight(code, { language }).value;
  // Most of these spans have no colour of their own.
  const content = colored
    ? new Html(colored.replace(/<span class="hljs-p\w+">([^<]*)<\/span>/g, '$1'))
    : code;
  // JSON may wrap long lines, because it is only read. Samples are copied.
  return html`<pre${language === 'json' && html` class="wrap"`} tabindex="0" translate="no" role="group" aria-label="${label}"><code>${content}</code></pre>`;
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

/** A part of a text under one heading. Its code blocks are shown beside it. */
export type Section = { title: string; body: Html; side: Html | undefined };

/** Splits a text at its h1 and h2 headings. Text before the first becomes a section without a title. */
export function sectionsOf(text: string): Section[] {
  const tokens = markdown.parse(text, {});
  const isStart = ({ type, tag }: (typeof tokens)[number]) => type === 'heading_open' && tag < 'h3';
  const starts = tokens.flatMap((token, i) => (isStart(token) ? [i] : []));
  const render = (part: typeof tokens) => new Html(markdown.renderer.render(part, markdown.options, {}));
  return [...(starts[0] === 0 ? [] : [-3]), ...starts].map((start, i, all) => {
    // A heading is three tokens: start, text, end.
    const part = tokens.slice(start + 3, all[i + 1]);
    const isBeside = ({ type, level }: (typeof part)[number]) => type === 'fence' && level === 0;
    const code = part.filter(isBeside);
    return {
      title: tokens[start + 1]?.content ?? '',
      body: render(part.filter((token) => !isBeside(token))),
      side: code.length > 0 ? render(code) : undefined,
    };
  });
}

// HTML from template literals. Values are escaped unless they are already HTML.

export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Value = Html | string | number | undefined | false | readonly Value[];

/** A template literal whose values are escaped. Lists are joined; `undefined` and `false` are left out. */
export function html(strings: TemplateStringsArray, ...values: Value[]): Html {
  return new Html(String.raw({ raw: strings }, ...values.map(textOf)));
}

const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

function textOf(value: Value): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return value.map(textOf).join('');
  return String(value).replace(/[&<>"]/g, (character) => entities[character] ?? character);
}
