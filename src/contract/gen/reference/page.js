// What the reference page does beyond being read: themes, copying, one language for all samples, the place in the contents.

{
  const root = document.documentElement;
  /** Returns what the reader has chosen, after storing a new choice. Storage may be switched off. */
  const chosen = (name        , value         )         => {
    try {
      if (value !== undefined) localStorage.setItem(name, value);
      return localStorage.getItem(name) ?? '';
    } catch {
      return value ?? '';
    }
  };
  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  // Before anything is drawn. Empty: the system's theme.
  root.style.colorScheme = chosen('theme');

  const changeTheme = () => {
    const isDark = (root.style.colorScheme || (prefersDark.matches ? 'dark' : 'light')) === 'dark';
    // Back at the system's theme, that is followed again.
    root.style.colorScheme = chosen('theme', isDark !== prefersDark.matches ? '' : isDark ? 'light' : 'dark');
  };

  /** Also without a clipboard, as over plain HTTP from another machine. */
  const copy = async (code             )                   => {
    try {
      await navigator.clipboard.writeText(code.textContent ?? '');
      return true;
    } catch {
      getSelection()?.selectAllChildren(code);
      return document.execCommand('copy');
    }
  };

  const addCopyButton = (block             ) => {
    const button = document.createElement('button');
    Object.assign(button, { type: 'button', className: 'copy', textContent: 'Copy' });
    const said = Object.assign(document.createElement('span'), { className: 'said', role: 'status' });
    button.addEventListener('click', async () => {
      // Of the samples, the one that is shown.
      const codes = [...block.querySelectorAll             ('code')];
      const code = codes.find((one) => one.getClientRects().length > 0);
      button.textContent = code !== undefined && (await copy(code)) ? 'Copied' : 'Press Ctrl+C';
      said.textContent = button.textContent;
      setTimeout(() => {
        button.textContent = 'Copy';
        said.textContent = '';
      }, 2000);
    });
    block.append(button, said);
  };

  const chooseLanguage = (language        ) => {
    for (const input of document.querySelectorAll                  (`.samples [value="${language}"]`))
      input.checked = true;
  };

  const followPlace = (nav             ) => {
    const links = new Map([...nav.querySelectorAll('a')].map((link) => [link.hash.slice(1), link]));
    const sections = [...document.querySelectorAll('main section[id]')].filter(({ id }) => links.has(id));
    const visible = new Set         ();
    const onChange = (entries                                      ) => {
      for (const { target, isIntersecting } of entries) visible[isIntersecting ? 'add' : 'delete'](target);
      // The last that has begun: a topic comes before the operations within it.
      const link = links.get(sections.findLast((one) => visible.has(one))?.id ?? '');
      if (link === undefined || link.ariaCurrent !== null || nav.matches(':popover-open')) return;
      nav.querySelector('[aria-current]')?.removeAttribute('aria-current');
      link.ariaCurrent = 'location';
      link.closest('details')?.setAttribute('open', '');
      const [{ top, bottom }, frame] = [link.getBoundingClientRect(), nav.getBoundingClientRect()];
      if (top < frame.top || bottom > frame.bottom) nav.scrollTop += top - frame.top - frame.height / 3;
    };
    const observer = new IntersectionObserver(onChange, { rootMargin: '-72px 0px -70% 0px' });
    for (const section of sections) observer.observe(section);
    nav.addEventListener('click', ({ target }) => {
      if (target instanceof Element && target.closest('a') && nav.matches(':popover-open')) nav.hidePopover();
    });
  };

  /** A folded field is unfolded before it is shown. */
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target?.closest('details'); at; at = at.parentElement?.closest('details')) at.open = true;
    target?.scrollIntoView();
  };

  addEventListener('DOMContentLoaded', () => {
    for (const button of document.querySelectorAll             ('.top [hidden]')) button.hidden = false;
    document.querySelector('.theme')?.addEventListener('click', changeTheme);
    for (const block of document.querySelectorAll             ('.code:has(pre)')) addCopyButton(block);
    // An example that a reader pastes has the address that the page came from.
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node !== null; node = texts.nextNode()) {
      const text = node.nodeValue ?? '';
      if (text.includes('127.0.0.1:8080'))
        node.nodeValue = text.replace('http://127.0.0.1:8080', location.origin);
    }
    chooseLanguage(chosen('sample-language'));
    for (const nav of document.querySelectorAll('nav')) followPlace(nav);
    reveal();
  });
  addEventListener('hashchange', reveal);
  addEventListener('change', ({ target }) => {
    if (!(target instanceof HTMLInputElement) || target.closest('.samples') === null) return;
    const before = target.getBoundingClientRect().top;
    chooseLanguage(chosen('sample-language', target.value) || target.value);
    // Samples above may have become longer or shorter: the reader's place stays where it was.
    scrollBy({ top: target.getBoundingClientRect().top - before });
  });
}
