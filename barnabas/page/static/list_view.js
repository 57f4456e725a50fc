// A view with a filtered list and one thing of it in detail: "Groups" and "Topics" extend it.

import { AccessTable } from "./access_table.js";
import { element, setAttribute, setOptions } from "./element.js";

const TYPING_MS = 250;

export class ListView {
  /**
   * `parts` are elements; `others` are the views that make room for this one. `kinds` are what `parts.kind` chooses
   * from, and `columns(name)` gets the function that makes a button of a name.
   */
  constructor(parts, others, { name, one, kinds, columns }) {
    Object.assign(this, { parts, others, one });
    this.path = `/${name}`;
    this.asked = 0;
    this.table = new AccessTable(parts.list, name, columns((title) => this.#button(title)), this);
    setOptions(parts.kind, kinds);
    parts.toggle.addEventListener("click", () => this.toggle());
    parts.refresh.addEventListener("click", () => this.load());
    parts.kind.addEventListener("change", () => this.#loadFirst());
    parts.filter.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.#loadFirst(), TYPING_MS);
    });
  }

  get shown() {
    return !this.parts.root.hidden;
  }

  toggle() {
    const show = !this.shown;
    if (show) for (const other of this.others) if (other.shown) other.toggle();
    this.parts.root.hidden = !show;
    this.parts.board.hidden = show;
    setAttribute(this.parts.toggle, "aria-pressed", show ? "true" : "false");
    if (show) this.load();
  }

  /** Asks for the chosen one, and passes the answer to `show`. */
  async describe() {
    const mine = ++this.asked;
    let answer;
    try {
      const response = await fetch(`/${this.one}?${new URLSearchParams({ [this.one]: this.chosen })}`);
      if (!response.ok) throw new Error((await response.text()).trim().slice(0, 300));
      answer = await response.json();
    } catch (error) {
      answer = { [this.one]: this.chosen, problem: `It could not be loaded: ${error.message}` };
    }
    if (mine !== this.asked) return;
    this.parts.detail.hidden = false;
    this.show(answer);
  }

  #loadFirst() {
    this.table.start = 0;
    this.table.load();
  }

  /** Asks for the list, and for the chosen one. */
  load() {
    this.table.load();
    if (this.chosen) this.describe();
  }

  #button(name) {
    const button = element("button", { type: "button", class: "quiet name" }, name);
    button.addEventListener("click", () => {
      this.chosen = name;
      this.describe();
    });
    return button;
  }
}
