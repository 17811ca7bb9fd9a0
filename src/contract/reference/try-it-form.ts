// The form that sends an operation's request. Only a page that may send has it. The script is try-it.ts.

import { exampleOf, jsonOf, type OpenApiDocument, type Route } from './document.ts';
import { type Html, html } from './html.ts';
import { credentialOf, exampleOfParameter } from './samples.ts';

/** Hidden until the script has checked that this page may send. */
export function tryItForm(document: OpenApiDocument, { method, path, operation }: Route): Html {
  const id = `${operation.operationId}-try`;
  const body = exampleOf(document, jsonOf(operation.requestBody?.content));
  const inputs = (operation.parameters ?? []).map(
    (parameter) =>
      html`<label for="${id}-${parameter.name}">${parameter.name}</label><input id="${id}-${parameter.name}" name="${parameter.name}" data-in="${parameter.in}" value="${exampleOfParameter(parameter) ?? ''}" autocomplete="off" autocapitalize="off" spellcheck="false"${parameter.required === true && html` required`}>`,
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
<div class="result" role="status"></div>
</form></details>`;
}
