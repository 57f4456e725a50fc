// The feed: one stream of events from the page's server, reconnected when it breaks.
// Reports events and the state of the connection; knows no display.

export const KINDS = ["hello", "cluster", "partitions", "load", "mark", "tour"];

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const SILENT_AFTER_MS = 4000;
const LOST_AFTER_MS = 12000;

/** `told(kind, data)` for each event; `changed(state, waitMs)`, states: connecting, live, silent, waiting. */
export class Feed {
  constructor(told, changed) {
    this.told = told;
    this.changed = changed;
    this.topic = null;
    this.source = null;
    this.waitMs = FIRST_WAIT_MS;
    this.timer = null;
    this.heardAt = 0;
    this.state = "";
    setInterval(() => this.#watch(), 1000);
    // The browser reports when the network is back: the wait may end early.
    addEventListener("online", () => this.state === "waiting" && this.open());
  }

  /** Connects, or reconnects for another topic. */
  open(topic = this.topic) {
    this.#close();
    this.topic = topic;
    this.#become("connecting");
    const source = new EventSource(topic ? `/feed?topic=${encodeURIComponent(topic)}` : "/feed");
    this.source = source;
    this.heardAt = performance.now();
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.#heard(kind, event.data));
    source.addEventListener("error", () => this.#broke());
  }

  #heard(kind, text) {
    this.heardAt = performance.now();
    this.waitMs = FIRST_WAIT_MS;
    this.#become("live");
    let data;
    try {
      data = JSON.parse(text);
    } catch {
      console.warn(`not JSON in an event ${kind}`);
      return;
    }
    if (data !== null && typeof data === "object") this.told(kind, data);
  }

  #broke() {
    this.#close();
    const waitMs = this.waitMs;
    this.waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
    this.#become("waiting", waitMs);
    // Jitter: many pages of one server do not reconnect at once.
    this.timer = setTimeout(() => this.open(), waitMs * (0.8 + 0.4 * Math.random()));
  }

  #watch() {
    if (this.source === null) return;
    const quietMs = performance.now() - this.heardAt;
    if (quietMs > LOST_AFTER_MS) this.#broke();
    else if (quietMs > SILENT_AFTER_MS && this.state === "live") this.#become("silent");
  }

  #close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  #become(state, waitMs = 0) {
    if (state === this.state && !waitMs) return;
    this.state = state;
    this.changed(state, waitMs);
  }
}
