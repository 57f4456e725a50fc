// The throughput of a topic as its partitions tell it: for clusters whose load is somebody else's.

import { isNumber } from "./numbers.js";

/** Over so long the rate is taken: nodes tell at different moments. */
const WINDOW_MS = 3000;

export class Throughput {
  constructor() {
    this.topic = null;
    this.#begin(null);
  }

  /** Takes an event `partitions`; gives what is readable, and committed records a second (null: not known yet). */
  take(told) {
    if (told.topic !== this.topic) this.#begin(told.topic);
    let readable = null;
    for (const partition of Array.isArray(told.partitions) ? told.partitions : []) {
      const [start, end] = extent(partition);
      if (end === null) continue;
      readable = (readable ?? 0) + Math.max(0, end - (start ?? 0));
      const before = this.ends.get(partition.index);
      if (before !== undefined && end > before) this.committed += end - before;
      // A leader that is behind for a moment has taken nothing back; one that begins anew has.
      if (before === undefined || end > before || end < before / 2) this.ends.set(partition.index, end);
    }
    return { topic: this.topic, readable, perSecond: isNumber(told.at_ms) ? this.#rate(told.at_ms) : null };
  }

  #begin(topic) {
    this.topic = topic;
    this.ends = new Map();
    this.committed = 0;
    this.samples = [];
  }

  #rate(atMs) {
    this.samples.push([atMs, this.committed]);
    while (this.samples.length > 2 && this.samples[1][0] <= atMs - WINDOW_MS) this.samples.shift();
    const [fromMs, from] = this.samples[0];
    return atMs - fromMs < WINDOW_MS / 3 ? null : ((this.committed - from) * 1000) / (atMs - fromMs);
  }
}

/** Where a partition's log begins, and what of it is committed, by its leader, else by whoever has most. */
function extent(partition) {
  const replicas = Array.isArray(partition?.replicas) ? partition.replicas : [];
  const known = replicas.filter((replica) => isNumber(replica?.high_watermark));
  const best =
    known.find((replica) => replica.state === "leader") ??
    known.reduce((one, other) => (one === null || other.high_watermark > one.high_watermark ? other : one), null);
  if (best === null) return [null, null];
  return [isNumber(best.log_start_offset) ? best.log_start_offset : null, best.high_watermark];
}
