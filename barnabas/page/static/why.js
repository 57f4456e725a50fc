// The decision behind an event, with its cause, epochs and offsets, and the story of its subject.

import { element } from "./element.js";
import { clock, isNumber, NOTHING, count } from "./numbers.js";
import { icon, kindLook, markLook } from "./shapes.js";

const OFFSETS = /offset|high_watermark|records|_ms$/;

function factText(name, value) {
  if (value === null || value === undefined || value === "") return NOTHING;
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  if (isNumber(value)) return OFFSETS.test(name) ? count(value) : String(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export class Why {
  constructor(dialog) {
    this.dialog = dialog;
    this.asked = 0;
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }

  show(mark) {
    const { decision } = mark;
    const look = markLook(mark);
    const close = element("button", { type: "button", class: "quiet", "aria-label": "Close" }, "Close");
    close.addEventListener("click", () => this.dialog.close());
    this.story = element("ol", { class: "story" });
    this.storyTitle = element("h3", {});
    const subjects = [mark.subject, ...mark.also].filter(
      (subject, index, all) => subject && all.indexOf(subject) === index,
    );
    this.dialog.replaceChildren(
      element(
        "div",
        { class: "inside", "data-tone": look.tone },
        element(
          "header",
          {},
          icon(look),
          element("span", { class: "kind" }, mark.kind),
          element("time", {}, clock(mark.atMs, true)),
          close,
        ),
        element("h2", { id: "why-title" }, this.#headline(mark)),
        ...this.#cause(decision),
        this.#facts(mark),
        element("div", { class: "subjects" }, ...subjects.map((subject) => this.#chip(subject, mark))),
        this.storyTitle,
        this.story,
      ),
    );
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    if (subjects.length) this.#showStory(subjects[0], mark);
  }

  /** The decision without its cause, which has a line of its own. */
  #headline({ text, decision, subject }) {
    const line = text || subject || "The event has no text.";
    const cause = typeof decision?.cause === "string" ? decision.cause : "";
    return cause && line.endsWith(cause) ? line.slice(0, -cause.length).replace(/:\s*$/, "") : line;
  }

  #cause(decision) {
    const cause = typeof decision?.cause === "string" ? decision.cause : "";
    return cause ? [element("p", { class: "cause" }, element("b", {}, "Because "), cause)] : [];
  }

  #facts(mark) {
    const facts =
      mark.decision?.facts && typeof mark.decision.facts === "object" ? Object.entries(mark.decision.facts) : [];
    const who = mark.decision
      ? [
          ["decided by", mark.decision.node || mark.node || NOTHING],
          ["decision", mark.decision.number],
        ]
      : [["node", mark.node || NOTHING]];
    const rows = [["about", mark.subject || NOTHING], ...who, ...facts];
    return element(
      "table",
      { class: "facts" },
      element("caption", { class: "unseen" }, "Facts of the decision"),
      element(
        "tbody",
        {},
        ...rows.map(([name, value]) =>
          element(
            "tr",
            {},
            element("th", { scope: "row" }, String(name).replaceAll("_", " ")),
            element("td", {}, factText(name, value)),
          ),
        ),
      ),
    );
  }

  #chip(subject, mark) {
    const chip = element("button", { type: "button", class: "chip" }, subject);
    chip.addEventListener("click", () => this.#showStory(subject, mark));
    return chip;
  }

  async #showStory(subject, mark) {
    const mine = ++this.asked;
    for (const chip of this.dialog.querySelectorAll(".chip"))
      chip.setAttribute("aria-pressed", chip.textContent === subject ? "true" : "false");
    this.storyTitle.textContent = `The story of ${subject}`;
    this.story.replaceChildren(element("li", { class: "plain" }, "loading …"));
    let rows;
    try {
      const response = await fetch(`/why?subject=${encodeURIComponent(subject)}`);
      if (!response.ok) throw new Error((await response.text()).trim().slice(0, 200) || `refused (${response.status})`);
      const answer = await response.json();
      rows = this.#story(Array.isArray(answer.decisions) ? answer.decisions : [], mark);
    } catch (error) {
      rows = [element("li", { class: "plain" }, `The story could not be loaded: ${error.message}`)];
    }
    if (mine !== this.asked) return; // another story was requested meanwhile
    this.story.replaceChildren(...rows);
    this.story.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  #story(decisions, mark) {
    const known = decisions.filter((decision) => decision && typeof decision === "object");
    if (!known.length) return [element("li", { class: "plain" }, "No node has a decision about it.")];
    const isThis = (decision) =>
      mark.decision && decision.number === mark.decision.number && decision.node === mark.decision.node;
    return known.map((decision) =>
      element(
        "li",
        { "aria-current": isThis(decision) ? "true" : null, "data-tone": kindLook(decision.kind).tone },
        icon(kindLook(decision.kind)),
        element("time", {}, clock(decision.at_ms, true)),
        element("span", { class: "by" }, decision.node ?? ""),
        element("p", {}, decision.told ?? ""),
      ),
    );
  }
}
