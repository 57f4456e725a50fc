// A table of the views "Access", "Groups" and "Topics": a page of rows that the server filtered, and buttons for the pages around it.

import { element, setText } from "./element.js";
import { count } from "./numbers.js";

const SOON_MS = 500;
const NAMES = {
  acls: "ACLs",
  denials: "denials that nodes have noted",
  users: "users with a password",
  tokens: "delegation tokens",
  quotas: "quotas",
  groups: "groups",
  topics: "topics",
};

/** A table of `rows`; `columns` are [title, key, content of a value]. */
export function tableOf(columns, rows) {
  const cells = (row) =>
    columns.map(([, key, content]) => element("td", {}, content ? content(row[key], row) : String(row[key] ?? "–")));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...columns.map(([title]) => element("th", { scope: "col" }, title)))),
    element(
      "tbody",
      {},
      ...rows.map((row) => element("tr", { "data-permission": row.permission ?? null }, ...cells(row))),
    ),
  );
}

export class AccessTable {
  /** `columns` as in `tableOf`; `view.filter` has the filter, and `view.path` the path if it is not one of /access. */
  constructor(panel, name, columns, view) {
    Object.assign(this, { panel, name, columns, view });
    this.start = 0;
    this.asked = 0;
    this.taken = () => {};
    this.aside = panel.querySelector(".aside");
    this.body = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": `Table of ${NAMES[name]}` });
    this.before = this.#turn("Previous", -1);
    this.after = this.#turn("Next", 1);
    this.pager = element("div", { class: "pager" }, this.before, this.after);
    panel.append(this.body, this.pager);
    this.pager.hidden = true;
  }

  loadSoon() {
    this.waiting ??= setTimeout(() => {
      this.waiting = undefined;
      this.load();
    }, SOON_MS);
  }

  async load() {
    const mine = ++this.asked;
    const query = new URLSearchParams({ ...this.view.filter, start: this.start });
    let answer;
    try {
      const response = await fetch(`${this.view.path ?? `/access/${this.name}`}?${query}`);
      if (!response.ok) throw new Error((await response.text()).trim().slice(0, 300));
      answer = await response.json();
    } catch (error) {
      answer = { rows: [], found: 0, total: 0, start: 0, problem: `It could not be loaded: ${error.message}` };
    }
    if (mine !== this.asked) return;
    this.#show(answer);
    this.taken(answer);
  }

  #show({ rows, found, total, start, problem }) {
    this.start = start;
    const shown = rows.length ? `${count(start + 1)}–${count(start + rows.length)} of ${count(found)}` : "";
    setText(this.aside, found < total && shown ? `${shown}, ${count(total)} in all` : shown);
    this.pager.hidden = found <= rows.length;
    this.step = rows.length;
    this.before.disabled = start === 0;
    this.after.disabled = start + rows.length >= found;
    if (!rows.length) {
      const nothing = total ? "Nothing fits the filter." : `There are no ${NAMES[this.name]}.`;
      this.body.replaceChildren(element("p", { class: "plain" }, problem || nothing));
      return;
    }
    this.body.replaceChildren(tableOf(this.columns, rows));
  }

  #turn(title, step) {
    const button = element("button", { type: "button", "aria-label": `${title} ${NAMES[this.name]}` }, title);
    button.addEventListener("click", () => {
      this.start = step > 0 ? this.start + this.step : Math.max(0, this.start - 1);
      this.load();
    });
    return button;
  }
}
