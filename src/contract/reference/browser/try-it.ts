// Sends requests to the service that the page came from. The service allows it with testnet keys, on the developer's
// own machine only. The key is in the form and nowhere else.

{
  const isOwnMachine = ['localhost', '127.0.0.1'].includes(location.hostname);
  const headersShown = ['X-Request-Id', 'Idempotent-Replayed', 'Retry-After', 'RateLimit', 'Allow'];
  type Input = HTMLInputElement | HTMLTextAreaElement;
  const forms = [...document.querySelectorAll<HTMLFormElement>('.try form')];
  const keys = [...document.querySelectorAll<HTMLInputElement>('.try .key')];

  const requestOf = (form: HTMLFormElement): Request => {
    const valuesOf = (place: string) => [...form.querySelectorAll<Input>(`[data-in="${place}"]`)];
    const { method = 'GET', path = '/' } = form.dataset;
    const filled = valuesOf('path').reduce(
      (text, { name, value }) => text.replace(`{${name}}`, encodeURIComponent(value)),
      path,
    );
    const url = new URL(filled, location.origin);
    const headers = new Headers({ Authorization: `Bearer ${valuesOf('key')[0]?.value.trim()}` });
    for (const { name, value } of valuesOf('query')) if (value !== '') url.searchParams.set(name, value);
    for (const { name, value } of valuesOf('header')) if (value !== '') headers.set(name, value);
    const [body] = valuesOf('body');
    if (body !== undefined) headers.set('Content-Type', 'application/json');
    return new Request(url, { method, headers, credentials: 'omit', ...(body && { body: body.value }) });
  };

  /** Returns the lines to show: the status, the headers, the body. */
  const send = async (form: HTMLFormElement): Promise<string[]> => {
    const key = form.querySelector<HTMLInputElement>('.key');
    if (key?.value.trim().startsWith('sk_mainnet_')) {
      key.value = '';
      return ['Not sent: a mainnet key moves real money and never belongs in a browser. Use a testnet key.'];
    }
    try {
      const answer = await fetch(requestOf(form));
      const text = await answer.text();
      // A proxy answers for the service in a language of its own.
      const isJson = text !== '' && answer.headers.get('Content-Type')?.startsWith('application/json');
      const body = isJson ? JSON.stringify(JSON.parse(text), null, 2) : text;
      const shown = headersShown.filter((name) => answer.headers.has(name));
      const headers = shown.map((name) => `${name}: ${answer.headers.get(name)}`);
      return [`${answer.status} ${answer.statusText}`, ...headers, '', body];
    } catch (error) {
      return [`No answer: ${error instanceof Error ? error.message : error}`];
    }
  };

  for (const form of isOwnMachine ? forms : []) {
    form.closest('details')?.removeAttribute('hidden');
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const button = form.querySelector<HTMLButtonElement>('[type=submit]');
      if (button === null || button.getAttribute('aria-disabled') === 'true') return;
      // Not `disabled`, which would drop the focus.
      button.setAttribute('aria-disabled', 'true');
      const result = document.createElement('pre');
      const lines = await send(form);
      Object.assign(result, { className: 'wrap', tabIndex: 0, textContent: lines.join('\n') });
      Object.assign(form.querySelector('.said') ?? {}, { textContent: lines[0] });
      form.querySelector('.result')?.replaceChildren(result);
      button.removeAttribute('aria-disabled');
    });
  }
  // One key for all forms of the page.
  addEventListener('input', ({ target }) => {
    const given = keys.find((key) => key === target);
    for (const key of keys) if (given !== undefined) key.value = given.value;
  });
  // A page that the browser keeps for its back button forgets the key too.
  addEventListener('pagehide', () => {
    for (const key of keys) key.value = '';
  });
}
