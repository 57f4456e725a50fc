// Keyboard shortcuts of one key, outside of text fields, and the dialog that lists them.

import { element } from "./element.js";

const KEY = "barnabas-shortcuts";

export class Keyboard {
  /** `shortcuts` are [key, description, action]. */
  constructor(dialog, opener, shortcuts) {
    this.dialog = dialog;
    this.shortcuts = [...shortcuts, ["?", "Show or hide these shortcuts", () => this.toggleHelp()]];
    this.enabled = read() !== "off";
    opener.addEventListener("click", () => this.toggleHelp());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.addEventListener("keydown", (event) => this.#pressed(event));
    this.#fill();
  }

  toggleHelp() {
    if (this.dialog.open) this.dialog.close();
    else this.dialog.showModal();
  }

  #pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input:not([type=range]), select, textarea")) return;
    if (document.querySelector("dialog[open]") && event.key !== "?") return;
    if (!this.enabled && event.key !== "?") return;
    const found = this.shortcuts.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  }

  #fill() {
    const close = element("button", { type: "button", class: "quiet" }, "Close");
    close.addEventListener("click", () => this.dialog.close());
    const box = element("input", { type: "checkbox", checked: this.enabled });
    box.addEventListener("change", () => {
      this.enabled = box.checked;
      write(box.checked ? "on" : "off");
    });
    const also = [
      ["Tab", "Move through all controls"],
      ["Enter", "Press a button, open the cause of an event"],
      ["↑ ↓", "Move through the list of events"],
      ["Esc", "Close the dialog"],
    ];
    const rows = [...this.shortcuts, ...also].map(([key, words]) =>
      element("div", {}, element("dt", {}, element("kbd", {}, key === " " ? "Space" : key)), element("dd", {}, words)),
    );
    this.dialog.replaceChildren(
      element(
        "div",
        { class: "inside" },
        element("header", {}, element("h2", { id: "help-title" }, "Keyboard"), close),
        element("dl", {}, ...rows),
        element("label", { class: "switch" }, box, "Single-key shortcuts"),
      ),
    );
  }
}

function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function write(value) {
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // without storage the choice lasts as long as the page
  }
}
