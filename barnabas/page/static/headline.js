// The headline: the load in large numbers.

import { element, setAttribute, setText, flash } from "./element.js";
import { askFrame } from "./frame.js";
import { count, duration, isNumber } from "./numbers.js";
import { FINE, WRONG, icon, setIcon } from "./shapes.js";

/** Numbers that must be 0, with their titles. */
const MUST_BE_ZERO = [
  ["lost", "Lost", "acked but not read"],
  ["duplicated", "Duplicated", "read twice"],
  ["out_of_order", "Out of order", "read before an earlier one"],
];
const FLOWS = [
  ["longest_gap_ms", "Longest gap", "between two acks", duration],
  ["acked_per_second", "Acked per second", "", count],
  ["p99_ms", "Latency, p99", "", duration],
];

/** Numbers and titles for a topic with other producers. */
const LOOKING_ON = new Map([
  ["acked", "Committed"],
  ["acked_per_second", "Committed per second"],
]);

export class Headline {
  constructor(root) {
    this.load = null;
    this.flow = null;
    this.root = root;
    this.tiles = new Map();
    this.#tile("acked", "Acked", true);
    for (const [key, title] of MUST_BE_ZERO) this.#tile(key, title, key === "lost").root.classList.add("verdict");
    for (const [key, title] of FLOWS) this.#tile(key, title, false);
  }

  take(load) {
    this.load = load;
    askFrame(this);
  }

  /** Numbers of a topic with other producers. */
  takeThroughput(flow) {
    this.flow = flow;
    askFrame(this);
  }

  draw() {
    const looksOn = this.load === null && this.flow !== null;
    for (const [key, tile] of this.tiles) {
      setAttribute(tile.root, "hidden", looksOn && !LOOKING_ON.has(key));
      setText(tile.title, looksOn ? (LOOKING_ON.get(key) ?? tile.words) : tile.words);
    }
    setAttribute(this.root, "data-looks-on", looksOn);
    if (looksOn) {
      this.#write("acked", count(this.flow.readable), `committed records in ${this.flow.topic}`);
      this.#write("acked_per_second", count(this.flow.perSecond), "by any producer");
      return;
    }
    const load = this.load ?? {};
    this.#write("acked", count(load.acked), this.#ackedNote(load));
    for (const [key, , meaning] of MUST_BE_ZERO) {
      const value = load[key];
      const tile = this.#write(key, count(value), meaning);
      const verdict = !isNumber(value) ? null : value === 0 ? FINE : WRONG;
      setAttribute(tile.root, "data-tone", verdict?.tone ?? "calm");
      setAttribute(tile.icon, "hidden", verdict === null);
      if (verdict) setIcon(tile.icon, verdict);
    }
    for (const [key, , meaning, format] of FLOWS)
      this.#write(key, format(load[key]), this.#flowNote(key, load, meaning));
  }

  #ackedNote(load) {
    if (this.load === null) return "no load yet";
    if (load.running === false) return "the load is stopped";
    return isNumber(load.undecided) && load.undecided > 0 ? `${count(load.undecided)} in flight` : "the load is running";
  }

  #flowNote(key, load, meaning) {
    if (key === "acked_per_second" && isNumber(load.read_per_second)) return `${count(load.read_per_second)} read`;
    if (key === "p99_ms" && isNumber(load.p50_ms)) return `p50 ${duration(load.p50_ms)}`;
    return meaning;
  }

  #tile(key, title, hero) {
    const value = element("strong", {}, "–");
    const note = element("small");
    const shape = icon();
    setAttribute(shape, "hidden", true);
    const words = element("span", {}, title);
    const root = element(
      "div",
      { class: hero ? "tile hero" : "tile", "data-number": key },
      words,
      element("p", {}, shape, value),
      note,
    );
    this.root.append(root);
    const tile = { root, value, note, icon: shape, title: words, words: title };
    this.tiles.set(key, tile);
    return tile;
  }

  #write(key, value, note) {
    const tile = this.tiles.get(key);
    const isNew = setText(tile.value, value);
    if (isNew && tile.root.classList.contains("verdict")) flash(tile.root);
    setText(tile.note, note);
    return tile;
  }
}
