// Announces changes to screen readers, at most one sentence per second.

import { setText } from "./element.js";

const PAUSE_MS = 1000;
const MOST_AT_ONCE = 4;

export class Announcer {
  constructor(root) {
    this.root = root;
    this.waiting = [];
    this.timer = null;
    this.say = this.say.bind(this);
  }

  say(text) {
    this.waiting.push(text);
    this.timer ??= setTimeout(() => this.#speak(), 100);
  }

  #speak() {
    const said = this.waiting.splice(0, MOST_AT_ONCE);
    const more = this.waiting.length;
    this.waiting.length = 0;
    setText(this.root, more ? `${said.join(". ")}. And ${more} more changes.` : `${said.join(". ")}.`);
    this.timer = setTimeout(() => {
      this.timer = null;
      if (this.waiting.length) this.#speak();
    }, PAUSE_MS);
  }
}
