// Makes and updates elements. Texts are set as text, never as HTML: a name stays a name.

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// A name that somebody gave, kept apart from text that runs in another direction.
export const nameOf = (name) => make("bdi", {}, showName(name));

// Signs that cannot be seen, or that turn the others round, are shown as such.
export const showName = (name) =>
  name.trim() ? name.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "\ufffd") : `"${name}"`;

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name, on) {
  element.classList.toggle(name, Boolean(on));
}

// Keeps one child per item, in order, and makes only those that are new: what has the focus stays.
export function keepChildren(parent, items, keyOf, create, update) {
  const known = (parent.kept ??= new Map());
  const left = new Map(known);
  let before = null;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = known.get(key);
    if (!child) {
      child = create(item);
      known.set(key, child);
    }
    left.delete(key);
    const place = before ? before.nextSibling : parent.firstChild;
    if (child !== place) parent.insertBefore(child, place);
    before = child;
    update?.(child, item);
  }
  for (const [key, child] of left) {
    known.delete(key);
    child.remove();
  }
}
