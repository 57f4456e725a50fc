// The partitions of one topic: each replica as a bar of its last records, which shows lag.

import { Rows, element, flash, setAttribute, setOptions, setStyle, setText } from "./element.js";
import { askFrame } from "./frame.js";
import { count, isNumber, niceAbove } from "./numbers.js";
import { icon, setIcon, stateLook } from "./shapes.js";

const SPANS = [
  ["auto", "automatic"],
  ["100", "100 records"],
  ["1000", "1,000 records"],
  ["10000", "10,000 records"],
  ["100000", "100,000 records"],
  ["all", "whole log"],
];
const LEAST_SPAN = 100;
const MOST_SPAN = 50000;
const SHRINK_AFTER_MS = 8000;
const WORDS = {
  leader: ["leader", "leader"],
  follower: ["follower", "in sync"],
  "out of sync": ["catching up", "out of sync"],
  gone: ["dead", "gone"],
};

export class Partitions {
  constructor(root, select, scale, legend) {
    this.scale = scale;
    this.select = select;
    this.told = null;
    this.topic = "";
    this.span = LEAST_SPAN;
    this.smallerSince = null;
    setOptions(select, SPANS);
    select.addEventListener("change", () => askFrame(this));
    this.rows = new Rows(
      root,
      (partition) => this.#make(partition),
      (row, partition) => this.#refresh(row, partition),
    );
    this.root = root;
    for (const [kind, text] of [
      ["committed", "committed: up to the high watermark"],
      ["end", "written: up to the log end"],
      ["none", "not written yet, or deleted"],
    ]) {
      legend.append(element("li", {}, element("i", { class: `key ${kind}`, "aria-hidden": "true" }), text));
    }
  }

  take(told) {
    this.told = told;
    askFrame(this);
  }

  draw() {
    if (this.told === null) return;
    const { topic, partitions } = this.told;
    if (topic !== this.topic) {
      this.topic = topic;
      this.rows.update([], () => "");
      this.span = LEAST_SPAN;
    }
    const known = (Array.isArray(partitions) ? partitions : []).filter(
      (partition) => partition && isNumber(partition.index),
    );
    this.#rescale(known);
    this.rows.update(known, (partition) => partition.index);
    setAttribute(
      this.root,
      "data-empty",
      known.length === 0 ? `${topic ? `The topic ${topic} has` : "There are"} no partitions to show.` : null,
    );
    const chosen = this.select.value === "all" ? "the whole log" : `the last ${count(this.span)} records`;
    setText(this.scale, known.length ? `each bar: ${chosen}` : "");
  }

