// The view "Groups": groups of all types, and one of them with its members, tasks, offsets, lags and shared records.

import { AccessTable, tableOf } from "./access_table.js";
import { element, setAttribute, setOptions, setText } from "./element.js";
import { clock, count, duration, isNumber, NOTHING } from "./numbers.js";

const TYPING_MS = 250;
const REFRESH_MS = 2_000;
const TYPES = [
  ["", "all types"],
  ["classic", "classic"],
  ["consumer", "consumer"],
  ["share", "share"],
  ["streams", "streams"],
];
const seconds = (value) => (isNumber(value) ? duration(value * 1000) : NOTHING);
const offsets = (span) => (span.first === span.last ? count(span.first) : `${count(span.first)}–${count(span.last)}`);

const PARTITIONS = [
  ["topic", "topic"],
  ["partition", "partition", count],
  ["committed", "committed", count],
  ["end", "end", count],
  ["lag", "lag", count],
  ["lag in time", "lag_seconds", seconds],
  ["member", "member"],
];
const MEMBERS = [
  ["member", "member_id"],
  ["instance", "instance_id"],
  ["client", "client_id"],
  ["host", "host"],
  ["epoch", "epoch", count],
  ["partitions", "assignment"],
];
const STREAMS_MEMBERS = [
  ["member", "member_id"],
  ["client", "client_id"],
  ["host", "host"],
  ["process", "process_id"],
  ["epoch", "epoch", count],
  ["active tasks", "tasks", (tasks) => tasks.active || NOTHING],
  ["standby", "tasks", (tasks) => tasks.standby || NOTHING],
  ["warm-up", "tasks", (tasks) => tasks.warmup || NOTHING],
];
const SPANS = [
  ["offsets", "first", (_, span) => offsets(span)],
  ["state", "state", (state, span) => (span.becomes ? `${state}, becomes ${span.becomes}` : state)],
  ["deliveries", "deliveries", count],
  ["member", "member", (member, span) => (span.client ? `${member} (${span.client})` : (member ?? NOTHING))],
  ["since", "since_ms", (ms) => clock(ms)],
  ["lock ends", "lock_ends_ms", (ms) => clock(ms)],
];

export class Groups {
  /** `parts` are elements; `others` are the views that make room for this one. */
  constructor(parts, others) {
    Object.assign(this, { parts, others });
    this.path = "/groups";
    this.asked = 0;
    const columns = [
      ["group", "who", (name) => this.#button(name)],
      ["type", "type"],
      ["state", "state"],
      ["protocol", "protocol"],
    ];
    this.table = new AccessTable(parts.list, "groups", columns, this);
    setOptions(parts.type, TYPES);
    parts.toggle.addEventListener("click", () => this.toggle());
    parts.refresh.addEventListener("click", () => this.#load());
    parts.type.addEventListener("change", () => this.#load());
    parts.filter.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => {
        this.table.start = 0;
        this.table.load();
      }, TYPING_MS);
    });
    setInterval(() => this.shown && !document.hidden && this.group && this.#describe(), REFRESH_MS);
  }

  get shown() {
    return !this.parts.root.hidden;
  }

  get filter() {
    return { group: this.parts.filter.value.trim(), type: this.parts.type.value };
  }

  toggle() {
    const show = !this.shown;
    if (show) for (const other of this.others) if (other.shown) other.toggle();
    this.parts.root.hidden = !show;
    this.parts.board.hidden = show;
    setAttribute(this.parts.toggle, "aria-pressed", show ? "true" : "false");
    if (show) this.#load();
  }

  #load() {
    this.table.load();
    if (this.group) this.#describe();
  }

  #button(name) {
    const button = element("button", { type: "button", class: "quiet name" }, name);
    button.addEventListener("click", () => {
      this.group = name;
      this.#describe();
    });
    return button;
  }

  async #describe() {
    const mine = ++this.asked;
    let answer;
    try {
      const response = await fetch(`/group?${new URLSearchParams({ group: this.group })}`);
      if (!response.ok) throw new Error((await response.text()).trim().slice(0, 300));
      answer = await response.json();
    } catch (error) {
      answer = { group: this.group, problem: `It could not be loaded: ${error.message}` };
    }
    if (mine === this.asked) this.#show(answer);
  }

  #show(answer) {
    const { title, facts, body } = this.parts;
    this.parts.detail.hidden = false;
    setText(title, answer.group);
    setText(facts, answer.problem ? "" : summary(answer));
    const sections = answer.problem ? [element("p", { class: "plain" }, answer.problem)] : sectionsOf(answer);
    body.replaceChildren(...sections);
  }
}

function summary(answer) {
  const parts = [answer.type, answer.state, `epoch ${count(answer.epoch)}`];
  if (isNumber(answer.target_epoch) && answer.target_epoch !== answer.epoch) {
    parts.push(`assigned for epoch ${count(answer.target_epoch)}`);
  }
  if (isNumber(answer.topology_epoch)) parts.push(`topology epoch ${count(answer.topology_epoch)}`);
  parts.push(`coordinator ${answer.coordinator ?? NOTHING}`, `lag ${count(answer.lag)} records`);
  if (isNumber(answer.lag_seconds)) parts.push(`${seconds(answer.lag_seconds)} behind`);
  return parts.join(" · ");
}

function sectionsOf(answer) {
  const columns = answer.type === "streams" ? STREAMS_MEMBERS : MEMBERS;
  const sections = [
    ...section("Members", columns, answer.members, answer.members_left_out, "The group has no members."),
    ...section("Partitions", PARTITIONS, answer.partitions, answer.partitions_left_out, "Nothing is committed."),
  ];
  for (const it of answer.not_loaded ?? []) {
    const line = `${it.topic}-${it.partition}: its state could not be read, ${it.error} at ${clock(it.at_ms)}`;
    sections.push(element("p", { class: "plain" }, line));
  }
  for (const share of answer.shares ?? []) {
    const counts = Object.entries(share.counts).map(([state, number]) => `${count(number)} ${state}`);
    const title =
      `${share.topic}-${share.partition} on ${share.leader}: offsets ${count(share.start)} to ${count(share.end)} ` +
      `in flight${counts.length ? ` (${counts.join(", ")})` : ""}, high watermark ${count(share.high_watermark)}`;
    sections.push(...section(title, SPANS, share.spans, share.spans_left_out, "Nothing is in flight."));
    if (share.error) sections.push(element("p", { class: "plain" }, `The last change could not be stored: ${share.error}`));
  }
  return sections;
}

function section(title, columns, rows, leftOut, nothing) {
  const body = rows.length
    ? element("div", { class: "table", tabindex: "0", role: "region", "aria-label": title }, tableOf(columns, rows))
    : element("p", { class: "plain" }, nothing);
  const more = leftOut ? [element("p", { class: "plain" }, `… and ${count(leftOut)} more`)] : [];
  return [element("h3", {}, title), body, ...more];
}
