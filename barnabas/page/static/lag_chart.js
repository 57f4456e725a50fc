// The lag of a group over time, with the rates at which its topics are written and read: a drawing, one sentence, and tables.

import { tableOf } from "./access_table.js";
import { drawing, element, setAttribute, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { clock, count, isNumber, short } from "./numbers.js";
import { area, highest, line, linear, steps } from "./plot.js";

const LEFT = 66;
const RIGHT = 14;
const LAG = { top: 24, bottom: 124 };
const RATES = { top: 158, bottom: 218 };
const HEIGHT = 244;
const TICKS_MS = [10_000, 30_000, 60_000, 120_000, 300_000, 600_000];
const TICK_PX = 90;
const MINUTE_MS = 60_000;
/** A line is broken where samples are missing. */
const BROKEN_AFTER_INTERVALS = 3.5;

const rate = (value) => (isNumber(value) ? `${value < 10 ? +value.toFixed(1) : count(value)}/s` : count(value));
const SAMPLES = [
  ["time", "atMs", (atMs) => clock(atMs)],
  ["lag", "lag", count],
  ["written", "written", rate],
  ["read", "read", rate],
];
const TOPICS = [
  ["topic", "topic"],
  ["partitions", "partitions", count],
  ["lag", "lag", count],
  ["written", "written", rate],
  ["read", "read", rate],
];

export class LagChart {
  /** Draws into `root`, a figure that stays from one answer to the next. */
  constructor(root) {
    this.root = root;
    this.width = 0;
    this.samples = [];
    this.grid = drawing("g", { class: "grid" });
    this.paths = Object.fromEntries(
      ["lag-area", "lag", "written", "read"].map((name) => [name, drawing("path", { class: `series ${name}` })]),
    );
    this.svg = drawing("svg", { role: "img", height: HEIGHT }, this.grid, ...Object.values(this.paths));
    this.words = element("figcaption", { class: "plain" });
    this.minutes = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Lag by the minute" });
    this.topics = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Topics" });
    this.more = element("p", { class: "plain" });
    root.append(
      element("h3", {}, "Lag over time"),
      this.svg,
      this.words,
      element("details", {}, element("summary", {}, "The same by the minute"), this.minutes),
      element("h3", {}, "Topics"),
      this.topics,
      this.more,
    );
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      askFrame(this);
    }).observe(root);
  }

  /** `history` as in an answer of /group; without one, nothing is shown. */
  show(history) {
    this.root.hidden = !history?.samples.length;
    if (this.root.hidden) return;
    this.brokenAfterMs = BROKEN_AFTER_INTERVALS * history.interval_ms;
    this.samples = history.samples.map(([atMs, lag, written, read]) => ({ atMs, lag, written, read }));
    setText(this.words, wordsOf(this.samples));
    setAttribute(this.svg, "aria-label", this.words.textContent);
    refresh(this.minutes, SAMPLES, byMinute(this.samples));
    refresh(this.topics, TOPICS, history.topics);
    setText(this.more, history.topics_left_out ? `… and ${count(history.topics_left_out)} more` : "");
    askFrame(this);
  }

  draw() {
    const { samples, width, brokenAfterMs } = this;
    if (!samples.length || width < LEFT + RIGHT + 40) return;
    const right = width - RIGHT;
    const toMs = samples.at(-1).atMs;
    const fromMs = Math.min(samples[0].atMs, toMs - MINUTE_MS);
    const x = linear(fromMs, toMs, LEFT, right);
    const lagTop = highest(samples, ["lag"], 10);
    const rateTop = highest(samples, ["written", "read"], 10);
    const lag = linear(0, lagTop, LAG.bottom, LAG.top);
    const rates = linear(0, rateTop, RATES.bottom, RATES.top);
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    setAttribute(this.svg, "width", width);
    setAttribute(this.paths["lag-area"], "d", area(samples, "lag", x, lag, LAG.bottom, brokenAfterMs));
    setAttribute(this.paths.lag, "d", line(samples, "lag", x, lag, brokenAfterMs));
    setAttribute(this.paths.written, "d", line(samples, "written", x, rates, brokenAfterMs));
    setAttribute(this.paths.read, "d", line(samples, "read", x, rates, brokenAfterMs));
    const most = Math.max(2, (right - LEFT) / TICK_PX);
    const step = TICKS_MS.find((each) => (toMs - fromMs) / each <= most) ?? TICKS_MS.at(-1);
    this.grid.replaceChildren(
      ...levels([0, 0.5, 1], lagTop, lag, right),
      ...levels([0, 1], rateTop, rates, right),
      ...steps(fromMs, toMs, step).flatMap((atMs) => moment(x(atMs), clock(atMs), right)),
      title("lag in records", LAG.top),
      title("records per second: written, and read (dashed)", RATES.top),
    );
  }
}

function levels(shares, top, scale, right) {
  return shares.flatMap((share) => {
    const y = scale(share * top).toFixed(1);
    return [
      drawing("line", { class: "level", x1: LEFT, x2: right, y1: y, y2: y }),
      drawing("text", { x: LEFT - 8, y: scale(share * top) + 4, "text-anchor": "end" }, short(share * top)),
    ];
  });
}

function moment(x, text, right) {
  const at = x.toFixed(1);
  const rule = drawing("line", { class: "moment", x1: at, x2: at, y1: LAG.top, y2: RATES.bottom });
  if (x - LEFT < 26 || right - x < 26) return [rule];
  return [rule, drawing("text", { x: at, y: RATES.bottom + 18, "text-anchor": "middle" }, text)];
}

function title(text, top) {
  return drawing("text", { class: "title", x: LEFT, y: top - 8 }, text);
}

/** The chart in one sentence. */
function wordsOf(samples) {
  const [first, last] = [samples[0], samples.at(-1)];
  const known = samples.filter((sample) => isNumber(sample.lag));
  if (!known.length) return `The lag is not known since ${clock(first.atMs)}.`;
  const most = known.reduce((one, other) => (other.lag > one.lag ? other : one));
  const rates = isNumber(last.written) ? `; ${rate(last.written)} written and ${rate(last.read)} read` : "";
  return (
    `Since ${clock(first.atMs)} the lag was at most ${count(most.lag)} records, at ${clock(most.atMs)}; ` +
    `at ${clock(last.atMs)} it was ${count(last.lag)}${rates}.`
  );
}

/** The last sample of each minute, the newest first. */
function byMinute(samples) {
  const minutes = new Map(samples.map((sample) => [Math.floor(sample.atMs / MINUTE_MS), sample]));
  return [...minutes.values()].reverse();
}

/** Replaces the table if it changed, lest a reader lose his place. */
function refresh(region, columns, rows) {
  const wanted = JSON.stringify(rows);
  if (region.dataset.rows === wanted) return;
  region.dataset.rows = wanted;
  region.replaceChildren(tableOf(columns, rows));
}
