// A browser that translates a page replaces its text nodes. Preact then updates nodes outside the page, and
// the payer reads an old amount (github.com/preactjs/preact/issues/948). So each text becomes an element
// keyed by that text: a new text is a new element. Import this before rendering anything.

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

/** Elements that contain only text. */
const textOnly = ['option', 'title'];

function wrapped(child: ComponentChildren): ComponentChildren {
  if (Array.isArray(child)) return child.map(wrapped);
  if (typeof child === 'number') return wrapped(String(child));
  return typeof child === 'string' && child !== '' ? createElement('span', { key: child }, child) : child;
}
