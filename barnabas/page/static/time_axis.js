// The time axis: the last two minutes, or an earlier period; can be frozen.

import { element, setAttribute, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { clock, count, duration } from "./numbers.js";
import { Chart } from "./chart.js";
import { KEPT_MS } from "./history.js";

const SHOWN_MS = 120000;
const STEP_MS = 10000;
const ACKED = "acked/s";
const COMMITTED = "committed/s";
const LEGEND = [
  ["acked", ACKED, (sample) => count(sample?.acked)],
  ["read", "read/s", (sample) => count(sample?.read)],
  ["p50", "p50", (sample) => duration(sample?.p50)],
  ["p99", "p99", (sample) => duration(sample?.p99)],
];

export class TimeAxis {
  constructor({ root, legend, told, freeze, scroll }, history, marks, open) {
    Object.assign(this, { history, told, freeze, scroll });
    this.chart = new Chart(root, history, marks, open);
    this.frozenMs = null;
    this.hoverMs = null;
    /** The page is read-only: only committed records are known. */
    this.looksOn = false;
    this.values = LEGEND.map(([name, title, format]) => {
      const value = element("dd");
      const words = element("dt", {}, title);
      const root = element("div", { class: `key-${name}` }, element("i", { "aria-hidden": "true" }), words, value);
      legend.append(root);
      return { name, root, words, value, format };
    });
    freeze.addEventListener("click", () => this.toggle());
    scroll.addEventListener("input", () =>
      this.#endAt(Number(scroll.value) === 0 ? null : this.nowMs + Number(scroll.value) * 1000),
    );
    root.addEventListener("pointermove", (event) => this.#hover(this.chart.timeAt(event.clientX)));
    root.addEventListener("pointerleave", () => this.#hover(null));
    root.addEventListener("keydown", (event) => this.#move(event));
    new ResizeObserver(([entry]) => {
      this.chart.width = Math.floor(entry.contentRect.width);
      askFrame(this);
    }).observe(root);
  }

  get nowMs() {
    return this.history.nowMs ?? Date.now();
  }

  /** Freezes the axis, or goes live. */
  toggle() {
    this.#endAt(this.frozenMs === null ? this.nowMs : null);
  }

  /** Moves the shown period by steps of ten seconds. */
  shift(steps) {
    const endMs = (this.frozenMs ?? this.nowMs) + steps * STEP_MS;
    this.#endAt(endMs >= this.nowMs ? null : endMs);
  }

  draw() {
    const nowMs = this.nowMs;
    if (this.frozenMs !== null) this.frozenMs = Math.max(this.frozenMs, nowMs - KEPT_MS);
    const endMs = this.frozenMs ?? nowMs;
    this.chart.looksOn = this.looksOn;
    this.chart.draw(endMs - SHOWN_MS, endMs, this.hoverMs);
    setText(this.freeze, this.frozenMs === null ? "Freeze" : "Go live");
    setAttribute(this.freeze, "aria-pressed", this.frozenMs === null ? "false" : "true");
    setText(this.told, this.frozenMs === null ? "the last 2 minutes" : `frozen at ${clock(endMs)}`);
    if (document.activeElement !== this.scroll || this.frozenMs === null)
      this.scroll.value = Math.round((endMs - nowMs) / 1000);
    setAttribute(this.scroll, "aria-valuetext", this.frozenMs === null ? "live" : `ends at ${clock(endMs)}`);
    const sample =
      this.hoverMs !== null
        ? this.history.nearest(this.hoverMs)
        : this.frozenMs !== null
          ? this.history.nearest(endMs)
          : this.history.samples.at(-1);
    for (const { name, root, words, value, format } of this.values) {
      setAttribute(root, "hidden", this.looksOn && name !== "acked");
      if (name === "acked") setText(words, this.looksOn ? COMMITTED : ACKED);
      setText(value, format(sample));
    }
  }

  #endAt(endMs) {
    this.frozenMs = endMs;
    askFrame(this);
  }

  #hover(atMs) {
    this.hoverMs = atMs;
    askFrame(this);
  }

  #move(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -6, PageDown: 6 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.shift(moves[event.key]);
  }
}
