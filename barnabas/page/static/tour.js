// The tour: its lines as they arrive, and at its end the verdict and the gaps beside those of Apache Kafka.

import { Rows, element, setAttribute, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { count, duration, isNumber } from "./numbers.js";

const MOST_LINES = 100;

export class Tour {
  constructor({ panel, progress, steps, summary, hide }, announce) {
    Object.assign(this, { panel, progress, summary, hide, announce });
    this.hidden = false;
    hide.addEventListener("click", () => {
      this.hidden = true;
      askFrame(this);
    });
    this.told = [];
    this.lines = 0;
    this.last = null;
    this.shown = null;
    this.rows = new Rows(
      steps,
      () => ({ root: element("li") }),
      (row, line) => {
        setText(row.root, line.text);
        setAttribute(row.root, "aria-current", line === this.told.at(-1) && !this.last.finished ? "step" : null);
      },
    );
  }

  take(tour) {
    const step = isNumber(tour.step) ? tour.step : 0;
    const before = this.last;
    if (before && (step < before.step || (before.finished && tour.finished !== true))) this.told = []; // a new tour
    if (tour.finished !== true) this.hidden = false;
    const text = typeof tour.text === "string" ? tour.text : "";
    this.last = { step, of: tour.of, finished: tour.finished === true, summary: tour.summary ?? null };
    if (text && text !== this.told.at(-1)?.text) {
      this.told.push({ key: ++this.lines, text });
      if (this.told.length > MOST_LINES) this.told.shift();
      this.announce(text);
    }
    askFrame(this);
  }

  draw() {
    this.panel.hidden = this.last === null || this.hidden;
    if (this.last === null) return;
    const { step, of, finished, summary } = this.last;
    setText(this.progress, finished ? "finished" : isNumber(of) ? `step ${step} of ${of}` : "running");
    setAttribute(this.panel, "data-finished", finished);
    this.hide.hidden = !finished;
    this.rows.update(this.told, (line) => line.key);
    if (summary !== this.shown) {
      this.shown = summary;
      this.summary.replaceChildren(...(summary ? [numbers(summary), windows(summary)] : []));
    }
  }
}

function numbers(summary) {
  const rows = [
    ["records", "Records sent"],
    ["acked", "Acked"],
    ["lost", "Lost"],
    ["duplicated", "Duplicated"],
    ["out_of_order", "Out of order"],
  ];
  return element(
    "dl",
    { class: "totals" },
    ...rows.map(([key, title]) =>
      element(
        "div",
        {
          "data-total": key,
          "data-tone":
            isNumber(summary[key]) && ["lost", "duplicated", "out_of_order"].includes(key)
              ? summary[key] === 0
                ? "good"
                : "bad"
              : "calm",
        },
        element("dt", {}, title),
        element("dd", {}, count(summary[key])),
      ),
    ),
  );
}

function windows(summary) {
  const list = Array.isArray(summary.windows) ? summary.windows.filter((item) => item && typeof item === "object") : [];
  const longest = Math.max(1, ...list.flatMap((item) => [item.gap_ms, item.apache_kafka_gap_ms]).filter(isNumber));
  const bar = (ms, name) => {
    const fill = element("i", { hidden: !isNumber(ms) });
    fill.style.setProperty("--share", isNumber(ms) ? `${(100 * ms) / longest}%` : "0%");
    return element(
      "td",
      { "data-of": name },
      element("span", { class: "gap", "aria-hidden": "true" }, fill),
      element("b", {}, duration(ms)),
    );
  };
  const head = element(
    "tr",
    {},
    ...["Fault", "Barnabas: longest gap", "Apache Kafka: longest gap"].map((title) =>
      element("th", { scope: "col" }, title),
    ),
  );
  const body = list.map((item) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, String(item.what ?? "")),
      bar(item.gap_ms, "barnabas"),
      bar(item.apache_kafka_gap_ms, "kafka"),
    ),
  );
  return element(
    "table",
    { class: "windows" },
    element("caption", { class: "unseen" }, "Longest gap by fault"),
    element("thead", {}, head),
    element("tbody", {}, ...body),
  );
}
