// The view "Schemas": the subjects of a schema registry, and one of them with its versions and its newest schema.

import { tableOf } from "./access_table.js";
import { element, setText } from "./element.js";
import { ListView } from "./list_view.js";
import { count } from "./numbers.js";

const TYPES = [
  ["", "all types"],
  ["Avro", "Avro"],
  ["JSON Schema", "JSON Schema"],
  ["Protobuf", "Protobuf"],
];
const REFERENCES = [
  ["name", "name"],
  ["subject", "subject"],
  ["version", "version", count],
];

export class Schemas extends ListView {
  /** `parts` and `others` as in `ListView`. */
  constructor(parts, others) {
    const columns = (button) => [
      ["subject", "who", button],
      ["type", "type"],
      ["newest version", "version", count],
      ["id", "id", count],
    ];
    super(parts, others, { name: "schemas", one: "schema", kinds: TYPES, columns });
  }

  get filter() {
    return { schema: this.parts.filter.value.trim(), type: this.parts.kind.value };
  }

  show(answer) {
    const { title, facts, body } = this.parts;
    setText(title, answer.schema);
    if (answer.problem) {
      setText(facts, "");
      body.replaceChildren(plain(answer.problem));
      return;
    }
    setText(facts, `${answer.type} · version ${answer.version} · id ${answer.id} · compatibility ${answer.compatibility}`);
    const earlier = answer.versions_left_out ? `${count(answer.versions_left_out)} earlier ones, ` : "";
    const references = answer.references.length
      ? [element("h3", {}, "References"), region("References", tableOf(REFERENCES, answer.references))]
      : [];
    const rest = answer.characters_left_out ? [plain(`… and ${count(answer.characters_left_out)} characters more`)] : [];
    body.replaceChildren(
      plain(`Versions: ${earlier}${answer.versions.join(", ")}`),
      element("h3", {}, `Version ${answer.version}`),
      region("Schema", element("pre", {}, answer.text)),
      ...rest,
      ...references,
    );
  }
}

function plain(line) {
  return element("p", { class: "plain" }, line);
}

function region(title, child) {
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": title }, child);
}
