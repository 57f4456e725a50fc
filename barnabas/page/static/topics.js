// The view "Topics": all topics, and one of them with its partitions, configs and records.

import { tableOf } from "./access_table.js";
import { element, setText } from "./element.js";
import { ListView } from "./list_view.js";
import { bytes, count, isNumber, NOTHING } from "./numbers.js";
import { Records } from "./records.js";

const REFRESH_MS = 2_000;
const STATES = [
  ["", "all topics"],
  ["healthy", "healthy"],
  ["under-replicated", "under-replicated"],
  ["offline", "offline"],
  ["internal", "internal"],
  ["moving", "moving"],
];
const list = (brokers) => brokers.join(", ") || NOTHING;

/** The brokers that join are marked with +, those that leave with −. */
const moves = (row) => [...row.joining.map((id) => `+${id}`), ...row.leaving.map((id) => `−${id}`)].join(", ");
const partitions = (total, row) => (row.moving ? `${count(total)}, ${count(row.moving)} move` : count(total));

const PARTITIONS = [
  ["partition", "partition", count],
  ["leader", "leader", (leader) => (isNumber(leader) ? String(leader) : "none")],
  ["in sync", "isr", list],
  ["replicas", "replicas", (ids, row) => (moves(row) ? `${list(ids)} (${moves(row)})` : list(ids))],
  ["first offset", "start", count],
  ["end offset", "end", count],
  ["size of all replicas", "size_bytes", bytes],
];
const CONFIGS = [
  ["config", "name"],
  ["value", "value", (value, row) => (row.is_sensitive ? "secret" : (value ?? NOTHING))],
  ["source", "source"],
];

export class Topics extends ListView {
  /** `parts` and `others` as in `ListView`; `parts.records` are the elements of `Records`. */
  constructor(parts, others) {
    const columns = (button) => [
      ["topic", "who", button],
      ["state", "state", (state, row) => (row.is_internal ? `${state}, internal` : state)],
      ["partitions", "partitions", partitions],
      ["replicas", "replicas", count],
      ["size of all replicas", "size_bytes", bytes],
    ];
    super(parts, others, { name: "topics", one: "topic", kinds: STATES, columns });
    this.records = new Records(parts.records);
    this.table.taken = (answer) => (this.moving = answer.moving);
    setInterval(() => this.shown && !document.hidden && this.moving && this.load(), REFRESH_MS);
  }

  get filter() {
    return { topic: this.parts.filter.value.trim(), state: this.parts.kind.value };
  }

  show(answer) {
    const { title, facts, body } = this.parts;
    setText(title, answer.topic);
    if (answer.problem) {
      setText(facts, "");
      this.records.hide();
      body.replaceChildren(element("p", { class: "plain" }, answer.problem));
      return;
    }
    setText(
      facts,
      `${answer.state} · ${count(answer.partitions)} partitions` +
        (answer.moving ? ` (${count(answer.moving)} move)` : "") +
        ` · ${count(answer.replicas)} replicas · ` +
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
