// The chart: load, latency and marks on one time axis, with shaded faults and the longest gap as a measured span.

import { Rows, drawing, setAttribute, setText } from "./element.js";
import { clock, count, duration, short } from "./numbers.js";
import { area, clusters, decadeAbove, highest, line, linear, logarithmic, steps } from "./plot.js";
import { LANES, kindLook, markLook } from "./shapes.js";

const LEFT = 66;
const RIGHT = 14;
const BANDS_TOP = 2;
const RATE = { top: 56, bottom: 184 };
const LATENCY = { top: 214, bottom: 292 };
/** The layout without latency: the rate takes the place of both. */
const RATE_ALONE = { top: 56, bottom: 292 };
const LANES_TOP = 308;
const LANE = 22;
const AXIS = LANES_TOP + LANES.length * LANE + 4;
const HEIGHT = AXIS + 24;
const MARK_PX = 17;
/** Approximate width of a character in the names of faults. */
const LETTER = 6.6;
const STEMMED = new Set(["faults", "elections"]);

const line1 = (attributes) => drawing("line", attributes);
const words = (attributes, text = "") => drawing("text", attributes, text);

export class Chart {
  /** `open(mark)` shows the cause. */
  constructor(root, history, marks, open) {
    Object.assign(this, { history, marks, open });
    this.width = 0;
    /** The page is read-only and knows no latency. */
    this.looksOn = false;
    const group = (name, ...children) => drawing("g", { class: name }, ...children);
    const paths = {};
    for (const name of ["acked-area", "read", "acked", "p50", "p99"])
      paths[name] = drawing("path", { class: `series ${name}` });
    this.paths = paths;
    this.grid = group("grid");
    this.bands = group("bands");
    this.markLayer = group("marks");
    this.bandWords = group("band-words");
    this.gap = group("gap", drawing("path"), words({}));
    this.cross = line1({ class: "cross", y1: RATE.top, y2: AXIS });
    this.clip = drawing("rect", { x: LEFT, y: RATE.top - 2, height: LATENCY.bottom + 4 - RATE.top });
    const lines = drawing("g", { "clip-path": "url(#plot)" }, ...Object.values(paths));
    const clip = drawing("clipPath", { id: "plot" }, this.clip);
    this.svg = drawing(
      "svg",
      { role: "img", tabindex: 0, height: HEIGHT },
      clip,
      this.bands,
      this.grid,
      lines,
      this.markLayer,
      this.bandWords,
      this.gap,
      this.cross,
    );
    root.append(this.svg);
    this.gridRows = new Rows(this.grid, makeGridLine, (row, item) => this.#refreshGridLine(row, item));
    this.bandRows = new Rows(
      this.bands,
      () => ({ root: drawing("rect", { y: BANDS_TOP, height: AXIS - BANDS_TOP }) }),
      (row, band) => this.#refreshBand(row, band),
    );
    this.bandWordRows = new Rows(
      this.bandWords,
      (label) => ({ root: words({}, label.words) }),
      (row, label) => place(row.root, label.x, label.y, "start"),
    );
    this.markRows = new Rows(
      this.markLayer,
      (cluster) => this.#makeMark(cluster),
      (row, cluster) => this.#refreshMark(row, cluster),
    );
  }

  /** Draws a period; `hoverMs` is the time under the pointer, or null. */
  draw(fromMs, toMs, hoverMs) {
    const width = this.width;
    if (width < LEFT + RIGHT + 40) return;
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    setAttribute(this.svg, "width", width);
    setAttribute(this.clip, "width", width - RIGHT - LEFT);
    const right = width - RIGHT;
    this.fromMs = fromMs;
    this.toMs = toMs;
    this.right = right;
    this.x = linear(fromMs, toMs, LEFT, right);
    const samples = this.history.samplesBetween(fromMs, toMs);
    // A consumer that catches up reads fast for a moment: its line may leave the plot.
    const ackedTop = highest(samples, ["acked"], 10);
    const rateTop = Math.min(highest(samples, ["acked", "read"], 10), 2 * ackedTop);
    const latencyTop = Math.max(100, decadeAbove(highest(samples, ["p50", "p99"], 1)));
    const plot = this.looksOn ? RATE_ALONE : RATE;
    const rate = linear(0, rateTop, plot.bottom, plot.top);
    const latency = logarithmic(1, latencyTop, LATENCY.bottom, LATENCY.top);
    this.#drawSeries(samples, rate, latency, plot.bottom);
    this.#drawGrid(rate, rateTop, latency, latencyTop);
    const bands = this.history.bandsBetween(fromMs, toMs);
    this.bandRows.update(bands, (band) => band.key);
    this.bandWordRows.update(this.#placeBandWords(bands), (band) => band.key);
    this.#drawMarks();
    this.#drawGap(this.history.gap);
    this.#drawCross(hoverMs);
  }

  /** The time at a position of the pointer, or null. */
  timeAt(clientX) {
    if (!this.x) return null;
    const at =
      this.fromMs +
      ((clientX - this.svg.getBoundingClientRect().left - LEFT) / (this.right - LEFT)) * (this.toMs - this.fromMs);
    return at >= this.fromMs && at <= this.toMs ? at : null;
  }

  #inside(atMs) {
    return Math.min(this.right, Math.max(LEFT, this.x(atMs)));
  }

  #drawSeries(samples, rate, latency, floor) {
    const { x } = this;
    setAttribute(this.paths["acked-area"], "d", area(samples, "acked", x, rate, floor));
    setAttribute(this.paths.acked, "d", line(samples, "acked", x, rate));
    setAttribute(this.paths.read, "d", line(samples, "read", x, rate));
    setAttribute(this.paths.p50, "d", line(samples, "p50", x, latency));
    setAttribute(this.paths.p99, "d", line(samples, "p99", x, latency));
    const newest = samples.at(-1);
    setAttribute(
      this.svg,
      "aria-label",
      newest
        ? `From ${clock(this.fromMs)} to ${clock(this.toMs)}: ${this.#values(newest)} at the end`
        : "No load in this period",
    );
  }

