// The links between nodes: half a matrix, each cell a button that cuts or heals.

import { element, flash, setAttribute, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { icon, setIcon } from "./shapes.js";
import { named } from "./nodes.js";
import { whileBusy } from "./control.js";

const WHOLE = { path: "M1 7h14v2H1z", tone: "calm" };
const CUT = {
  path: "M0 7h4.200v2H0zM11.8 7H16v2h-4.200zM5.2 4.200L8 7l2.8-2.8 1 1L9 8l2.8 2.8-1 1L8 9l-2.8 2.8-1-1L7 8 4.2 5.200z",
  tone: "bad",
};

const keyOf = (one, other) => [one, other].sort().join(" ");

export class Links {
  constructor(panel, root, told, control, announce) {
    this.panel = panel;
    this.root = root;
    this.told = told;
    this.control = control;
    this.announce = announce;
    this.names = [];
    this.cells = new Map();
    this.cut = new Set();
    this.possible = false;
  }

  takeHello(hello) {
    this.possible = hello.links === true;
    const names = named(hello.nodes).map((node) => node.name);
    if (JSON.stringify(names) !== JSON.stringify(this.names)) this.#build(names, named(hello.nodes));
    askFrame(this);
  }

  take(cluster) {
    const pairs = Array.isArray(cluster.cut)
      ? cluster.cut.filter((pair) => Array.isArray(pair) && pair.length === 2)
      : [];
    this.cut = new Set(pairs.map(([one, other]) => keyOf(one, other)));
    askFrame(this);
  }

  draw() {
    const mayAct = this.possible && this.control.mayAct;
    for (const [key, cell] of this.cells) {
      const isCut = this.cut.has(key);
      const [one, other] = cell.between;
      if (cell.isCut !== isCut) {
        if (cell.isCut !== null) {
          flash(cell.button);
          this.announce(`The link between ${one} and ${other} is ${isCut ? "cut" : "up"}`);
        }
        cell.isCut = isCut;
        setAttribute(cell.button, "data-tone", isCut ? "bad" : "calm");
        setAttribute(cell.button, "aria-pressed", isCut ? "true" : "false");
        setAttribute(
          cell.button,
          "title",
          `${one} to ${other}: ${isCut ? "cut; press to heal" : "up; press to cut"}`,
        );
        setIcon(cell.icon, isCut ? CUT : WHOLE);
      }
      setAttribute(cell.button, "disabled", !mayAct);
    }
    // A read-only page shows links only if one is cut.
    setAttribute(this.panel, "hidden", !this.possible && this.cut.size === 0);
    const count = this.cut.size;
    const state = count === 0 ? "all up" : `${count} cut`;
    setText(this.told, this.possible ? state : `${state}; this cluster's links cannot be cut`);
  }

  #build(names, nodes) {
    this.names = names;
    this.cells.clear();
    const idOf = new Map(nodes.map((node) => [node.name, String(node.id ?? node.name)]));
    const body = element("tbody");
    for (let row = 1; row < names.length; row++) {
      const cells = names.slice(0, row).map((other) => element("td", {}, this.#cell(other, names[row])));
      body.append(element("tr", {}, element("th", { scope: "row" }, names[row]), ...cells));
    }
    const heads = names
      .slice(0, -1)
      .map((name) =>
        element(
          "th",
          { scope: "col" },
          element("span", { "aria-hidden": "true" }, idOf.get(name)),
          element("span", { class: "unseen" }, name),
        ),
      );
    const foot = element("tfoot", {}, element("tr", {}, element("td"), ...heads));
    this.root.replaceChildren(
      element("table", { class: "matrix" }, element("caption", { class: "unseen" }, "Links between nodes"), body, foot),
    );
  }

  #cell(one, other) {
    const shape = icon();
    const button = element(
      "button",
      { type: "button", class: "link", "aria-label": `Cut between ${one} and ${other}` },
      shape,
    );
    const cell = { button, icon: shape, isCut: null, between: [one, other] };
    whileBusy(button, () => this.control.link(cell.isCut ? "heal" : "cut", cell.between));
    this.cells.set(keyOf(one, other), cell);
    return button;
  }
}
