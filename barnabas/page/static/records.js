// Records of a topic, from the REST interface of the page: from an offset, a time or an end, filtered, decoded.

import { tableOf } from "./access_table.js";
import { element, setText } from "./element.js";
import { count, NOTHING } from "./numbers.js";

const MOST_CHARACTERS = 2_000;
const MOST_RECORDS = 50;

function shown(part) {
  if (!part) return NOTHING;
  const isText = part.type === "STRING" || part.type === "BINARY";
  const text = isText ? part.data : JSON.stringify(part.data, null, 2);
  const cut = text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}…` : text;
  return element("pre", { title: part.type === "BINARY" ? "base64" : part.type.toLowerCase() }, cut);
}

const COLUMNS = [
  ["partition", "partition_id", count],
  ["offset", "offset", count],
  ["time", "timestamp"],
  ["key", "key", shown],
  ["value", "value", shown],
  ["headers", "headers", (headers) => headers.map((each) => each.name).join(", ") || NOTHING],
];

export class Records {
  /** `parts` are elements: a form with its fields, a line, a body and a button. */
  constructor(parts) {
    this.parts = parts;
    this.asked = 0;
    this.after = "";
    parts.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.after = "";
      this.#load();
    });
    parts.more.addEventListener("click", () => this.#load());
  }

  hide() {
    this.parts.root.hidden = true;
  }

  /** `topic` as the server describes it. */
  show(topic) {
    this.parts.root.hidden = false;
    this.parts.form.hidden = !topic.has_records;
    if (this.path === undefined || this.topic !== topic.topic) {
      this.topic = topic.topic;
      this.after = "";
      this.parts.more.hidden = true;
      this.parts.body.replaceChildren();
      const hint = topic.has_records ? "" : "Records are shown by a page that was started with --rest.";
      setText(this.parts.told, hint);
    }
    const cluster = encodeURIComponent(topic.cluster_id);
    this.path = `/v3/clusters/${cluster}/topics/${encodeURIComponent(topic.topic)}/records`;
  }

  #query() {
    const { from, partition, contains, format } = this.parts;
    const query = { from: from.value.trim() || "latest", value: format.value, max: MOST_RECORDS };
    if (partition.value.trim()) query.partition = partition.value.trim();
    if (contains.value) query.contains = contains.value;
    if (this.after) query.after = this.after;
    return new URLSearchParams(query);
  }

  async #load() {
    const { told, body, more } = this.parts;
    const mine = ++this.asked;
    setText(told, "Loading …");
    let answer;
    try {
      const response = await fetch(`${this.path}?${this.#query()}`);
      answer = await response.json();
      if (!response.ok) throw new Error(answer.message);
    } catch (error) {
      answer = { data: [], problem: `They could not be loaded: ${error.message}` };
    }
    if (mine !== this.asked) return;
    this.after = answer.metadata?.after ?? "";
    more.hidden = !answer.data.length;
    setText(told, answer.problem ?? (answer.data.length ? `${count(answer.data.length)} records` : "No records."));
    const table = { class: "table", tabindex: "0", role: "region", "aria-label": "Table of records" };
    body.replaceChildren(...(answer.data.length ? [element("div", table, tableOf(COLUMNS, answer.data))] : []));
  }
}
