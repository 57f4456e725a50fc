// DOM helpers: text is never parsed as HTML, and only differences are written.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

/** An HTML element; children are elements or plain texts. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** null or false remove the attribute, true sets it without a value. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Returns whether the text changed. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent === wanted) return false;
  node.textContent = wanted;
  return true;
}

/** Sets a custom property of the style sheet. */
export function setStyle(node, property, value) {
  if (node.style.getPropertyValue(property) !== value) node.style.setProperty(property, value);
}

/** A short flash; the style sheet suppresses it for prefers-reduced-motion. */
export function flash(node) {
  node.classList.remove("flash");
  requestAnimationFrame(() => node.classList.add("flash"));
}

/** Sets the options of a select if they differ; keeps the selection. `pairs` are [value, text]. */
export function setOptions(select, pairs, chosen) {
  const wanted = JSON.stringify(pairs);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
  }
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
}

/** Keyed children of one parent: made once, then refreshed, moved and removed. */
export class Rows {
  constructor(parent, make, refresh) {
    this.parent = parent;
    this.make = make;
    this.refresh = refresh;
    this.rows = new Map();
  }

  /** Updates to `items` in order; `refresh` gets what `make` returned for the key, whose `root` is in the document. */
  update(items, keyOf) {
    const gone = new Set(this.rows.keys());
    let place = this.parent.firstChild;
    for (const item of items) {
      const key = keyOf(item);
      let row = this.rows.get(key);
      if (row === undefined) {
        row = this.make(item);
        this.rows.set(key, row);
      } else if (!gone.has(key)) {
        continue; // told twice
      }
      gone.delete(key);
      this.refresh(row, item);
      if (row.root === place) place = place.nextSibling;
      else this.parent.insertBefore(row.root, place);
    }
    for (const key of gone) {
      this.rows.get(key).root.remove();
      this.rows.delete(key);
    }
  }
}
