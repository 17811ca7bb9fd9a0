// A browser that translates a page puts elements of its own in the place of text nodes, and Preact goes on writing into the
// nodes that are gone: the payer reads the amount of before (github.com/preactjs/preact/issues/948). So each text is an
// element, keyed by what it says: if that changes, it is another element. Import this before anything is rendered.

import { type ComponentChildren, createElement, Fragment, options, type VNode } from 'preact';

const { vnode: previous } = options;
options.vnode = (vnode: VNode<{ children?: ComponentChildren }>) => {
  previous?.(vnode);
  const { type, key, props } = vnode;
  const isText = key !== undefined && key === props.children;
  const mayHave = type === Fragment || (typeof type === 'string' && !textOnly.includes(type));
  if (mayHave && !isText) props.children = wrapped(props.children);
};

/** Elements without elements in them. */
const textOnly = ['option', 'title'];

function wrapped(child: ComponentChildren): ComponentChildren {
  if (Array.isArray(child)) return child.map(wrapped);
  if (typeof child === 'number') return wrapped(String(child));
  return typeof child === 'string' && child !== '' ? createElement('span', { key: child }, child) : child;
}
