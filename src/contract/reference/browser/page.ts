// What the reference page can do beyond being read: copy a block, keep one language for all samples, show the reader's
// place in the contents, and close the contents on a phone after a choice.

{
  const storageKey = 'sample-language';

  /** Also where there is no clipboard, as over plain HTTP from another machine. */
  const copy = async (code: HTMLElement): Promise<boolean> => {
    try {
      await navigator.clipboard.writeText(code.textContent ?? '');
      return true;
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = getSelection();
      selection?.removeAllRanges();
      selection?.addRange(range);
      const copied = document.execCommand('copy');
      if (copied) selection?.removeAllRanges();
      return copied;
    }
  };

  const addCopyButton = (block: HTMLElement) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    const label = 'Copy';
    button.textContent = label;
    button.setAttribute('aria-live', 'polite');
    let reset: ReturnType<typeof setTimeout> | undefined;
    button.addEventListener('click', async () => {
      // Of the samples, the one that is shown.
      const codes = [...block.querySelectorAll<HTMLElement>('code')];
      const code = codes.find((one) => one.getClientRects().length > 0);
      button.textContent = code !== undefined && (await copy(code)) ? 'Copied' : 'Press Ctrl+C';
      clearTimeout(reset);
      reset = setTimeout(() => {
        button.textContent = label;
      }, 2000);
    });
    block.append(button);
  };

  const chooseLanguage = (language: string) => {
    for (const input of document.querySelectorAll<HTMLInputElement>('.samples input')) {
      if (input.value === language) input.checked = true;
    }
  };

  const followPlace = () => {
    const links = new Map<string, HTMLAnchorElement>();
    for (const link of document.querySelectorAll<HTMLAnchorElement>('#nav a'))
      links.set(link.hash.slice(1), link);
    const visible = new Set<Element>();
    let current: HTMLAnchorElement | undefined;
    const sections = [...document.querySelectorAll('main section[id]')].filter(({ id }) => links.has(id));
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          if (isIntersecting) visible.add(target);
          else visible.delete(target);
        }
        // The last that has begun: a topic comes before the operations within it.
        const section = sections.findLast((one) => visible.has(one));
        const link = section && links.get(section.id);
        if (link === current) return;
        current?.removeAttribute('aria-current');
        link?.setAttribute('aria-current', 'location');
        current = link;
        const nav = document.getElementById('nav');
        if (link === undefined || nav === null || nav.matches(':popover-open')) return;
        const { top, bottom } = link.getBoundingClientRect();
        const frame = nav.getBoundingClientRect();
        if (top < frame.top || bottom > frame.bottom) nav.scrollTop += top - frame.top - frame.height / 3;
      },
      { rootMargin: '-72px 0px -55% 0px' },
    );
    for (const section of sections) observer.observe(section);
  };

  for (const block of document.querySelectorAll<HTMLElement>('.code')) addCopyButton(block);
  // An example that a reader pastes has the address that the page came from.
  for (const code of document.querySelectorAll<HTMLElement>('.text code')) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      node.textContent = (node.textContent ?? '').replace('http://127.0.0.1:8080', location.origin);
    }
  }
  addEventListener('change', ({ target }) => {
    if (!(target instanceof HTMLInputElement) || target.closest('.samples') === null) return;
    const before = target.getBoundingClientRect().top;
    chooseLanguage(target.value);
    // Samples above may have become longer or shorter: the reader's place stays where it was.
    scrollBy({ top: target.getBoundingClientRect().top - before });
    try {
      localStorage.setItem(storageKey, target.value);
    } catch {
      // Storage is switched off: the choice holds for this visit.
    }
  });
  try {
    chooseLanguage(localStorage.getItem(storageKey) ?? '');
  } catch {
    // As above.
  }
  const nav = document.getElementById('nav');
  nav?.addEventListener('click', ({ target }) => {
    if (target instanceof Element && target.closest('a') !== null && nav.matches(':popover-open'))
      nav.hidePopover();
  });
  followPlace();
}
