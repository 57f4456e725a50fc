// Throughput of a topic, computed from the high watermarks of its partitions.

import { isNumber } from "./numbers.js";

/** Period of the rate; nodes are polled at different times. */
const WINDOW_MS = 3000;

export class Throughput {
  constructor() {
    this.topic = null;
    this.#begin(null);
  }

  /** Takes an event `partitions`; returns readable records, and committed records per second (null if unknown). */
  take(told) {
    if (told.topic !== this.topic) this.#begin(told.topic);
    let readable = null;
    for (const partition of Array.isArray(told.partitions) ? told.partitions : []) {
      const [start, end] = extent(partition);
      if (end === null) continue;
      readable = (readable ?? 0) + Math.max(0, end - (start ?? 0));
      const before = this.ends.get(partition.index);
      if (before !== undefined && end > before) this.committed += end - before;
      // A leader whose high watermark lags for a moment has lost nothing; a new topic of the same name starts again.
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

/** Log start and high watermark of a partition, from its leader, else the highest of all replicas. */
function extent(partition) {
  const replicas = Array.isArray(partition?.replicas) ? partition.replicas : [];
  const known = replicas.filter((replica) => isNumber(replica?.high_watermark));
  const best =
    known.find((replica) => replica.state === "leader") ??
    known.reduce((one, other) => (one === null || other.high_watermark > one.high_watermark ? other : one), null);
  if (best === null) return [null, null];
  return [isNumber(best.log_start_offset) ? best.log_start_offset : null, best.high_watermark];
}
