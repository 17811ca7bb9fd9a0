// The search of the reference page. Its index, search.json, is fetched when it is first opened.

{

  const dialog = document.querySelector('.search')                     ;
  const input = dialog.querySelector('input')                    ;
  const list = dialog.querySelector('ul')                    ;
  const status = dialog.querySelector('[role=status]')               ;
  let index          = [];

  /** Higher is better; 0 if a word is found nowhere. A word in the title counts most, at its beginning more. */
  const scoreOf = ([id, title, kind, owner, text]       , words                   )         => {
    const name = title.toLowerCase();
    const rest = `${id} ${kind} ${owner} ${text}`.toLowerCase();
    const scores = words.map((word) => {
      if (name.includes(word)) return name === word ? 12 : name.startsWith(word) ? 8 : 5;
      return rest.includes(word) ? 1 : 0;
    });
    const total = scores.reduce        ((sum, score) => sum + score, kind === 'field' ? 0 : 4);
    return scores.includes(0) ? 0 : total;
  };

  const choose = (option                            ) => {
    for (const each of list.children) each.ariaSelected = String(each === option);
    input.setAttribute('aria-activedescendant', option?.id ?? '');
    option?.scrollIntoView({ block: 'nearest' });
  };

  const optionOf = ([id, title, kind, owner]       , i        )              => {
    const option = Object.assign(document.createElement('li'), { id: `found-${i}`, role: 'option' });
    const part = (tag        , textContent        , className        ) =>
      Object.assign(document.createElement(tag), { textContent, className });
    option.append(part('span', kind, 'kind soft'), title, part('div', owner, 'soft'));
    option.dataset.target = id;
    return option;
  };

  const find = () => {
    if (index.length === 0) return;
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const scored = index.map((entry) => ({ entry, score: words.length > 0 ? scoreOf(entry, words) : 0 }));
    const found = scored.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score);
    list.replaceChildren(...found.slice(0, 12).map(({ entry }, i) => optionOf(entry, i)));
    choose(list.firstElementChild);
    status.textContent = words.length === 0 ? '' : `${found.length || 'Nothing'} found`;
  };

  const go = (option                    ) => {
    if (option === null) return;
    dialog.close();
    const hash = `#${option.dataset.target ?? ''}`;
    // One that is in the address already is gone to again.
    if (location.hash === hash) dispatchEvent(new Event('hashchange'));
    location.hash = hash;
  };

  const open = async () => {
    dialog.showModal();
    input.select();
    if (index.length === 0) status.textContent = 'Loading';
    try {
      if (index.length === 0) {
        const answer = await fetch('/docs/search.json');
        if (!answer.ok) throw answer;
        index = await answer.json();
      }
      find();
    } catch {
      status.textContent = 'The search could not be loaded. Close it and try again.';
    }
  };

  document.querySelector('.find')?.addEventListener('click', open);
  addEventListener('keydown', (event) => {
    const { key, ctrlKey, metaKey, target } = event;
    const isTyping = target instanceof Element && target.matches('input:not([type=radio]), textarea');
    const isShortcut = ctrlKey || metaKey ? key === 'k' : key === '/' && !isTyping;
    if (dialog.open || !isShortcut) return;
    event.preventDefault();
    open();
  });
  input.addEventListener('input', find);
  input.addEventListener('keydown', (event) => {
    const selected = list.querySelector             ('[aria-selected=true]');
    if (event.key === 'ArrowDown') choose(selected?.nextElementSibling ?? selected);
    else if (event.key === 'ArrowUp') choose(selected?.previousElementSibling ?? selected);
    else if (event.key === 'Enter') go(selected);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener('click', ({ target }) => {
    if (target === dialog) dialog.close();
    else go((target           ).closest('li'));
  });
}
