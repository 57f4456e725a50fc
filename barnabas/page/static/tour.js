// The tour: its steps as they happen, and at its end what was lost, and how long the gaps were beside Apache Kafka's.

import { Rows, element, setAttribute, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { count, duration, isNumber } from "./numbers.js";

const MOST_STEPS = 100;

export class Tour {
  constructor(panel, progress, steps, summary, announce) {
    Object.assign(this, { panel, progress, summary, announce });
    this.steps = new Map();
    this.last = null;
    this.shown = null;
    this.rows = new Rows(steps, () => ({ root: element("li") }), (row, step) => {
      setText(row.root, step.text);
      setAttribute(row.root, "aria-current", step === this.last && !step.finished ? "step" : null);
    });
  }

  take(tour) {
    const step = isNumber(tour.step) ? tour.step : 0;
    if (this.last && (step < this.last.step || (this.last.finished && !tour.finished))) this.steps.clear(); // it began anew
    const isNew = this.last?.text !== tour.text;
    this.last = { step, of: tour.of, text: typeof tour.text === "string" ? tour.text : "", finished: tour.finished === true, summary: tour.summary ?? null };
    if (this.last.text) this.steps.set(step, this.last);
    if (this.steps.size > MOST_STEPS) this.steps.delete(this.steps.keys().next().value);
    if (isNew && this.last.text) this.announce(this.last.text);
    askFrame(this);
  }

  draw() {
    this.panel.hidden = this.last === null;
    if (this.last === null) return;
    const { step, of, finished, summary } = this.last;
    setText(this.progress, finished ? "finished" : isNumber(of) ? `step ${step} of ${of}` : "under way");
    setAttribute(this.panel, "data-finished", finished);
    this.rows.update([...this.steps.values()], (item) => item.step);
    if (summary !== this.shown) {
      this.shown = summary;
      this.summary.replaceChildren(...(summary ? [numbers(summary), windows(summary)] : []));
    }
  }
}

function numbers(summary) {
  const rows = [["records", "Records sent"], ["acked", "Acked"], ["lost", "Lost"], ["duplicated", "Duplicated"], ["out_of_order", "Out of order"]];
  return element(
    "dl",
    { class: "totals" },
    ...rows.map(([key, title]) =>
      element("div", { "data-total": key, "data-tone": isNumber(summary[key]) && ["lost", "duplicated", "out_of_order"].includes(key) ? (summary[key] === 0 ? "good" : "bad") : "calm" }, element("dt", {}, title), element("dd", {}, count(summary[key]))),
    ),
  );
}

function windows(summary) {
  const list = Array.isArray(summary.windows) ? summary.windows.filter((item) => item && typeof item === "object") : [];
  const longest = Math.max(1, ...list.flatMap((item) => [item.gap_ms, item.apache_kafka_gap_ms]).filter(isNumber));
  const bar = (ms, name) => {
    const fill = element("i");
    fill.style.setProperty("--share", isNumber(ms) ? `${(100 * ms) / longest}%` : "0%");
    return element("td", { "data-of": name }, element("span", { class: "gap", "aria-hidden": "true" }, fill), element("b", {}, duration(ms)));
  };
  const head = element("tr", {}, ...["Fault", "Barnabas: longest gap", "Apache Kafka: the same"].map((title) => element("th", { scope: "col" }, title)));
  const body = list.map((item) => element("tr", {}, element("th", { scope: "row" }, String(item.what ?? "")), bar(item.gap_ms, "barnabas"), bar(item.apache_kafka_gap_ms, "kafka")));
  return element("table", { class: "windows" }, element("caption", { class: "unseen" }, "Longest gap for each fault"), element("thead", {}, head), element("tbody", {}, ...body));
}
