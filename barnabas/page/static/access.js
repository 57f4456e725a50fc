// The view "Access": ACLs, users, delegation tokens, quotas and denials, page by page, and the question who may do what.

import { AccessTable } from "./access_table.js";
import { element, setAttribute, setOptions, setText } from "./element.js";
import { count, duration, isNumber } from "./numbers.js";

const TYPING_MS = 250;
const QUOTAS_MS = 5_000;
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "user", "delegation_token"];
const OPERATIONS = [
  "read",
  "write",
  "create",
  "delete",
  "alter",
  "describe",
  "describe_configs",
  "alter_configs",
  "cluster_action",
  "idempotent_write",
  "create_tokens",
  "describe_tokens",
  "two_phase_commit",
  "all",
];
const words = (names) => names.map((name) => [name, name.replaceAll("_", " ")]);
const moment = (ms) => (isNumber(ms) ? new Date(ms).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "–");
const TABLES = {
  acls: [
    ["principal", "who"],
    ["permission", "permission"],
    ["operation", "operation", (value) => value.replaceAll("_", " ")],
    ["resource", "resource", (value) => value.replaceAll("_", " ")],
    ["name", "name"],
    ["pattern", "pattern"],
    ["host", "host"],
  ],
  denials: [
    ["time", "at_ms", moment],
    ["denied", "what"],
    ["because", "cause"],
    ["times", "times", count],
  ],
  users: [
    ["user", "who"],
    ["mechanism", "mechanism"],
    ["iterations", "iterations", count],
  ],
  tokens: [
    ["owner", "who"],
    ["token", "token"],
    ["renewers", "renewers", (value) => value.join(", ") || "–"],
    ["expires", "expires_ms", moment],
    ["renewable until", "renewable_until_ms", moment],
  ],
  quotas: [
    ["client", "who"],
    ["quota", "quota"],
    ["limit", "value", String],
  ],
};

export class Access {
  /** `parts` are elements. */
  constructor(parts) {
    this.parts = parts;
    this.others = [];
    this.tables = Object.entries(TABLES).map(
      ([name, columns]) => new AccessTable(document.getElementById(`access-${name}`), name, columns, this),
    );
    this.quotas = this.tables.find((table) => table.name === "quotas");
    this.denials = this.tables.find((table) => table.name === "denials");
    this.quotas.taken = (answer) => this.#showThrottled(answer.throttled);
    setOptions(parts.operation, words(OPERATIONS));
    setOptions(parts.resource, words(RESOURCES));
    parts.toggle.addEventListener("click", () => this.toggle());
    parts.refresh.addEventListener("click", () => this.#load());
    for (const input of [parts.who, parts.what]) input.addEventListener("input", () => this.#typed());
    parts.resource.addEventListener("change", () => this.#fitResource());
    parts.question.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#check();
    });
    setInterval(() => this.shown && !document.hidden && this.quotas.load(), QUOTAS_MS);
  }

  get shown() {
    return !this.parts.root.hidden;
  }

  get filter() {
    return { principal: this.parts.who.value.trim(), resource: this.parts.what.value.trim() };
  }

  toggle() {
    const show = !this.shown;
    if (show) for (const other of this.others) if (other.shown) other.toggle();
    this.parts.root.hidden = !show;
    this.parts.board.hidden = show;
    setAttribute(this.parts.toggle, "aria-pressed", show ? "true" : "false");
    if (show) this.#load();
  }

  /** A new event; denials are loaded again. */
  take(mark) {
    if (this.shown && mark.kind === "access") this.denials.loadSoon();
  }

  #load() {
    for (const table of this.tables) table.load();
  }

  #typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      for (const table of this.tables) table.start = 0;
      this.#load();
    }, TYPING_MS);
  }

  #showThrottled(throttled) {
    const rows = (Array.isArray(throttled) ? throttled : []).map((row) =>
      element(
        "li",
        {},
        element("b", {}, row.who),
        ` is held back by ${row.node} for ${duration(row.left_ms)}: ${row.quota} ${count(row.rate)} of ${count(row.limit)}`,
      ),
    );
    this.parts.throttled.replaceChildren(...rows);
    setAttribute(this.parts.throttled, "data-empty", rows.length ? null : "Nobody is held back now.");
  }

  #fitResource() {
    const isCluster = this.parts.resource.value === "cluster";
    this.parts.name.disabled = isCluster;
    setAttribute(this.parts.name, "placeholder", isCluster ? "the cluster itself" : "name");
  }

  async #check() {
    const { principal, operation, resource, name, host, verdict } = this.parts;
    const query = new URLSearchParams({
      principal: principal.value,
      operation: operation.value,
      resource: resource.value,
      name: name.value,
      host: host.value,
    });
    const mine = (this.asked = (this.asked ?? 0) + 1);
    setText(verdict, "asking …");
    setAttribute(verdict, "data-tone", "calm");
    let tone = "bad";
    let line;
    try {
      const response = await fetch(`/access/check?${query}`);
      if (!response.ok) throw new Error((await response.text()).trim().slice(0, 300));
      const answer = await response.json();
      if (answer.problem) throw new Error(answer.problem);
      tone = answer.allowed ? "good" : "bad";
      line = `${answer.allowed ? "Yes" : "No"}: ${answer.reason}`;
    } catch (error) {
      tone = "warn";
      line = error.message;
    }
    if (mine !== this.asked) return;
    setText(verdict, line);
    setAttribute(verdict, "data-tone", tone);
  }
}
