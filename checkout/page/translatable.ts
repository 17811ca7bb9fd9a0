// When a browser translates a page, it replaces text nodes with elements of its own. Preact then updates nodes that are no
// longer in the page, and the payer reads an outdated amount (github.com/preactjs/preact/issues/948). So each text becomes an
// element whose key is the text: a changed text is a new element. Import this before anything is rendered.

import { type ComponentChildren, createElement, Fragment, options, type VNode } from 'preact';

const { vnode: previous } = options;
options.vnode = (vnode: VNode<{ children?: ComponentChildren }>) => {
  previous?.(vnode);
  const { type, key, props } = vnode;
  // Made by `wrapped` below.
  const isText = key !== undefined && key === props.children;
  const mayContainElements = type === Fragment || (typeof type === 'string' && !textOnly.includes(type));
  if (mayContainElements && !isText) props.children = wrapped(props.children);
};

/** Elements without elements in them. */
const textOnly = ['option', 'title'];

function wrapped(child: ComponentChildren): ComponentChildren {
  if (Array.isArray(child)) return child.map(wrapped);
  if (typeof child === 'number') return wrapped(String(child));
  return typeof child === 'string' && child !== '' ? createElement('span', { key: child }, child) : child;
}
