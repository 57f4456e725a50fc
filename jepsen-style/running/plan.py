"""The plan of a run: all options of `run` in one value, and the command line that replays it.

Plans are checked once, here. An error is one line that says how to correct it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from barnabas.client.errors import ConfigException
from barnabas.client.security_settings import SecuritySettings
from barnabas.settings.definitions import closest_key, find_broker_key, is_plugin_key
from barnabas.settings.errors import SettingsError
from barnabas.settings.object_store import KEYS_OF_STORE
from barnabas.settings.topic import COMPACTED_TIERS
from clients.client import ClientSettings
from nemeses.kinds import FAULTS
from nemeses.messages import wish_of
from simulation.conditions import Conditions, parse_conditions
from workloads.catalogue import make_workload
from workloads.lives import MIXED
from workloads.workload import WorkloadOptions
from worlds.world_options import NEVER, WORLDS

CLIENTS = ("barnabas", "confluent", "java")
BROKERS = 3
NODES = (*(f"broker-{number}" for number in (1, 2, 3)), *(f"controller-{number}" for number in (101, 102, 103)))
"""The nodes of a cluster of ours."""
REPLICATED = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
"""Settings that cannot be more than there are brokers."""
PAIRS = ("--settings", "--option", "--topic-config", "--client-config", "--condition", "--budget")
"""Options that come once for each `key=value`."""
OURS = ("share", "delayed", "two-phase", "table")
"""Workloads that only our own client can do."""
LOG_IN = ("rights",)
"""Workloads whose clients log in."""
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
SECURE_WORLDS = ("sim", "local", "netns")
"""Worlds for `--secure`."""
STORE = Path("store")


class WrongPlan(ValueError):
    """A run cannot be so; one line."""


def _option(name: str, default: Any) -> Any:
    """A field that is the option of that name."""
    return field(default=default, metadata={"option": name})


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    workload: str
    seed: int = _option("--seed", 0)
    cluster: str = _option("--cluster", "local")
    nemesis: tuple[str, ...] = _option("--nemesis", ())
    message: tuple[str, ...] = _option("--message", ())
    """`API:ACTION:DIRECTION`, of which the faults of messages are drawn; none: of all."""
    time: float = _option("--time", 60.0)
    """Seconds of work and faults."""
    rate: float = _option("--rate", 100.0)
    concurrency: int = _option("--concurrency", 12)
    clients: tuple[str, ...] = _option("--client", ("barnabas",))
    interval: float = _option("--interval", 15.0)
    """Seconds between the beginnings of faults, on average."""
    secure: bool = _option("--secure", False)
    """Nodes and clients authenticate each other, over TLS."""
    settings: tuple[str, ...] = _option("--settings", ())
    """`key=value`, of all nodes."""
    only_faults: tuple[str, ...] = _option("--only-faults", ())
    """By their numbers; none: all. The others leave their time empty."""
    without_processes: tuple[str, ...] = _option("--without-processes", ())
    """Numbers of processes that have nothing to do until everything is read."""
    without_operations: tuple[str, ...] = _option("--without-operations", ())
    """`7` or `10-19`, in the order in which they are thought of: nobody does these."""
    without_nodes: tuple[str, ...] = _option("--without-nodes", ())
    """By their names: the cluster has less; only in the simulation."""
    plant: str | None = _option("--plant", None)
    bootstrap: str | None = _option("--bootstrap", None)
    beyond_budget: bool = _option("--beyond-budget", False)
    isolation: str = _option("--isolation", "read_committed")
    assign_only: bool = _option("--assign-only", False)
    no_transactions: bool = _option("--no-transactions", False)
    no_idempotence: bool = _option("--no-idempotence", False)
    group_protocol: str = _option("--group-protocol", "classic")
    keys: int = _option("--keys", 10)
    max_writes: int = _option("--max-writes", 1_024)
    abort_probability: float = _option("--abort-probability", 0.1)
    crash_every: float = _option("--crash-every", 30.0)
    quiet: float = _option("--quiet", 10.0)
    final: float = _option("--final", 200.0)
    option: tuple[str, ...] = _option("--option", ())
    """`key=value`, of the workload."""
    topic_config: tuple[str, ...] = _option("--topic-config", ())
    """`key=value`, of the topics of the workload."""
    client_config: tuple[str, ...] = _option("--client-config", ())
    """`key=value`, of all clients: fields of `ClientSettings`."""
    condition: tuple[str, ...] = _option("--condition", ())
    """`key=value`: what only a simulation can vary; see `simulation.conditions`."""
    budget: tuple[str, ...] = _option("--budget", ())
    """`kind=seconds`: how long clients may wait for the next acknowledged write at a fault of that kind."""
    keep: bool = _option("--keep", False)
    """The nodes' data stay where they are, also if all is well."""
    store: Path = field(default=STORE, metadata={"option": "--store"})

    def __post_init__(self) -> None:
        if self.message and "message" not in self.nemesis:
            object.__setattr__(self, "nemesis", (*self.nemesis, "message"))
        _one_of("--cluster", self.cluster, WORLDS)
        for fault in self.nemesis:
            _one_of("--nemesis", fault, FAULTS)
            if fault in NEVER.get(self.cluster, {}):
                raise WrongPlan(f"--nemesis {fault} is not to be had in {self.cluster}: {NEVER[self.cluster][fault]}")
        for text in self.message:
            try:
                wish_of(text)
            except ValueError as error:
                raise WrongPlan(f"--message {text}: {error}") from error
        for number in self.only_faults:
            if not number.isdecimal():
                raise WrongPlan(f"--only-faults {number}: must be numbers of faults in the history, like 3,7")
        self._check_without()
        for client in self.clients:
            _one_of("--client", client, CLIENTS)
        _one_of("--isolation", self.isolation, ("read_committed", "read_uncommitted"))
        _one_of("--group-protocol", self.group_protocol, ("classic", "consumer", MIXED))
        self.client_settings()
        for name, value in (("--time", self.time), ("--rate", self.rate), ("--interval", self.interval)):
            if not 0 < value < math.inf:
                raise WrongPlan(f"{name} {value:g}: it must be more than 0")
        for name, count in (
            ("--concurrency", self.concurrency),
            ("--keys", self.keys),
            ("--max-writes", self.max_writes),
        ):
            if count < 1:
                raise WrongPlan(f"{name} {count}: it must be at least 1")
        if not 0.0 <= self.abort_probability <= 1.0:
            raise WrongPlan(f"--abort-probability {self.abort_probability:g}: it must be from 0 to 1")
        if not 0 < self.crash_every < math.inf:
            raise WrongPlan(f"--crash-every {self.crash_every:g}: seconds, more than 0")
        if not (0 <= self.quiet < math.inf and 0 <= self.final < math.inf):
            raise WrongPlan("--quiet and --final are seconds, not below 0")
        if not self.clients:
            raise WrongPlan(f"--client: there is none; there are {', '.join(CLIENTS)}")
        if self.cluster == "sim" and self.clients != ("barnabas",):
            raise WrongPlan("--cluster sim: only our own client lives in a simulation, use --client barnabas")
        if self.no_idempotence and not self.no_transactions:
            raise WrongPlan("--no-idempotence: transactions need it; add --no-transactions")
        self._check_bootstrap()
        self._check_logins()
        if self.secure and self.cluster not in SECURE_WORLDS:
            raise WrongPlan(f"--secure: only {', '.join(SECURE_WORLDS)} can be made secure; this is {self.cluster}")
        self._check_plant()
        for key, text in _pairs("--settings", self.settings).items():
            _check_setting(key, text)
        for kind in self.budgets():
            _one_of("--budget", kind, ("any", "recovery", *FAULTS))
        try:
            make_workload(self.workload, self.workload_options())
        except ValueError as error:
            raise WrongPlan(str(error)) from error

    def _check_bootstrap(self) -> None:
        if self.cluster != "bootstrap":
            if self.bootstrap is not None:
                raise WrongPlan(f"--bootstrap is a cluster by itself: leave --cluster {self.cluster} out")
            return
        if self.bootstrap is None:
            raise WrongPlan("--cluster bootstrap needs --bootstrap HOST:PORT")
        for name, given in (("--nemesis", self.nemesis), ("--settings", self.settings), ("--plant", self.plant)):
            if given:
                raise WrongPlan(f"{name}: the cluster of --bootstrap is not ours to break, leave it out")

    def _check_logins(self) -> None:
        if self.workload in OURS and self.clients != ("barnabas",):
            raise WrongPlan(f"{self.workload}: only our own client can do that, use --client barnabas")
        if self.workload not in LOG_IN:
            return
        if self.clients != ("barnabas",):
            raise WrongPlan(f"{self.workload}: only our own client asks one broker as one user, use --client barnabas")
        if self.cluster != "sim" and "sasl_mechanism" not in self.client_settings().security:
            raise WrongPlan(
                f"{self.workload} on {self.cluster}: brokers must have StandardAuthorizer and a listener with "
                "SCRAM-SHA-256, and --client-config must say how a super user logs in: security_protocol=SASL_..., "
                "sasl_mechanism=..., sasl_plain_username=..., sasl_plain_password=...; or use --cluster sim"
            )

    def _check_without(self) -> None:
        for number in self.without_processes:
            if not number.isdecimal() or int(number) >= self.concurrency:
                raise WrongPlan(f"--without-processes {number}: they are 0 to {self.concurrency - 1}")
        ranges_of(self.without_operations)
        if self.condition and self.cluster != "sim":
            raise WrongPlan(f"--condition: only --cluster sim can be varied so; this is {self.cluster}")
        size = self.conditions().size
        if self.without_nodes and size is not None:
            raise WrongPlan("--without-nodes: a cluster with --condition size has the nodes that it says")
        if self.without_nodes and self.cluster != "sim":
            raise WrongPlan(f"--without-nodes: only --cluster sim can have less nodes than {self.cluster} has")
        for name in self.without_nodes:
            _one_of("--without-nodes", name, NODES)
        if not self.brokers_left or not any("controller" in name for name in NODES if name not in self.without_nodes):
            raise WrongPlan("--without-nodes: a cluster has a broker and a controller at least")

    @property
    def brokers_left(self) -> int:
        return self.conditions().brokers - sum("broker" in name for name in self.without_nodes)

    def _check_plant(self) -> None:
        if self.plant is not None:
            from plants.catalogue import NoSuchPlant, find

            try:
                find(self.plant)
            except NoSuchPlant as error:
                raise WrongPlan(f"--plant: {error}") from error

    def workload_options(self, prefix: str = "") -> WorkloadOptions:
        """`prefix` begins the names of topics, groups and transactional ids, where others may be in the cluster."""
        more = _pairs("--option", self.option)
        if prefix:
            more["prefix"] = prefix
        if self.cluster == "bootstrap":
            # As many as that cluster's brokers think right; ours are three.
            more.setdefault("replicas", "-1")
        if self.brokers_left < BROKERS:
            more.setdefault("replicas", str(self.brokers_left))
        if self.workload in LOG_IN and self.cluster == "sim":
            more.setdefault("allow_everyone", "true")
        return WorkloadOptions(
            processes=self.concurrency,
            keys=self.keys,
            max_writes_per_key=self.max_writes,
            transactions=not self.no_transactions,
            subscribe=not self.assign_only,
            abort_probability=self.abort_probability,
            isolation=self.isolation,
            idempotence=not self.no_idempotence,
            group_protocol=self.group_protocol,
            crash_every_seconds=self.crash_every,
            topic_configs=_pairs("--topic-config", self.topic_config),
            more=more,
        )

    def client_settings(self) -> ClientSettings:
        """Settings of every client, but for its servers."""
        changes: dict[str, Any] = {}
        security: dict[str, str] = {}
        known = {name: value for name, value in asdict(ClientSettings("", "")).items() if name.endswith("_ms")}
        for name, text in _pairs("--client-config", self.client_config).items():
            if name == "assignors" and {*text.split("/")} <= {*ASSIGNORS}:
                changes[name] = tuple(text.split("/"))
            elif name in known and text.isdecimal():
                changes[name] = int(text)
            elif name in SecuritySettings.model_fields:
                security[name] = text
            else:
                raise WrongPlan(
                    f"--client-config {name}={text}: must be assignors=A/B of {', '.join(ASSIGNORS)}, or milliseconds "
                    f"of {', '.join(known)}, or a setting of our client such as security_protocol=SSL"
                )
        return ClientSettings("", "jepsen", security=_checked(security), **changes)

    def conditions(self) -> Conditions:
        try:
            found = parse_conditions(_pairs("--condition", self.condition))
        except ValueError as error:
            raise WrongPlan(f"--condition {error}") from error
        has_logins = self.workload in LOG_IN
        return replace(found, secure=found.secure or self.secure or has_logins, logins=found.logins or has_logins)

    def budgets(self) -> dict[str, float]:
        """By kind of fault; `any` for all, `recovery` for the time after a fault's end."""
        try:
            return {kind: float(seconds) for kind, seconds in _pairs("--budget", self.budget).items()}
        except ValueError as error:
            raise WrongPlan(f"--budget {' '.join(self.budget)}: it is KIND=SECONDS") from error

    def node_settings(self) -> dict[str, str]:
        fewer: dict[str, str] = {}
        if self.brokers_left < BROKERS:
            fewer = dict.fromkeys(REPLICATED, str(self.brokers_left))
            fewer["min.insync.replicas"] = str(min(2, self.brokers_left))
        return fewer | _pairs("--settings", self.settings)

    def with_options(self, options: Mapping[str, str]) -> Plan:
        """Some of them otherwise, by their names without dashes before: `{"crash-every": "10"}`."""
        by_name = {each.metadata["option"].removeprefix("--"): each for each in fields(self) if each.metadata}
        by_name["nemesis-interval"] = by_name["interval"]
        changes: dict[str, Any] = {}
        for name, text in options.items():
            if name not in by_name:
                raise WrongPlan(f"--{name}: `run` has no such option")
            changes[by_name[name].name] = _parsed(name, text, by_name[name].default)
        return replace(self, **changes)

    def summary(self) -> str:
        """The run in a few words."""
        where = self.bootstrap if self.cluster == "bootstrap" else self.cluster
        faults = f"nemesis {','.join(self.nemesis)}" if self.nemesis else "nothing is broken"
        return f"{self.workload} on {where} for {self.time:g} s, {faults}"

    def replay(self) -> str:
        """The command that does the same again."""
        return shlex.join(["python", "jepsen-style", *self.words()])

    def words(self) -> tuple[str, ...]:
        """The words of that command after `python jepsen-style`."""
        words = ["run", self.workload]
        for each in fields(self):
            name, value = each.metadata.get("option"), getattr(self, each.name)
            if name is None or (value == each.default and name not in ("--seed", "--cluster")):
                continue
            if name == "--cluster" and value == "bootstrap":
                continue
            if value is True:
                words.append(name)
            elif name in PAIRS:
                words += [word for pair in value for word in (name, pair)]
            elif isinstance(value, tuple):
                words += [name, ",".join(value)]
            else:
                words += [name, f"{value:g}" if isinstance(value, float) else str(value)]
        return tuple(words)