  #values(sample) {
    if (this.looksOn) return `${count(sample.acked)} records committed per second`;
    return `${count(sample.acked)} records acked and ${count(sample.read)} read per second, latency p99 ${duration(sample.p99)}`;
  }

  #drawGrid(rate, rateTop, latency, latencyTop) {
    const lines = [];
    for (const share of [0, 0.5, 1])
      lines.push({ key: `rate ${share}`, y: rate(share * rateTop), text: short(share * rateTop) });
    for (let tick = 1; tick <= latencyTop && !this.looksOn; tick *= 10)
      lines.push({ key: `latency ${tick}`, y: latency(tick), text: tick < 1000 ? `${tick} ms` : `${tick / 1000} s` });
    LANES.forEach((name, index) =>
      lines.push({ key: name, y: LANES_TOP + LANE * (index + 0.5), text: name, lane: true }),
    );
    const step = this.right - LEFT > 560 ? 15000 : this.right - LEFT > 300 ? 30000 : 60000;
    for (const atMs of steps(this.fromMs, this.toMs, step))
      lines.push({ key: `time ${atMs}`, atMs, text: clock(atMs) });
    lines.push(
      { key: "title rate", title: "records per second", y: RATE.top - 8 },
      { key: "title latency", title: this.looksOn ? "" : "latency", y: LATENCY.top - 8 },
    );
    this.gridRows.update(lines, (item) => item.key);
  }

  #refreshGridLine(row, item) {
    if (item.title !== undefined) {
      setText(row.text, item.title);
      place(row.text, LEFT, item.y, "start");
      return;
    }
    setText(row.text, item.text);
    if (item.atMs !== undefined) {
      const x = this.x(item.atMs).toFixed(1);
      for (const [name, value] of Object.entries({ x1: x, x2: x, y1: RATE.top, y2: AXIS }))
        setAttribute(row.line, name, value);
      const isCut = x - LEFT < 26 || this.right - x < 26;
      setAttribute(row.text, "visibility", isCut ? "hidden" : null);
      place(row.text, x, AXIS + 16, "middle");
      return;
    }
    const y = item.y.toFixed(1);
    for (const [name, value] of Object.entries({ x1: LEFT, x2: this.right, y1: y, y2: y }))
      setAttribute(row.line, name, value);
    place(row.text, LEFT - 8, item.y + 4, "end");
  }

  #refreshBand(row, band) {
    const from = this.#inside(band.fromMs);
    setAttribute(row.root, "x", from.toFixed(1));
    setAttribute(row.root, "width", Math.max(1.5, this.#inside(band.toMs ?? this.toMs) - from).toFixed(1));
  }

  /** Places names of faults in two lines, without overlap where possible. */
  #placeBandWords(bands) {
    const endOf = [-Infinity, -Infinity];
    return bands
      .toSorted((one, other) => one.fromMs - other.fromMs)
      .map((band) => {
        const width = band.words.length * LETTER;
        const from = Math.min(this.#inside(band.fromMs) + 5, this.right - 4 - width);
        const row = endOf[0] <= from || endOf[0] <= endOf[1] ? 0 : 1;
        const x = Math.max(from, LEFT + 4);
        endOf[row] = x + width + LETTER;
        return { key: band.key, words: band.words, x, y: BANDS_TOP + 14 + 15 * row };
      });
  }

  #drawMarks() {
    const widthMs = (MARK_PX / (this.right - LEFT)) * (this.toMs - this.fromMs);
    const lanes = new Map(LANES.map((name) => [name, []]));
    for (const mark of this.marks.between(this.fromMs, this.toMs)) lanes.get(kindLook(mark.kind).lane).push(mark);
    const all = [];
    for (const [name, marks] of lanes)
      for (const cluster of clusters(marks, widthMs)) all.push({ lane: name, marks: cluster });
    this.markRows.update(all, (cluster) => `${cluster.lane} ${cluster.marks[0].key}`);
  }

  #makeMark(cluster) {
    const { path, tone } = markLook(cluster.marks[0]);
    const y = LANES_TOP + LANE * (LANES.indexOf(cluster.lane) + 0.5);
    const row = {
      title: drawing("title"),
      number: words({ x: 10, y: y + 4, class: "how-many" }),
      first: cluster.marks[0],
    };
    const shape = drawing("path", { d: path, "fill-rule": "evenodd", transform: `translate(-8 ${y - 8})` });
    const stem = STEMMED.has(cluster.lane) ? [line1({ class: "stem", y1: RATE.top, y2: y - 9 })] : [];
    const reach = drawing("rect", { class: "reach", x: -9, y: y - 11, width: 18, height: 22 });
    row.root = drawing(
      "g",
      { class: "mark", "data-tone": tone, "data-kind": cluster.marks[0].kind },
      row.title,
      ...stem,
      reach,
      shape,
      row.number,
    );
    row.root.addEventListener("click", () => this.open(row.first));
    return row;
  }

  #refreshMark(row, { marks }) {
    setAttribute(row.root, "transform", `translate(${this.x(marks[0].atMs).toFixed(1)} 0)`);
    setAttribute(row.root, "data-kinds", [...new Set(marks.map((mark) => mark.kind))].join(" "));
    setText(row.number, marks.length > 1 ? marks.length : "");
    const more = marks.length > 4 ? `\nand ${marks.length - 4} more` : "";
    setText(
      row.title,
      marks
        .slice(0, 4)
        .map((mark) => `${clock(mark.atMs)} ${mark.text}`)
        .join("\n") + more,
    );
  }

  #drawGap(gap) {
    const isSeen = gap !== null && gap.toMs > this.fromMs && gap.fromMs < this.toMs;
    setAttribute(this.gap, "visibility", isSeen ? null : "hidden");
    if (!isSeen) return;
    const from = this.#inside(gap.fromMs);
    const to = this.#inside(gap.toMs);
    const y = (RATE.top + RATE.bottom) / 2;
    setAttribute(this.gap.firstChild, "d", `M${from} ${y - 7}V${y + 7}M${from} ${y}H${to}M${to} ${y - 7}V${y + 7}`);
    setText(this.gap.lastChild, `longest gap ${duration(gap.ms)}`);
    const isLate = to > this.right - 150;
    place(this.gap.lastChild, isLate ? from - 8 : to + 8, y + 4, isLate ? "end" : "start");
  }

  #drawCross(hoverMs) {
    setAttribute(this.cross, "visibility", hoverMs === null ? "hidden" : null);
    if (hoverMs === null) return;
    setAttribute(this.cross, "x1", this.x(hoverMs).toFixed(1));
    setAttribute(this.cross, "x2", this.x(hoverMs).toFixed(1));
  }
}

function makeGridLine(item) {
  const row = {
    line: line1({ class: item.lane ? "lane" : item.atMs === undefined ? "level" : "moment" }),
    text: words({ class: item.title === undefined ? null : "title" }),
  };
  row.root = drawing("g", {}, ...(item.title === undefined ? [row.line] : []), row.text);
  return row;
}

function place(text, x, y, anchor) {
  setAttribute(text, "x", typeof x === "number" ? x.toFixed(1) : x);
  setAttribute(text, "y", typeof y === "number" ? y.toFixed(1) : y);
  setAttribute(text, "text-anchor", anchor);
}
