"""Views that nodes have of their replicas, once per second, as columns.

`views.jsonl` has a line for each sample: `{"t_ns", "views": [[node, topic, partition, high_watermark, log_end_offset,
leader_epoch, leader, [isr]]...], "states": {node: state}, "controller": name | null}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from barnabas.cluster.hostile.aims import OWN_PREFIX
from histories.recorder import HistoryError
from operations import Place

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Views:
    """A row is the view of one node of one partition in one sample."""

    look: Ints
    """Index into `looked_ns`, `states` and `controllers`."""
    node: Ints
    """Index into `nodes`."""
    place: Ints
    """Index into `places`."""
    high_watermark: Ints
    log_end_offset: Ints
    leader_epoch: Ints
    leader: Ints
    isr: Ints
    """Index into `isrs`."""
    nodes: Sequence[str]
    places: Sequence[Place]
    isrs: Sequence[tuple[int, ...]]
    looked_ns: Ints
    states: Sequence[Mapping[str, str]]
    controllers: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.look)

    @property
    def t_ns(self) -> Ints:
        """Time of each row."""
        return self.looked_ns[self.look] if len(self.look) else self.look

    @classmethod
    def empty(cls) -> Views:
        return cls.of(())

    @classmethod
    def load(cls, path: Path) -> Views:
        """No file is no views. A torn last line is left out."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return cls.empty()
        except OSError as error:
            raise HistoryError(f"{path}: {error.strerror}") from error
        looks = []
        for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
            try:
                looks.append(json.loads(line))
            except ValueError as error:
                raise HistoryError(f"{path}, line {number} is no JSON: {error}") from error
        try:
            return cls.of(looks)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise HistoryError(f"{path} holds what is no view: {error}") from error

    @classmethod
    def of(cls, looks: Iterable[Mapping[str, Any]]) -> Views:
        """Views from the parsed lines, without the topics of hostile clients: they delete and create these at will,
        and a view has a name but no topic id.
        """
        rows: list[tuple[int, ...]] = []
        nodes: dict[str, int] = {}
        places: dict[Place, int] = {}
        isrs: dict[tuple[int, ...], int] = {}
        looked, states, controllers = [], [], []
        for look, line in enumerate(looks):
            looked.append(line["t_ns"])
            states.append(line.get("states") or {})
            controllers.append(line.get("controller"))
            for node, topic, partition, *numbers, isr in line["views"]:
                if topic.startswith(OWN_PREFIX):
                    continue
                high_watermark, log_end_offset, leader_epoch, leader = numbers
                rows.append(
                    (
                        look,
                        nodes.setdefault(node, len(nodes)),
                        places.setdefault(Place(topic, partition), len(places)),
                        high_watermark,
                        log_end_offset,
                        leader_epoch,
                        leader,
                        isrs.setdefault(tuple(isr), len(isrs)),
                    )
                )
        columns = np.array(rows, dtype=np.int64).reshape(-1, 8).T
        look_, node_, place_, high_watermark_, log_end_offset_, leader_epoch_, leader_, isr_ = columns
        return cls(
            look_,
            node_,
            place_,
            high_watermark_,
            log_end_offset_,
            leader_epoch_,
            leader_,
            isr_,
            list(nodes),
            list(places),
            list(isrs),
            np.array(looked, dtype=np.int64),
            states,
            controllers,
        )
