// Wires the page: events come from the feed, go to the displays, and are drawn in the next frame.

import { Access } from "./access.js";
import { Announcer } from "./announcer.js";
import { Connection } from "./connection.js";
import { Control, whileBusy } from "./control.js";
import { setAttribute, setOptions, setText } from "./element.js";
import { Events } from "./events.js";
import { Feed } from "./feed.js";
import { askFrame } from "./frame.js";
import { Groups } from "./groups.js";
import { Headline } from "./headline.js";
import { History } from "./history.js";
import { Keyboard } from "./keyboard.js";
import { Links } from "./links.js";
import { Marks } from "./marks.js";
import { Nodes } from "./nodes.js";
import { isNumber } from "./numbers.js";
import { Partitions } from "./partitions.js";
import { Schemas } from "./schemas.js";
import { Theme } from "./theme.js";
import { Throughput } from "./throughput.js";
import { TimeAxis } from "./time_axis.js";
import { Toast } from "./toast.js";
import { Topics } from "./topics.js";
import { Tour } from "./tour.js";
import { Why } from "./why.js";

const MOST_TOPICS = 500;
const at = (id) => document.getElementById(id);

const announcer = new Announcer(at("announcer"));
const toast = new Toast(at("toast"));
const control = new Control((line) => {
  toast.show(line);
  showControls();
});
const connection = new Connection(at("connection"), at("notice"), control, announcer.say);
const marks = new Marks();
const history = new History(marks);
const why = new Why(at("why"));
const open = (mark) => why.show(mark);
const headline = new Headline(at("headline"));
const nodes = new Nodes(at("nodes"), control, announcer.say);
const links = new Links(at("links-panel"), at("links"), at("links-told"), control, announcer.say);
const partitions = new Partitions(at("partitions"), at("span"), at("partitions-scale"), at("bar-legend"));
const events = new Events(at("events"), at("kind"), at("subject"), at("events-count"), marks, open);
const access = new Access({
  root: at("access"),
  board: at("board"),
  toggle: at("access-open"),
  refresh: at("access-refresh"),
  who: at("access-who"),
  what: at("access-what"),
  throttled: at("throttled"),
  question: at("question"),
  principal: at("ask-principal"),
  operation: at("ask-operation"),
  resource: at("ask-resource"),
  name: at("ask-name"),
  host: at("ask-host"),
  verdict: at("verdict"),
});
const axis = new TimeAxis(
  { root: at("chart"), legend: at("legend"), told: at("time-window"), freeze: at("freeze"), scroll: at("scroll") },
  history,
  marks,
  open,
);
const tour = new Tour(
  {
    panel: at("tour"),
    progress: at("tour-progress"),
    steps: at("tour-steps"),
    summary: at("tour-summary"),
    hide: at("tour-hide"),
  },
  announcer.say,
);
const theme = new Theme(at("theme"));
const throughput = new Throughput();
const feed = new Feed(
  (kind, data) => takers[kind](data),
  (state, waitMs) => connection.change(state, waitMs),
);

/** State of the page's own buttons. */
const now = { running: false, hasTour: false, touring: false, topic: null, chosen: false, topics: "" };

function showControls() {
  setAttribute(document.body, "data-may-act", control.mayAct);
  at("load").hidden = at("tour-start").hidden = !control.mayAct;
  at("tour-start").hidden ||= !now.hasTour;
  setAttribute(at("tour-start"), "disabled", now.touring);
  setText(at("load"), now.running ? "Stop load" : "Start load");
  for (const display of [nodes, links, connection]) askFrame(display);
}

/** A read-only page has no load of its own: it shows the records of all producers of the topic. */
function takeThroughput(told) {
  if (control.faultsAllowed || headline.load !== null) return;
  const flow = throughput.take(told);
  history.takeLoad({ at_ms: told.at_ms, acked_per_second: flow.perSecond });
  headline.takeThroughput(flow);
  axis.looksOn = true;
  askFrame(axis);
}

function showTopics(told) {
  const names = (Array.isArray(told) ? told : [])
    .map((topic) => topic?.name)
    .filter((name) => typeof name === "string");
  if (now.topic !== null && !names.includes(now.topic)) names.unshift(now.topic);
  setOptions(
    at("topic"),
    names.slice(0, MOST_TOPICS).map((name) => [name, name]),
    now.topic ?? undefined,
  );
}

