"""Core: the metrics that clients pushed, as families of `/metrics` (KIP-714), in steps.

Names and attributes come from clients. Samples of one metric may have different attributes. Each has its own labels
and no others, so a client that invents names of attributes makes no other sample longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.runtime.families import Family, Labels

VALUES_IN_A_STEP = 500
"""Values, and attributes of them, that one step puts in order."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and attributes."""

_OWN_LABELS = ("client_id", "client_instance_id")


class Pushed(NamedTuple):
    """The values of one client instance. They must not change any more."""

    client_id: str
    instance_id: str
    values: Mapping[Series, float]


def pushed_families(clients: Iterable[Pushed]) -> Iterator[Family | None]:
    """One family for each metric and set of labels; those of one metric come one after the other."""
    found: dict[str, dict[tuple[str, ...], dict[Labels, float]]] = {}
    read = 0
    for client in clients:
        for (name, attributes), value in client.values.items():
            labels = {_word(key): text for key, text in attributes}
            keys = tuple(sorted(labels.keys() - _OWN_LABELS))
            samples = found.setdefault(prometheus_name(name), {}).setdefault(keys, {})
            samples[client.client_id, client.instance_id, *(labels[key] for key in keys)] = value
            read += 1 + len(attributes)
            if read >= VALUES_IN_A_STEP:
                read = 0
                yield None
    text = "Pushed by clients (KIP-714)."
    for name, by_keys in found.items():
        for number, (keys, samples) in enumerate(by_keys.items()):
            yield Family("gauge", name, text, (*_OWN_LABELS, *keys), samples.items(), continues=number > 0)


def prometheus_name(name: str) -> str:
    """`org.apache.kafka.producer.connection.count` is `kafka_client_producer_connection_count`."""
    return f"kafka_client_{_word(name.removeprefix('org.apache.kafka.'))}"


def _word(text: str) -> str:
    word = re.sub(r"[^a-zA-Z0-9_]", "_", text)
    return word if word and not word[0].isdigit() else f"_{word}"
