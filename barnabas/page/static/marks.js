// Marks: what happened, by time. Bounded, and each of them once, though a feed that is taken up again tells them anew.

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

  /** The mark as it is kept, or null if it was here before or has no time. */
  add(told) {
    if (!isNumber(told.at_ms)) return null;
    const mark = clean(told);
    if (this.keys.has(mark.key)) return null;
    let place = this.byTime.length;
    while (place > 0 && this.byTime[place - 1].atMs > mark.atMs) place--;
    this.byTime.splice(place, 0, mark);
    this.keys.add(mark.key);
    if (this.byTime.length > CAPACITY) this.keys.delete(this.byTime.shift().key);
    return mark;
  }

  /** Those from one time to another, oldest first. */
  between(fromMs, toMs) {
    return this.byTime.filter((mark) => mark.atMs >= fromMs && mark.atMs <= toMs);
  }

  /** Newest first, of a kind (or any), about a subject (or anything). */
  newest(kind, subject) {
    const wanted = plain(subject);
    const fits = (mark) => (!kind || mark.kind === kind) && (!wanted || mark.about.includes(wanted));
    return this.byTime.filter(fits).reverse();
  }

  /** The newest fault about a node within a stretch of time. */
  faultOf(name, fromMs, toMs) {
    const wanted = plain(name);
    const fits = (mark) => mark.kind === "fault" && (mark.about.includes(wanted) || plain(mark.text).includes(wanted));
    return this.between(fromMs, toMs).filter(fits).pop() ?? null;
  }
}
