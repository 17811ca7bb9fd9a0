// Sends requests from the reference page to the service that it came from. The service lets it, with testnet keys, on
// the developer's own machine only. The key is in a variable of this page and nowhere else.

{
  const isOwnMachine = ['localhost', '127.0.0.1'].includes(location.hostname);
  const headersShown = ['X-Request-Id', 'Idempotent-Replayed', 'Retry-After', 'RateLimit', 'Allow'];
  const forms = [...document.querySelectorAll<HTMLFormElement>('.try form')];

  const inputsOf = (form: HTMLFormElement, place: string) => [
    ...form.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>(`[data-in="${place}"]`),
  ];

  const requestOf = (form: HTMLFormElement): Request => {
    const { method = 'GET', path = '/' } = form.dataset;
    let filled = path;
    for (const { name, value } of inputsOf(form, 'path')) {
      filled = filled.replace(`{${name}}`, encodeURIComponent(value));
    }
    const url = new URL(filled, location.origin);
    for (const { name, value } of inputsOf(form, 'query'))
      if (value !== '') url.searchParams.set(name, value);
    const headers = new Headers();
    for (const { name, value } of inputsOf(form, 'header')) if (value !== '') headers.set(name, value);
    headers.set('Authorization', `Bearer ${inputsOf(form, 'key')[0]?.value.trim()}`);
    const [body] = inputsOf(form, 'body');
    if (body !== undefined) headers.set('Content-Type', 'application/json');
    return new Request(url, { method, headers, credentials: 'omit', ...(body && { body: body.value }) });
  };

  const indented = (text: string): string => {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  };

  const show = (form: HTMLFormElement, status: string, lines: readonly string[], body: string) => {
    const result = form.querySelector('.result');
    if (result === null) return;
    const head = document.createElement('p');
    head.className = 'answer';
    head.textContent = status;
    const pre = document.createElement('pre');
    pre.tabIndex = 0;
    pre.textContent = [
      ...lines,
      ...(lines.length > 0 && body !== '' ? [''] : []),
      ...(body === '' ? [] : [body]),
    ].join('\n');
    result.replaceChildren(head, ...(pre.textContent === '' ? [] : [pre]));
  };

  const send = async (form: HTMLFormElement): Promise<void> => {
    const [key] = inputsOf(form, 'key');
    if (key?.value.trim().startsWith('sk_mainnet_')) {
      key.value = '';
      show(
        form,
        'Not sent: a mainnet key moves real money and never belongs in a browser. Use a testnet key.',
        [],
        '',
      );
      return;
    }
    try {
      const answer = await fetch(requestOf(form));
      const lines = headersShown.flatMap((name) => {
        const value = answer.headers.get(name);
        return value === null ? [] : [`${name}: ${value}`];
      });
      show(form, `${answer.status} ${answer.statusText}`, lines, indented(await answer.text()));
    } catch (error) {
      show(form, `No answer: ${error instanceof Error ? error.message : error}`, [], '');
    }
  };

  for (const form of isOwnMachine ? forms : []) {
    form.closest('details')?.removeAttribute('hidden');
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const button = form.querySelector<HTMLButtonElement>('[type=submit]');
      if (button === null || button.disabled) return;
      button.disabled = true;
      send(form).finally(() => {
        button.disabled = false;
      });
    });
    // One key for all forms of the page.
    const [key] = inputsOf(form, 'key');
    key?.addEventListener('input', () => {
      for (const other of forms)
        for (const input of inputsOf(other, 'key')) if (input !== key) input.value = key.value;
    });
  }
  // A page that the browser keeps for its back button forgets the key too.
  addEventListener('pagehide', () => {
    for (const form of forms) for (const input of inputsOf(form, 'key')) input.value = '';
  });
}