def ranges_of(texts: Sequence[str]) -> list[range]:
    """Parses `7` and `10-19`. Raises WrongPlan."""
    found = []
    for text in texts:
        first, dash, last = text.partition("-")
        if not dash:
            last = first
        if not first.isdecimal() or not last.isdecimal() or int(last) < int(first):
            raise WrongPlan(f"--without-operations {text}: operations have numbers from 0 on: 7,10-19")
        found.append(range(int(first), int(last) + 1))
    return found


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise WrongPlan(f"{name} {value}: there is only {', '.join(known)}")


def _checked(security: Mapping[str, str]) -> Mapping[str, str]:
    try:
        SecuritySettings.of(security)
    except ConfigException as error:
        raise WrongPlan(f"--client-config {error.message}") from None
    return security


def _pairs(name: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise WrongPlan(f"{name} {text}: it is KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def _check_setting(key: str, value: str) -> None:
    """Checks a setting of a node as the node will parse it; nodes check rules between settings themselves."""
    definition = find_broker_key(key)
    if definition is None:
        if not is_plugin_key(key) and key not in KEYS_OF_STORE and key != COMPACTED_TIERS:
            near = closest_key(key)
            raise WrongPlan(f"--settings {key}: nodes have no such setting" + (f"; {near}?" if near else ""))
        return
    try:
        definition.parse(value)
    except SettingsError as error:
        error.key = key
        raise WrongPlan(f"--settings {error}") from error


def _parsed(name: str, text: str, default: Any) -> Any:
    assert default is not MISSING
    try:
        if isinstance(default, bool):
            return {"true": True, "": True, "false": False}[text]
        if isinstance(default, tuple):
            return tuple(split(text))
        if isinstance(default, int | float | Path):
            return type(default)(text)
    except (ValueError, KeyError) as error:
        raise WrongPlan(f"--{name} {text}: that is no {type(default).__name__}") from error
    return text


def split(text: str) -> list[str]:
    """`kill,pause`."""
    return [part.strip() for part in text.split(",") if part.strip()]
