// The view "Topics": all topics, and one of them with its partitions, configs and records.

import { AccessTable, tableOf } from "./access_table.js";
import { element, setAttribute, setOptions, setText } from "./element.js";
import { bytes, count, isNumber, NOTHING } from "./numbers.js";
import { Records } from "./records.js";

const TYPING_MS = 250;
const STATES = [
  ["", "all topics"],
  ["healthy", "healthy"],
  ["under-replicated", "under-replicated"],
  ["offline", "offline"],
  ["internal", "internal"],
];
const list = (brokers) => brokers.join(", ") || NOTHING;

const PARTITIONS = [
  ["partition", "partition", count],
  ["leader", "leader", (leader) => (isNumber(leader) ? String(leader) : "none")],
  ["in sync", "isr", list],
  ["replicas", "replicas", list],
  ["first offset", "start", count],
  ["end offset", "end", count],
  ["size of all replicas", "size_bytes", bytes],
];
const CONFIGS = [
  ["config", "name"],
  ["value", "value", (value, row) => (row.is_sensitive ? "secret" : (value ?? NOTHING))],
  ["source", "source"],
];

export class Topics {
  /** `parts` are elements; `others` are the views that make room for this one. */
  constructor(parts, others) {
    Object.assign(this, { parts, others });
    this.path = "/topics";
    this.asked = 0;
    const columns = [
      ["topic", "who", (name) => this.#button(name)],
      ["state", "state", (state, row) => (row.is_internal ? `${state}, internal` : state)],
      ["partitions", "partitions", count],
      ["replicas", "replicas", count],
      ["size of all replicas", "size_bytes", bytes],
    ];
    this.table = new AccessTable(parts.list, "topics", columns, this);
    this.records = new Records(parts.records);
    setOptions(parts.state, STATES);
    parts.toggle.addEventListener("click", () => this.toggle());
    parts.refresh.addEventListener("click", () => this.#load());
    parts.state.addEventListener("change", () => this.#loadFirst());
    parts.filter.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.#loadFirst(), TYPING_MS);
    });
  }

  get shown() {
    return !this.parts.root.hidden;
  }

  get filter() {
    return { topic: this.parts.filter.value.trim(), state: this.parts.state.value };
  }

  toggle() {
    const show = !this.shown;
    if (show) for (const other of this.others) if (other.shown) other.toggle();
    this.parts.root.hidden = !show;
    this.parts.board.hidden = show;
    setAttribute(this.parts.toggle, "aria-pressed", show ? "true" : "false");
    if (show) this.#load();
  }

  #loadFirst() {
    this.table.start = 0;
    this.table.load();
  }

  #load() {
    this.table.load();
    if (this.topic) this.#describe();
  }

  #button(name) {
    const button = element("button", { type: "button", class: "quiet name" }, name);
    button.addEventListener("click", () => {
      this.topic = name;
      this.#describe();
    });
    return button;
  }

  async #describe() {
    const mine = ++this.asked;
    let answer;
    try {
      const response = await fetch(`/topic?${new URLSearchParams({ topic: this.topic })}`);
      if (!response.ok) throw new Error((await response.text()).trim().slice(0, 300));
      answer = await response.json();
    } catch (error) {
      answer = { topic: this.topic, problem: `It could not be loaded: ${error.message}` };
    }
    if (mine === this.asked) this.#show(answer);
  }

  #show(answer) {
    const { title, facts, body } = this.parts;
    this.parts.detail.hidden = false;
    setText(title, answer.topic);
    if (answer.problem) {
      setText(facts, "");
      this.records.hide();
      body.replaceChildren(element("p", { class: "plain" }, answer.problem));
      return;
    }
    setText(
      facts,
      `${answer.state} · ${count(answer.partitions)} partitions · ${count(answer.replicas)} replicas · ` +
        `${bytes(answer.size_bytes)} · id ${answer.topic_id ?? NOTHING}`,
    );
    const more = answer.rows_left_out
      ? [element("p", { class: "plain" }, `… and ${count(answer.rows_left_out)} more`)]
      : [];
    const set = answer.configs.filter((each) => !each.is_default);
    const rest = answer.configs.filter((each) => each.is_default);
    body.replaceChildren(
      element("h3", {}, "Partitions"),
      region("Partitions", PARTITIONS, answer.rows),
      ...more,
      element("h3", {}, "Configs"),
      set.length ? region("Configs", CONFIGS, set) : element("p", { class: "plain" }, "All configs have their defaults."),
      element("details", {}, element("summary", {}, `${count(rest.length)} defaults`), region("Defaults", CONFIGS, rest)),
    );
    this.records.show(answer);
  }
}

function region(title, columns, rows) {
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": title }, tableOf(columns, rows));
}
