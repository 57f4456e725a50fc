// The nodes: a card each with state, epoch, the metadata log compared with the quorum's, and buttons.

import { Rows, element, flash, setAttribute, setStyle, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { count, isNumber, niceAbove } from "./numbers.js";
import { icon, setIcon, stateLook } from "./shapes.js";
import { whileBusy } from "./control.js";

const SHORTEST_SPAN = 50;
/** Nodes are polled one after the other: a difference of so many offsets is no lag. */
const IN_STEP = 2;
const WORDS = { kill: "Kill", start: "Start", pause: "Pause", resume: "Resume" };

/** The two buttons of a node in a state: [action, possible]. */
function actionsOf(state) {
  if (state === "dead")
    return [
      ["start", true],
      ["pause", false],
    ];
  if (state === "paused")
    return [
      ["kill", true],
      ["resume", true],
    ];
  return [
    ["kill", true],
    ["pause", true],
  ];
}

function roleOf(node) {
  return node.host ? `${node.role} on ${node.host}` : (node.role ?? "");
}

export class Nodes {
  /** `announce(text)` gets changes of state, for screen readers. */
  constructor(root, control, announce) {
    this.control = control;
    this.announce = announce;
    this.nodes = [];
    this.quorum = {};
    this.rows = new Rows(
      root,
      (node) => this.#make(node),
      (row, node) => this.#refresh(row, node),
    );
  }

  takeHello(hello) {
    if (this.nodes.length === 0) this.nodes = named(hello.nodes);
    askFrame(this);
  }

  take(cluster) {
    const nodes = named(cluster.nodes);
    if (nodes.length > 0) this.nodes = nodes;
    this.quorum = cluster.quorum ?? {};
    askFrame(this);
  }

  draw() {
    const ends = this.nodes.map((node) => node.metadata_end).filter(isNumber);
    const end = isNumber(this.quorum.log_end_offset) ? this.quorum.log_end_offset : Math.max(0, ...ends);
    const furthestBack = Math.max(0, ...ends.map((offset) => end - offset));
    this.end = end;
    this.span = Math.max(SHORTEST_SPAN, niceAbove(furthestBack * 1.25));
    this.rows.update(this.nodes, (node) => node.name);
  }

  #make(node) {
    const row = {
      state: null,
      icon: icon(),
      word: element("span", { class: "state" }),
      epoch: element("span", { class: "epoch" }),
      bar: element(
        "span",
        { class: "bar thin", "aria-hidden": "true" },
        element("i", { class: "end" }),
        element("i", { class: "committed" }),
      ),
      offsets: element("span", { class: "offsets" }),
      told: element("p", { class: "told" }),
      buttons: [],
    };
    for (const first of [true, false]) row.buttons.push(this.#button(row, node.name, first));
    row.root = element(
      "article",
      { class: "node", "data-node": node.name, "aria-label": node.name },
      element("header", {}, element("h3", {}, node.name), element("span", { class: "role" }, roleOf(node))),
      element("p", { class: "now" }, row.icon, row.word, row.epoch),
      element("p", { class: "metadata" }, element("span", { class: "label" }, "metadata"), row.offsets, row.bar),
      row.told,
      element("div", { class: "buttons with-faults" }, ...row.buttons),
    );
    return row;
  }

  #button(row, name, first) {
    const button = element("button", { type: "button", class: first ? "danger" : "" });
    whileBusy(button, () => this.control.node(button.dataset.action, name));
    return button;
  }

  #refresh(row, node) {
    const state = typeof node.state === "string" && node.state ? node.state : "unknown";
    const look = stateLook(state);
    if (state !== row.state) {
      if (row.state !== null) {
        flash(row.root);
        this.announce(`${node.name} is ${state}`);
      }
      row.state = state;
      setAttribute(row.root, "data-state", state);
      setAttribute(row.root, "data-tone", look.tone);
      setIcon(row.icon, look);
      setText(row.word, state);
    }
    setText(row.epoch, isNumber(node.epoch) ? `epoch ${node.epoch}` : "");
    this.#refreshOffsets(row, node);
    if (setText(row.told, node.told ?? "")) setAttribute(row.told, "title", node.told || null);
    actionsOf(state).forEach(([action, possible], index) => {
      const button = row.buttons[index];
      if (button.dataset.action !== action) {
        button.dataset.action = action;
        setText(button, WORDS[action]);
        setAttribute(button, "aria-label", `${WORDS[action]} ${node.name}`);
        setAttribute(
          button,
          "class",
          action === "kill" ? "danger" : action === "start" || action === "resume" ? "primary" : "",
        );
      }
      setAttribute(button, "disabled", !(possible && this.control.mayAct));
    });
  }

  #refreshOffsets(row, node) {
    const { metadata_end: end, metadata_high_watermark: highWatermark } = node;
    const share = (offset) =>
      isNumber(offset) ? `${(100 * Math.min(1, Math.max(0, 1 - (this.end - offset) / this.span))).toFixed(1)}%` : "0%";
    setStyle(row.bar, "--end", share(end));
    setStyle(row.bar, "--committed", share(isNumber(highWatermark) ? highWatermark : null));
    const behind = isNumber(end) ? this.end - end : 0;
    setText(row.offsets, behind > IN_STEP ? `${count(end)}, ${count(behind)} behind` : count(end));
    setAttribute(
      row.offsets.parentElement,
      "title",
      `Metadata log of ${node.name}: end ${count(end)}, high watermark ${count(highWatermark)}; the quorum's end ${count(this.quorum.log_end_offset)}, high watermark ${count(this.quorum.high_watermark)}`,
    );
  }
}

/** The nodes of a list that have a name. */
export function named(nodes) {
  return Array.isArray(nodes) ? nodes.filter((node) => node && typeof node.name === "string") : [];
}
