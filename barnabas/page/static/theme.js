// Light or dark colours: the system's preference until the user chooses.

import { setAttribute, setText } from "./element.js";

const KEY = "barnabas-theme";

export class Theme {
  constructor(button) {
    this.button = button;
    this.preferred = matchMedia("(prefers-color-scheme: dark)");
    this.chosen = null;
    try {
      this.chosen = localStorage.getItem(KEY);
    } catch {
      // without storage
    }
    this.preferred.addEventListener("change", () => this.#show());
    button.addEventListener("click", () => this.toggle());
    this.#show();
  }

  get isDark() {
    return this.chosen ? this.chosen === "dark" : this.preferred.matches;
  }

  toggle() {
    this.chosen = this.isDark ? "light" : "dark";
    try {
      localStorage.setItem(KEY, this.chosen);
    } catch {
      // without storage the choice lasts as long as the page
    }
    this.#show();
  }

  #show() {
    setAttribute(
      document.documentElement,
      "data-theme",
      this.chosen === "dark" || this.chosen === "light" ? this.chosen : null,
    );
    setText(this.button, this.isDark ? "Light" : "Dark");
    setAttribute(this.button, "aria-label", `Change to ${this.isDark ? "light" : "dark"} colours`);
  }
}
