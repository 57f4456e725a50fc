// The view "Groups": groups of all types, and one of them with its members, tasks, offsets, lags and shared records.

import { tableOf } from "./access_table.js";
import { element, setText } from "./element.js";
import { LagChart } from "./lag_chart.js";
import { ListView } from "./list_view.js";
import { clock, count, duration, isNumber, NOTHING } from "./numbers.js";

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

export class Groups extends ListView {
  /** `parts` and `others` as in `ListView`; `parts.lag` is the figure for `LagChart`. */
  constructor(parts, others) {
    const columns = (button) => [
      ["group", "who", button],
      ["type", "type"],
      ["state", "state"],
      ["protocol", "protocol"],
    ];
    super(parts, others, { name: "groups", one: "group", kinds: TYPES, columns });
    this.chart = new LagChart(parts.lag);
    setInterval(() => this.shown && !document.hidden && this.chosen && this.describe(), REFRESH_MS);
  }

  get filter() {
    return { group: this.parts.filter.value.trim(), type: this.parts.kind.value };
  }

  show(answer) {
    const { title, facts, body } = this.parts;
    setText(title, answer.group);
    setText(facts, answer.problem ? "" : summary(answer));
    const sections = answer.problem ? [element("p", { class: "plain" }, answer.problem)] : sectionsOf(answer);
    this.chart.show(answer.history);
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
