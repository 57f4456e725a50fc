// Icons for states of nodes and kinds of events, so that nothing depends on colour alone.

import { drawing } from "./element.js";

const DISC = "M8 3a5 5 0 1 1 0 10a5 5 0 1 1 0-10z";
const RING = "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11zM8 5a3 3 0 1 0 0 6a3 3 0 1 0 0-6z";
const STAR = "M8 1l2.1 4.6 5 .6-3.7 3.4 1 5L8 12.1 3.6 14.6l1-5L.9 6.2l5-.6z";
const CROSS = "M3.9 2L8 6.1 12.1 2 14 3.9 9.9 8 14 12.1 12.1 14 8 9.9 3.9 14 2 12.1 6.1 8 2 3.9z";
const BARS = "M3.5 2.5h3.2v11H3.5zM9.3 2.5h3.2v11H9.3z";
const DIAMOND = "M8 1.2L14.8 8 8 14.8 1.2 8zM8 4.7L4.7 8 8 11.3 11.3 8z";
const SOLID_DIAMOND = "M8 1.5L14.5 8 8 14.5 1.5 8z";
const LOCK = "M4.5 7V5.2a3.5 3.5 0 0 1 7 0V7H13v7H3V7zM6.5 7h3V5.2a1.5 1.5 0 0 0-3 0z";
const UP = "M8 1.5l5 5.5h-3v2H6V7H3zM6 10.5h4v1.5H6zM6 13.2h4v1.3H6z";
const DOTS =
  "M8 1.5a1.6 1.6 0 1 1 0 3.2a1.6 1.6 0 1 1 0-3.2zM8 11.3a1.6 1.6 0 1 1 0 3.2a1.6 1.6 0 1 1 0-3.2zM3.1 6.4a1.6 1.6 0 1 1 0 3.2a1.6 1.6 0 1 1 0-3.2zM12.9 6.4a1.6 1.6 0 1 1 0 3.2a1.6 1.6 0 1 1 0-3.2z";
const DOWN = "M8 14.5l5-5.5h-3V2H6v7H3z";
const SLASHED =
  "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11zM8 4.5A3.5 3.5 0 0 0 5.2 10L10 5.2A3.5 3.5 0 0 0 8 4.5zM10.8 6L6 10.8A3.5 3.5 0 0 0 10.8 6z";
const TRIANGLE = "M8 1.8L15 14H1z";
const PAIR = "M5.2 3.8a4.2 4.2 0 1 1 0 8.4a4.2 4.2 0 1 1 0-8.4zM9.8 3.9a4.2 4.2 0 1 1 0 8.2a6.6 6.6 0 0 0 0-8.2z";
const SQUARE = "M2.5 2.5h11v11h-11zM5 5v6h6V5z";
const CUT = "M2 3h5v10H2zM9.5 3H11v10H9.5zM12.5 3H14v10h-1.5z";
const ARROWS = "M10 2l4.5 3.5L10 9V6.7H2V4.3h8zM6 7.5v2.2h8v2.3H6v2.2L1.5 10.9z";
const HEXAGON = "M4.5 2h7L15 8l-3.5 6h-7L1 8z";
const PLUS = "M6.3 2h3.4v4.3H14v3.4H9.7V14H6.3V9.7H2V6.3h4.3z";
const BOLT = "M9.5 1L3 9.2h4L6 15l7-8.7H8.8z";
const CHECK = "M6.3 13.2L1.4 8.3l2.1-2.1 2.8 2.8L12.5 2.8l2.1 2.1z";
const DOT = "M8 5.5a2.5 2.5 0 1 1 0 5a2.5 2.5 0 1 1 0-5z";

/** State of a node: [shape, tone]. Tones are colours of the style sheet. */
const STATES = {
  leader: [STAR, "lead"],
  follower: [DISC, "good"],
  running: [DISC, "good"],
  candidate: [DIAMOND, "warn"],
  prospective: [DIAMOND, "warn"],
  "catching up": [UP, "warn"],
  starting: [DOTS, "warn"],
  "shutting down": [DOWN, "warn"],
  fenced: [LOCK, "warn"],
  paused: [BARS, "pause"],
  dead: [CROSS, "bad"],
  unreachable: [SLASHED, "bad"],
};

/** Kind of an event: [shape, tone, lane of the time axis]. */
const KINDS = {
  fault: [BOLT, "bad", "faults"],
  election: [STAR, "lead", "elections"],
  quorum: [TRIANGLE, "lead", "elections"],
  isr: [PAIR, "warn", "ISR"],
  fencing: [LOCK, "warn", "ISR"],
  truncation: [CUT, "pause", "other"],
  reassignment: [ARROWS, "good", "other"],
  rebalance: [HEXAGON, "good", "other"],
  transaction: [PLUS, "good", "other"],
  lifecycle: [SQUARE, "good", "other"],
  access: [SLASHED, "bad", "other"],
  quota: [BARS, "pause", "other"],
  log: [DOT, "calm", "other"],
};

export const LANES = ["faults", "elections", "ISR", "other"];
export const KIND_NAMES = Object.keys(KINDS);

const has = (table, key) => Object.prototype.hasOwnProperty.call(table, key);

export function stateLook(state) {
  const [path, tone] = has(STATES, state) ? STATES[state] : [RING, "calm"];
  return { path, tone };
}

export function kindLook(kind) {
  const [path, tone, lane] = has(KINDS, kind) ? KINDS[kind] : [SOLID_DIAMOND, "calm", "other"];
  return { path, tone, lane };
}

/** Icons for numbers that must be 0. */
export const FINE = { path: CHECK, tone: "good" };
export const WRONG = { path: CROSS, tone: "bad" };

const MENDED = /is started|is healed|goes on|is resumed/;

/** The look of one event. The end of a fault and the start or stop of the load are no faults. */
export function markLook(mark) {
  const look = kindLook(mark.kind);
  if (mark.kind === "fault" && mark.subject === "load") return { ...look, path: SQUARE, tone: "calm" };
  return mark.kind === "fault" && MENDED.test(mark.text) ? { ...look, path: CHECK, tone: "good" } : look;
}

/** An icon of 16 by 16; `setIcon` changes it. */
export function icon(look) {
  const path = drawing("path", { "fill-rule": "evenodd" });
  const root = drawing("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
  if (look) setIcon(root, look);
  return root;
}

export function setIcon(root, look) {
  if (root.dataset.path === look.path && root.dataset.tone === look.tone) return;
  root.dataset.path = look.path;
  root.dataset.tone = look.tone;
  root.firstChild.setAttribute("d", look.path);
}
