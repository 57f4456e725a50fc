"""Core: metrics as the parts of a node report them. `runtime.metrics` writes them on a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from barnabas.runtime.request_times import Spread

Kind = Literal["gauge", "counter", "histogram"]
Labels = Sequence[str]
"""Values, in the order of the family's names."""


class Family(NamedTuple):
    """One metric: its name, and its value for each set of labels; in histograms a `Spread`, exported in ms."""

    kind: Kind
    name: str
    """Without the suffix `_total`, which counters get when they are written."""
    help: str
    labels: Sequence[str] = ()
    samples: Iterable[tuple[Labels, float | Spread]] = ()
    continues: bool = False
    """Further samples, with other labels, of the family before."""

    @classmethod
    def of(cls, kind: Kind, name: str, help: str, value: float | Spread) -> Family:
        """A family of one sample without labels."""
        return cls(kind, name, help, (), [((), value)])
