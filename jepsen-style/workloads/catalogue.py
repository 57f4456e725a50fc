"""All workloads by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module

from workloads.workload import Workload, WorkloadOptions

WORKLOADS = {
    "queue": "workloads.queue:Queue",
    "list-append": "workloads.list_append:ListAppend",
    "txn-eos": "workloads.txn_eos:TxnEos",
    "bank": "workloads.bank:Bank",
    "set": "workloads.set:Set",
    "group": "workloads.group:Group",
    "offsets": "workloads.offsets:Offsets",
    "metadata": "workloads.metadata:Metadata",
    "fences": "workloads.fences:Fences",
    "rights": "workloads.rights:Rights",
    "share": "workloads.share:Share",
    "delayed": "workloads.delayed:Delayed",
    "two-phase": "workloads.two_phase:TwoPhase",
    "tiered": "workloads.tiered:Tiered",
    "table": "workloads.table:Table",
}
"""The module and class of each; the class takes WorkloadOptions."""


OPTIONS = {"replicas": "replicas of each topic; -1: the default of the brokers", "prefix": "prefix of all names"}
"""Options of every workload, which `--option` sets."""
MORE_OPTIONS = {
    "offsets": {"registers": "of each group", "one_broker": "false: ask whichever coordinate"},
    "rights": {"allow_everyone": "allow.everyone.if.no.acl.found of the brokers"},
    "table": {"tiered_after": "writes after which the topic becomes tiered"},
    "share": {"lock_ms": "duration of acquisition locks", "limit": "maximum delivery count"},
}
"""By workload: what it alone knows."""
_TEXTS = ("prefix",)
_SWITCHES = ("one_broker", "allow_everyone")
_AS_BROKERS_LIKE = "-1"


class UnknownWorkload(ValueError):
    """There is none of that name; one line."""


def make_workload(name: str, options: WorkloadOptions) -> Workload:
    """UnknownWorkload; ValueError, one line, for options that it cannot take."""
    found = WORKLOADS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, WORKLOADS, n=1)
        hint = f"; {near[0]}?" if near else ""
        raise UnknownWorkload(f"there is no workload {name}{hint} There are: {', '.join(WORKLOADS)}")
    _check(name, options.more)
    module, _, class_name = found.partition(":")
    workload: Workload = getattr(import_module(module), class_name)(options)
    return workload


def _check(workload: str, more: Mapping[str, str]) -> None:
    """ValueError, one line."""
    known = OPTIONS | MORE_OPTIONS.get(workload, {})
    for name, text in more.items():
        if name not in known:
            listed = ", ".join(f"{each} ({what})" for each, what in known.items())
            raise ValueError(f"--option {name}: {workload} has no such option; it has {listed}")
        if name in _TEXTS or (name == "replicas" and text == _AS_BROKERS_LIKE):
            continue
        if name in _SWITCHES:
            if text not in ("true", "false"):
                raise ValueError(f"--option {name}={text}: true or false")
            continue
        if not text.isdecimal() or not int(text):
            raise ValueError(f"--option {name}={text}: a whole number, 1 or more")
