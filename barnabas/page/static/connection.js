// State of the page's feed, and whether the cluster answers. Always shown; the page never goes blank.

import { setAttribute, setText } from "./element.js";
import { askFrame } from "./frame.js";

const WORDS = { connecting: "connecting", live: "live", silent: "no news", waiting: "reconnecting" };

export class Connection {
  constructor(root, notice, control, announce) {
    Object.assign(this, { root, notice, control, announce });
    this.state = "connecting";
    this.untilMs = 0;
    this.away = false;
    this.begun = false;
    this.problem = "";
    setInterval(() => this.state === "waiting" && askFrame(this), 250);
  }

  change(state, waitMs) {
    this.state = state;
    this.untilMs = performance.now() + waitMs;
    askFrame(this);
  }

  takeCluster(cluster) {
    this.begun = true;
    this.away = cluster.away === true;
    askFrame(this);
  }

  draw() {
    const seconds = Math.max(0, Math.ceil((this.untilMs - performance.now()) / 1000));
    setAttribute(this.root, "data-state", this.state === "live" && this.away ? "away" : this.state);
    setText(this.root, this.state === "live" && this.away ? "cluster away" : WORDS[this.state]);
    setAttribute(document.body, "data-stale", this.state !== "live" || this.away);
    const [tone, problem, detail] = this.#problem(seconds);
    setText(this.notice, problem ? `${problem} ${detail}`.trim() : this.#hint());
    setAttribute(this.notice, "data-tone", problem ? tone : "calm");
    this.notice.hidden = this.notice.textContent === "";
    if (problem !== this.problem) {
      this.announce(problem || "The page is live again");
      this.problem = problem;
    }
  }

  #hint() {
    return this.begun || this.state === "live" ? this.control.hint : "";
  }

  #problem(seconds) {
    if (this.state === "waiting") {
      const last = this.begun ? "The page shows the last known state. " : "";
      return [
        "bad",
        "The page's server does not answer.",
        `${last}Trying again ${seconds > 0 ? `in ${seconds} s` : "now"}.`,
      ];
    }
    if (this.state === "silent") return ["warn", "The page's server has sent nothing for some seconds.", ""];
    if (this.state === "live" && this.away)
      return [
        "bad",
        "No node of the cluster answers.",
        "The page shows the last known state and keeps polling.",
      ];
    return ["calm", "", ""];
  }
}
