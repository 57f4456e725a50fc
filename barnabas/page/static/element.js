// Elements of the document: made with text as text, and changed only where something changed.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

/** An HTML element; children are elements, or texts that stay texts whatever is in them. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** null or false take the attribute away, true sets it without a value. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** True if the text is another one now. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent === wanted) return false;
  node.textContent = wanted;
  return true;
}

/** A length or a share that the style sheet reads. */
export function setStyle(node, property, value) {
  if (node.style.getPropertyValue(property) !== value) node.style.setProperty(property, value);
}

/** A gentle flash. Still where less motion is wanted (the style sheet sees to it). */
export function flash(node) {
  node.classList.remove("flash");
  requestAnimationFrame(() => node.classList.add("flash"));
}

/** The options of a select, rebuilt only when they are others; keeps the chosen one. `pairs` are [value, text]. */
export function setOptions(select, pairs, chosen) {
  const wanted = JSON.stringify(pairs);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
  }
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
}

/** Children of one parent, each under a key: made once, refreshed, moved and removed, never rebuilt. */
export class Rows {
  constructor(parent, make, refresh) {
    this.parent = parent;
    this.make = make;
    this.refresh = refresh;
    this.rows = new Map();
  }

  /** `items` in order; what `make` gave for a key is given to `refresh` again. Its `root` is in the document. */
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
