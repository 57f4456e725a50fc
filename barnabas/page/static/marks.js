// Marks by time: bounded, and without duplicates after a reconnection of the feed.

import { isNumber } from "./numbers.js";

const CAPACITY = 1000;

const plain = (text) =>
  text
    .toLowerCase()
    .replace(/[-\s]+/g, " ")
    .trim();

function clean(mark) {
  const text = (value) => (typeof value === "string" ? value : "");
  const decision = mark.decision && typeof mark.decision === "object" ? mark.decision : null;
  const also = Array.isArray(decision?.also) ? decision.also.filter((item) => typeof item === "string") : [];
  const subject = text(mark.subject);
  return {
    key: `${mark.at_ms} ${text(mark.kind)} ${subject} ${text(mark.node)} ${text(mark.text)}`,
    atMs: mark.at_ms,
    kind: text(mark.kind) || "log",
    subject,
    also,
    text: text(mark.text) || text(decision?.told),
    node: text(mark.node),
    decision,
    about: plain([subject, ...also, text(mark.node)].join(" , ")),
  };
}

export class Marks {
  constructor() {
    this.byTime = [];
    this.keys = new Set();
  }

  /** Returns the stored mark, or null for a duplicate or a mark without time. */
  add(event) {
    if (!isNumber(event.at_ms)) return null;
    const mark = clean(event);
    if (this.keys.has(mark.key)) return null;
    let place = this.byTime.length;
    while (place > 0 && this.byTime[place - 1].atMs > mark.atMs) place--;
    this.byTime.splice(place, 0, mark);
    this.keys.add(mark.key);
    if (this.byTime.length > CAPACITY) this.keys.delete(this.byTime.shift().key);
    return mark;
  }

  /** Marks of a period, oldest first. */
  between(fromMs, toMs) {
    return this.byTime.filter((mark) => mark.atMs >= fromMs && mark.atMs <= toMs);
  }

  /** Marks of a kind and subject, newest first; an empty filter matches all. */
  newest(kind, subject) {
    const wanted = plain(subject);
    const fits = (mark) => (!kind || mark.kind === kind) && (!wanted || mark.about.includes(wanted));
    return this.byTime.filter(fits).reverse();
  }

  /** The newest fault of a node within a period. */
  faultOf(name, fromMs, toMs) {
    const wanted = plain(name);
    const fits = (mark) => mark.kind === "fault" && (mark.about.includes(wanted) || plain(mark.text).includes(wanted));
    return this.between(fromMs, toMs).filter(fits).pop() ?? null;
  }
}
