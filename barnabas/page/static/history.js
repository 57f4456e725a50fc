// History: 15 minutes of the load, the faults, and the longest gap.

import { isNumber } from "./numbers.js";
import { Ring } from "./ring.js";
import { named } from "./nodes.js";

export const KEPT_MS = 15 * 60 * 1000;
const SAMPLES = 2000;
const BANDS = 200;
const SHOWN_GAP_MS = 150;
const SAME_GAP_MS = 700;
const MARK_BEFORE_MS = 3000;
const FAULT_STATES = new Set(["dead", "paused", "unreachable"]);

export class History {
  constructor(marks) {
    this.marks = marks;
    this.samples = new Ring(SAMPLES);
    this.bands = new Ring(BANDS);
    this.open = new Map();
    this.gap = null;
    this.longest = null;
    this.nowMs = null;
  }

  /** Time of the newest event; the axis ends there. */
  hear(atMs) {
    if (isNumber(atMs) && (this.nowMs === null || atMs > this.nowMs)) this.nowMs = atMs;
  }

  takeLoad(load) {
    const atMs = isNumber(load.at_ms) ? load.at_ms : (this.nowMs ?? Date.now());
    this.hear(atMs);
    if ((this.samples.at(-1)?.atMs ?? 0) > atMs) return; // told before
    this.samples.push({
      atMs,
      acked: load.acked_per_second,
      read: load.read_per_second,
      p50: load.p50_ms,
      p99: load.p99_ms,
    });
    this.#measureGap(load.longest_gap_ms, atMs);
  }

  /**
   * The load reports only the length of its longest gap. While that grows, the gap is current; the first time it grew
   * is the best estimate of its beginning.
   */
  #measureGap(longestMs, atMs) {
    if (!isNumber(longestMs)) return;
    const before = this.longest;
    this.longest = longestMs;
    if (before === null || longestMs === before) return;
    if (longestMs < before) {
      this.gap = null; // another load
      return;
    }
    if (longestMs < SHOWN_GAP_MS) return;
    const fromMs = atMs - longestMs;
    const goesOn = this.gap !== null && Math.abs(this.gap.fromMs - fromMs) < SAME_GAP_MS;
    const began = goesOn ? this.gap.fromMs : fromMs;
    this.gap = { fromMs: began, toMs: began + longestMs, ms: longestMs };
  }

  /** Current faults by key: [words, name]. */
  #faults(cluster) {
    const faults = new Map();
    for (const node of named(cluster.nodes)) {
      if (FAULT_STATES.has(node.state))
        faults.set(`${node.name} ${node.state}`, [`${node.name} ${node.state}`, node.name]);
    }
    for (const pair of Array.isArray(cluster.cut) ? cluster.cut : []) {
      if (Array.isArray(pair)) faults.set(`cut ${pair.join(" ")}`, [`cut ${pair.join(", ")}`, String(pair[0])]);
    }
    return faults;
  }

  takeCluster(cluster) {
    this.hear(cluster.at_ms);
    const atMs = isNumber(cluster.at_ms) ? cluster.at_ms : this.nowMs;
    if (atMs === null) return;
    const faults = this.#faults(cluster);
    for (const [key, [words, name]] of faults) {
      if (this.open.has(key)) continue;
      const began = this.marks.faultOf(name, atMs - MARK_BEFORE_MS, atMs)?.atMs ?? atMs;
      const band = { key: `${key} ${atMs}`, words, fromMs: began, toMs: null };
      this.open.set(key, band);
      this.bands.push(band);
    }
    for (const [key, band] of this.open) {
      if (faults.has(key)) continue;
      band.toMs = atMs;
      this.open.delete(key);
    }
  }

  /** Samples of a period, with the one before, so that lines reach the edge. */
  samplesBetween(fromMs, toMs) {
    const found = [];
    let before = null;
    for (const sample of this.samples) {
      if (sample.atMs < fromMs) before = sample;
      else if (sample.atMs <= toMs) found.push(sample);
    }
    return before ? [before, ...found] : found;
  }

  bandsBetween(fromMs, toMs) {
    return [...this.bands].filter((band) => band.fromMs <= toMs && (band.toMs ?? this.nowMs) >= fromMs);
  }

  /** The sample nearest to a time, if there is one within a few seconds. */
  nearest(atMs) {
    let best = null;
    for (const sample of this.samples) {
      if (best === null || Math.abs(sample.atMs - atMs) < Math.abs(best.atMs - atMs)) best = sample;
    }
    return best && Math.abs(best.atMs - atMs) < 3000 ? best : null;
  }
}
