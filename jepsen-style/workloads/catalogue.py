"""Which workloads there are."""

from __future__ import annotations

import difflib
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
}
"""Where the class of each is; it is made with WorkloadOptions."""


class UnknownWorkload(ValueError):
    """There is none of that name; one line."""


def make_workload(name: str, options: WorkloadOptions) -> Workload:
    """UnknownWorkload; ValueError, one line, for options that it cannot take."""
    found = WORKLOADS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, WORKLOADS, n=1)
        hint = f"; {near[0]}?" if near else ""
        raise UnknownWorkload(f"there is no workload {name}{hint} There are: {', '.join(WORKLOADS)}")
    module, _, class_name = found.partition(":")
    workload: Workload = getattr(import_module(module), class_name)(options)
    return workload
