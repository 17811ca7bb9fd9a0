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