  #rescale(partitions) {
    const chosen = this.select.value;
    if (chosen !== "auto" && chosen !== "all") {
      this.span = Number(chosen);
      return;
    }
    let lag = 0;
    for (const partition of partitions) {
      const replicas = replicasOf(partition);
      const end = endOf(replicas);
      for (const replica of replicas)
        if (isNumber(replica.log_end_offset)) lag = Math.max(lag, end - replica.log_end_offset);
    }
    const wanted = Math.min(MOST_SPAN, Math.max(LEAST_SPAN, niceAbove(lag * 1.3)));
    // The scale grows at once and shrinks late: bars that jump cannot be compared.
    if (wanted >= this.span) {
      this.span = wanted;
      this.smallerSince = null;
    } else {
      this.smallerSince ??= performance.now();
      if (performance.now() - this.smallerSince > SHRINK_AFTER_MS) {
        this.span = wanted;
        this.smallerSince = null;
      }
    }
  }

  #make(partition) {
    const row = {
      leader: undefined,
      inSync: undefined,
      leaderText: element("span", { class: "leader" }),
      epoch: element("span", { class: "epoch" }),
      isr: element("span", { class: "isr" }),
      list: element("ul", { class: "replicas" }),
    };
    row.root = element(
      "article",
      { class: "partition", "data-partition": partition.index, "aria-label": `${this.topic}-${partition.index}` },
      element("header", {}, element("h3", {}, `${this.topic}-${partition.index}`), row.leaderText, row.epoch, row.isr),
      row.list,
    );
    row.replicas = new Rows(
      row.list,
      (replica) => makeReplica(replica),
      (line, replica) => this.#refreshReplica(row, line, replica),
    );
    return row;
  }

  #refresh(row, partition) {
    const leader = isNumber(partition.leader) && partition.leader >= 0 ? partition.leader : null;
    const inSync = Array.isArray(partition.isr) ? partition.isr : [];
    const replicas = replicasOf(partition);
    const told = `${inSync.length} of ${replicas.length} in sync`;
    if (row.leader !== undefined && row.leader !== leader) flash(row.root);
    else if (row.inSync !== undefined && row.inSync !== told) flash(row.isr);
    row.leader = leader;
    row.inSync = told;
    setText(row.leaderText, leader === null ? "no leader" : `leader ${leader}`);
    setAttribute(row.root, "data-tone", leader === null ? "bad" : inSync.length < replicas.length ? "warn" : "good");
    setText(row.epoch, `epoch ${isNumber(partition.leader_epoch) ? partition.leader_epoch : "–"}`);
    setText(row.isr, told);
    row.end = endOf(replicas);
    row.from = this.select.value === "all" ? startOf(replicas) : row.end - this.span;
    row.replicas.update(replicas, (replica) => replica.broker);
  }

  #refreshReplica(row, line, replica) {
    const [look, word] = WORDS[replica.state] ?? ["unknown", replica.state ?? "unknown"];
    if (line.state !== word) {
      if (line.state !== null) flash(line.root);
      line.state = word;
      setAttribute(line.root, "data-state", word);
      setAttribute(line.root, "data-tone", stateLook(look).tone);
      setIcon(line.icon, stateLook(look));
      setText(line.word, word);
    }
    const { log_start_offset: start, log_end_offset: end, high_watermark: highWatermark } = replica;
    const share = (offset) => {
      const width = row.end - row.from;
      return isNumber(offset) && width > 0
        ? `${(100 * Math.min(1, Math.max(0, (offset - row.from) / width))).toFixed(2)}%`
        : "0%";
    };
    setStyle(line.bar, "--start", share(start));
    setStyle(line.bar, "--committed", share(isNumber(highWatermark) ? highWatermark : null));
    setStyle(line.bar, "--end", share(end));
    const behind = isNumber(end) ? row.end - end : 0;
    setText(line.end, count(end));
    setText(line.lag, behind > 0 ? `−${count(behind)}` : "");
    const seen = replica.state === "gone" && isNumber(end) ? "when last seen: " : "";
    setText(
      line.words,
      `${seen}log start ${count(start)}, high watermark ${count(highWatermark)}, log end ${count(end)}`,
    );
  }
}

function makeReplica(replica) {
  const line = {
    state: null,
    icon: icon(),
    word: element("span", { class: "state" }),
    bar: element(
      "span",
      { class: "bar", "aria-hidden": "true" },
      element("i", { class: "end" }),
      element("i", { class: "committed" }),
    ),
    end: element("span", { class: "offset" }),
    lag: element("span", { class: "lag" }),
    words: element("span", { class: "unseen" }),
  };
  line.root = element(
    "li",
    { class: "replica", "data-broker": replica.broker },
    line.icon,
    element("span", { class: "who" }, element("b", {}, `broker ${replica.broker}`), line.word),
    line.bar,
    line.end,
    line.lag,
    line.words,
  );
  return line;
}

function replicasOf(partition) {
  return Array.isArray(partition.replicas)
    ? partition.replicas.filter((replica) => replica && isNumber(replica.broker))
    : [];
}

function endOf(replicas) {
  return Math.max(0, ...replicas.map((replica) => replica.log_end_offset).filter(isNumber));
}

function startOf(replicas) {
  const starts = replicas.map((replica) => replica.log_start_offset).filter(isNumber);
  return starts.length ? Math.min(...starts) : 0;
}
