// The list of events, newest first; each opens its cause.

import { Rows, element, setAttribute, setOptions, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { clock, count } from "./numbers.js";
import { KIND_NAMES, icon, markLook } from "./shapes.js";

const MOST_ROWS = 150;

export class Events {
  /** `open(mark)` shows the cause. */
  constructor(root, kind, subject, total, marks, open) {
    Object.assign(this, { root, kind, subject, total, marks, open });
    setOptions(kind, [["", "all kinds"], ...KIND_NAMES.map((name) => [name, name])]);
    kind.addEventListener("change", () => askFrame(this));
    subject.addEventListener("input", () => askFrame(this));
    root.addEventListener("keydown", (event) => this.#move(event));
    this.rows = new Rows(
      root,
      (mark) => this.#make(mark),
      () => {},
    );
  }

  /** Shows only events about a subject. */
  showSubject(subject) {
    this.kind.value = "";
    this.subject.value = subject;
    askFrame(this);
  }

  draw() {
    const found = this.marks.newest(this.kind.value, this.subject.value);
    this.rows.update(found.slice(0, MOST_ROWS), (mark) => mark.key);
    this.#keepOneTabStop();
    const all = this.marks.byTime.length;
    setText(this.total, found.length === all ? count(all) : `${count(found.length)} of ${count(all)}`);
    setAttribute(
      this.root,
      "data-empty",
      found.length ? null : all ? "No event fits the filter." : "No events yet.",
    );
  }

  focusFirst() {
    this.root.querySelector("button")?.focus();
  }

  /** The list is one tab stop; the arrow keys move within it. */
  #keepOneTabStop() {
    const buttons = [...this.root.querySelectorAll("button")];
    const stop = buttons.find((button) => button === document.activeElement) ?? buttons[0];
    for (const button of buttons) setAttribute(button, "tabindex", button === stop ? "0" : "-1");
  }

  #make(mark) {
    const look = markLook(mark);
    const shape = icon(look);
    const button = element(
      "button",
      { type: "button", class: "event", "data-kind": mark.kind },
      shape,
      element("time", { datetime: new Date(mark.atMs).toISOString() }, clock(mark.atMs)),
      element("span", { class: "kind" }, mark.kind),
      element("b", {}, mark.subject),
      element("span", { class: "text" }, mark.text),
    );
    button.addEventListener("click", () => this.open(mark));
    return { root: element("li", { "data-tone": look.tone }, button) };
  }

  #move(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    const buttons = [...this.root.querySelectorAll("button")];
    const place = buttons.indexOf(document.activeElement);
    if (place < 0 || !(event.key in steps)) return;
    event.preventDefault();
    buttons[Math.min(buttons.length - 1, Math.max(0, place + steps[event.key]))].focus();
    this.#keepOneTabStop();
  }
}