const takers = {
  hello(hello) {
    control.faultsAllowed = hello.allow_faults === true;
    now.hasTour = hello.tour === true;
    if (!now.chosen && typeof hello.topic === "string") now.topic = hello.topic;
    showTopics([]);
    nodes.takeHello(hello);
    links.takeHello(hello);
    showControls();
  },
  cluster(cluster) {
    nodes.take(cluster);
    links.take(cluster);
    history.takeCluster(cluster);
    connection.takeCluster(cluster);
    const quorum = cluster.quorum ?? {};
    setText(
      at("quorum"),
      isNumber(quorum.leader)
        ? `controller-${quorum.leader} leads the quorum, epoch ${quorum.epoch ?? "–"}`
        : "the quorum has no leader",
    );
    if (Array.isArray(cluster.topics) && cluster.topics.length) showTopics(cluster.topics);
    askFrame(axis);
  },
  partitions(told) {
    history.hear(told.at_ms);
    if (now.topic !== null && told.topic !== now.topic) return;
    partitions.take(told);
    takeThroughput(told);
  },
  load(load) {
    history.takeLoad(load);
    headline.take(load);
    axis.looksOn = false;
    if (now.running !== (load.running === true)) {
      now.running = load.running === true;
      showControls();
    }
    askFrame(axis);
  },
  mark(told) {
    const mark = marks.add(told);
    if (mark === null) return;
    askFrame(events);
    askFrame(axis);
    access.take(mark);
  },
  tour(told) {
    tour.take(told);
    now.touring = told.finished !== true;
    showControls();
  },
};

whileBusy(at("load"), () => control.post(`load/${now.running ? "stop" : "start"}`));
whileBusy(at("tour-start"), () => control.post("tour/start"));
at("topic").addEventListener("change", (event) => {
  now.topic = event.target.value;
  now.chosen = true;
  feed.open(now.topic);
});
addEventListener("hashchange", () => {
  control.takeToken();
  showControls();
});

const groups = new Groups(
  {
    root: at("groups"),
    board: at("board"),
    toggle: at("groups-open"),
    refresh: at("groups-refresh"),
    filter: at("groups-filter"),
    kind: at("groups-type"),
    list: at("groups-list"),
    detail: at("group"),
    title: at("group-title"),
    facts: at("group-facts"),
    lag: at("group-lag"),
    body: at("group-body"),
  },
  [access],
);
const topics = new Topics(
  {
    root: at("topics"),
    board: at("board"),
    toggle: at("topics-open"),
    refresh: at("topics-refresh"),
    filter: at("topics-filter"),
    kind: at("topics-state"),
    list: at("topics-list"),
    detail: at("topic-detail"),
    title: at("topic-title"),
    facts: at("topic-facts"),
    body: at("topic-body"),
    records: {
      root: at("records"),
      form: at("records-form"),
      from: at("records-from"),
      partition: at("records-partition"),
      contains: at("records-contains"),
      format: at("records-format"),
      told: at("records-told"),
      body: at("records-body"),
      more: at("records-more"),
    },
  },
  [access, groups],
);
const schemas = new Schemas(
  {
    root: at("schemas"),
    board: at("board"),
    toggle: at("schemas-open"),
    refresh: at("schemas-refresh"),
    filter: at("schemas-filter"),
    kind: at("schemas-type"),
    list: at("schemas-list"),
    detail: at("schema-detail"),
    title: at("schema-title"),
    facts: at("schema-facts"),
    body: at("schema-body"),
  },
  [access, groups, topics],
);
access.others = [groups, topics, schemas];
groups.others = [access, topics, schemas];
topics.others = [access, groups, schemas];
const press = (id) => () => at(id).hidden || at(id).click();
new Keyboard(at("help"), at("help-open"), [
  ["n", "Go to the nodes", () => at("nodes").focus()],
  ["e", "Go to the events", () => events.focusFirst()],
  ["/", "Filter the events by subject", () => at("subject").focus()],
  ["c", "Choose the topic", () => at("topic").focus()],
  ["f", "Freeze the time axis, or go live", () => axis.toggle()],
  ["[", "Ten seconds back in time", () => axis.shift(-1)],
  ["]", "Ten seconds forward", () => axis.shift(1)],
  ["l", "Start or stop the load", press("load")],
  ["t", "Start the tour", press("tour-start")],
  ["p", "Topics: sizes, configs and records, or back", () => topics.toggle()],
  ["g", "Groups: members, offsets, lags and shared records, or back", () => groups.toggle()],
  ["s", "Schemas: subjects of the registry, or back", () => schemas.toggle()],
  ["a", "Access: rights, users and quotas, or back", () => access.toggle()],
  ["d", "Light or dark colours", () => theme.toggle()],
]);
for (const display of [headline, events, axis, tour]) askFrame(display);
feed.open();
