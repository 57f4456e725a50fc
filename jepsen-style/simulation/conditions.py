"""The conditions of a simulated run: what only a simulation can vary. `--condition NAME=VALUE` sets them.

`inner.NAME=N` changes an inner constant of the nodes (`World.tuned`), `feature.NAME=LEVEL` a feature level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

INNER, FEATURE = "inner.", "feature."


def _pair(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, Any]]:
    def parse(text: str) -> tuple[Any, Any]:
        first, slash, second = text.partition("/")
        if not slash:
            raise ValueError(text)
        return kind(first), kind(second)

    return parse


def _switch(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _field(default: Any, parse: Callable[[str], Any], form: str) -> Any:
    return field(default=default, metadata={"parse": parse, "form": form})


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one run."""

    size: tuple[int, int] | None = _field(None, _pair(int), "BROKERS/CONTROLLERS")
    """None: three brokers and three controllers in one rack."""
    latency_ms: tuple[float, float] | None = _field(None, _pair(float), "LEAST/MEAN")
    """Least latency of links, and mean of what comes on top; None: drawn by the seed."""
    disk_ms: tuple[float, float] | None = _field(None, _pair(float), "LEAST/MEAN")
    """The same for blocking disk operations."""
    faults_at_once: int = _field(2, int, "NUMBER")
    fault_seconds: float | None = _field(None, float, "SECONDS")
    """Mean duration of a fault; None: it goes by the interval."""
    core: bool = _field(False, _switch, "true or false")
    """Only a core of the nodes is healed first, and has to work without the rest."""
    aims: bool = _field(False, _switch, "true or false")
    """Some faults wait for nodes in rare states and strike those."""
    until_broken: bool = _field(False, _switch, "true or false")
    """The run ends at the first broken promise: what follows it may be very slow."""
    count_work: bool = _field(False, _switch, "true or false")
    """Count the work of every step of a request. Such a run takes longer."""
    secure: bool = _field(False, _switch, "true or false")
    """Nodes talk to each other over TLS and SASL, and have an authorizer."""
    logins: bool = _field(False, _switch, "true or false")
    """Secure brokers have a listener where clients log in, and the workload does."""
    first_sequence: int = _field(0, int, "NUMBER")
    """First sequence of producers in a partition."""
    voters: int | None = _field(None, int, "NUMBER")
    """Number of first voters of a quorum whose voters can change; the other controllers observe. None: they cannot."""
    passing_topics: float | None = _field(None, float, "SECONDS")
    """Mean time between two acts of an administrator of topics that come and go; None: there is none."""
    hostile_pause: float | None = _field(None, float, "SECONDS")
    """Mean time between two requests of a hostile client; None: drawn."""
    log_dirs: int = _field(1, int, "1 or 2")
    """Log directories of each node."""
    cells: int = _field(1, int, "NUMBER")
    """Brokers on a host. No partition has two replicas on one."""
    tuned: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    """Levels other than the production ones."""

    @property
    def brokers(self) -> int:
        return 3 if self.size is None else self.size[0]

    @property
    def hosts(self) -> int:
        """Number of hosts with brokers; no partition has more replicas."""
        return -(-self.brokers // self.cells)


USUAL = Conditions()
_BY_NAME = {each.name.replace("_", "-"): each for each in fields(Conditions) if each.metadata}
NAMES = (*_BY_NAME, f"{INNER}NAME", f"{FEATURE}NAME")


def parse_conditions(pairs: Mapping[str, str]) -> Conditions:
    """Raises ValueError, one line."""
    found = Conditions()
    for name, text in pairs.items():
        found = _with(found, name, text)
    if found.size is not None and min(found.size) < 1:
        raise ValueError(f"size={pairs['size']}: a cluster has a broker and a controller at least")
    controllers = 3 if found.size is None else found.size[1]
    if found.voters is not None and not 1 <= found.voters <= controllers:
        raise ValueError(f"voters={found.voters}: must be 1 to {controllers}, the number of controllers")
    if not 1 <= found.cells <= found.brokers:
        raise ValueError(f"cells={found.cells}: must be 1 to {found.brokers}, the number of brokers")
    if found.log_dirs not in (1, 2):
        raise ValueError(f"log-dirs={found.log_dirs}: must be 1 or 2")
    return found


def _with(conditions: Conditions, name: str, text: str) -> Conditions:
    for prefix, of in ((INNER, "tuned"), (FEATURE, "features")):
        if name.startswith(prefix):
            if not text.isdecimal():
                raise ValueError(f"{name} must be a whole number; got {text!r}")
            changes: dict[str, Any] = {of: {**getattr(conditions, of), name.removeprefix(prefix): int(text)}}
            return replace(conditions, **changes)
    if name not in _BY_NAME:
        raise ValueError(f"{name} is unknown; there are {', '.join(NAMES)}")
    known = _BY_NAME[name]
    try:
        value = known.metadata["parse"](text)
    except (ValueError, KeyError):
        raise ValueError(f"{name} must be {known.metadata['form']}; got {text!r}") from None
    return replace(conditions, **{known.name: value})


def shown(conditions: Conditions) -> Sequence[str]:
    """The pairs that `parse_conditions` makes the same of."""
    pairs = []
    for name, known in _BY_NAME.items():
        value = getattr(conditions, known.name)
        if value == known.default:
            continue
        if isinstance(value, tuple):
            text = "/".join(f"{each:g}" for each in value)
        else:
            text = str(value).lower() if isinstance(value, bool) else f"{value}"
        pairs.append(f"{name}={text}")
    pairs += [f"{INNER}{name}={value}" for name, value in conditions.tuned.items()]
    return pairs + [f"{FEATURE}{name}={value}" for name, value in conditions.features.items()]
