// A toast: shows a refusal for some seconds.

import { setText } from "./element.js";

const SHOWN_MS = 8000;

export class Toast {
  constructor(root) {
    this.root = root;
    this.timer = null;
    root.addEventListener("click", () => this.#hide());
  }

  show(line) {
    clearTimeout(this.timer);
    this.root.hidden = false;
    setText(this.root, line);
    this.timer = setTimeout(() => this.#hide(), SHOWN_MS);
  }

  #hide() {
    this.root.hidden = true;
    setText(this.root, "");
  }
}
