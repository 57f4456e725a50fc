"""Core: the plan of a batch job: its offsets in rounds, and the number of completed rounds.

It is kept as `plan.json`. Rounds are completed in order, each atomically (`rounds.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from barnabas.pipeline.errors import PipelineError


class Range(NamedTuple):
    """Offsets of one partition, without `end`."""

    partition: int
    start: int
    end: int


Round = list[Range]


class Claim(BaseModel):
    """The owner of a checkpoint. Another job, or the same job with another topic or output, must not use it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    job: str
    cluster_id: str
    topic: str
    topic_id: str
    other: str
    """The other side of the job: a directory, or another topic."""
    settings: dict[str, str] = {}
    """Options that must not change between runs, by name."""
    query_id: str
    """The query id of the job's sink."""

    def require_same(self, wanted: Claim, folder: str) -> None:
        """PipelineError unless `wanted` may use this checkpoint."""
        another = "give another --checkpoint"
        if self.job != wanted.job:
            raise PipelineError(f"{folder} is the checkpoint of job {self.job!r}, not of {wanted.job!r}; {another}")
        if self.topic != wanted.topic:
            raise PipelineError(f"{folder} is the checkpoint of topic {self.topic}, not of {wanted.topic}; {another}")
        if self.cluster_id != wanted.cluster_id:
            raise PipelineError(f"{folder} is the checkpoint of a job on cluster {self.cluster_id}; {another}")
        if self.topic_id != wanted.topic_id:
            raise PipelineError(
                f"topic {self.topic} was recreated after {folder} was created, so its offsets are other records;"
                f" {another}"
            )
        if self.other != wanted.other:
            raise PipelineError(f"{folder} is the checkpoint of a job with {self.other}, not {wanted.other}; {another}")
        for name in sorted({*self.settings, *wanted.settings}):
            was, is_now = self.settings.get(name), wanted.settings.get(name)
            if was != is_now:
                raise PipelineError(
                    f"{folder} was created {_with(name, was)}, not {_with(name, is_now)}; {another}"
                )


class Plan(BaseModel):
    """The rounds of a job, of which `done` are completed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: Claim
    rounds: list[Round] = []
    done: int = 0
    next_offsets: dict[int, int] = {}
    """Start of new rounds, once all are completed."""
    records: int = 0
    """Records in completed rounds."""
    files: int = 0

    @property
    def is_done(self) -> bool:
        return self.done == len(self.rounds)

    def round_done(self, records: int, files: int) -> Plan:
        return self.model_copy(
            update={"done": self.done + 1, "records": self.records + records, "files": self.files + files}
        )

    def with_more(self, rounds: Sequence[Round], next_offsets: Mapping[int, int]) -> Plan:
        """The plan of a further run. Its rounds continue the numbering."""
        assert self.is_done
        return self.model_copy(
            update={"rounds": [*self.rounds, *rounds], "next_offsets": {**self.next_offsets, **next_offsets}}
        )

    def forgetting(self) -> Plan:
        """Without the ranges of completed rounds, so that the document stays small."""
        return self.model_copy(update={"rounds": [[] for _ in range(self.done)] + self.rounds[self.done :]})


def read_document(kind: type[BaseModel], text: str, path: str) -> Any:
    """Parse a state file. PipelineError if it is invalid."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PipelineError(f"{path}: {where + ': ' if where else ''}{first['msg'].lower()}") from None


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in disjoint ranges: overlapping and adjacent ranges are joined, empty ones removed."""
    result: list[Range] = []
    for each in sorted(ranges):
        if each.end <= each.start:
            continue
        if result and result[-1].partition == each.partition and each.start <= result[-1].end:
            result[-1] = result[-1]._replace(end=max(result[-1].end, each.end))
        else:
            result.append(each)
    return result


def cut(ranges: Iterable[Range], size: int, pieces_in_round: int) -> list[Round]:
    """Cut ranges into pieces of at most `size` offsets, and distribute them to rounds of at most `pieces_in_round`.

    Pieces of a partition keep their order. Within a round, those of a partition are adjacent, and all but the last have
    exactly `size` offsets, so that a round has one range for each partition.
    """
    assert size > 0 and pieces_in_round > 0
    lines: dict[int, list[Range]] = {}
    for each in merged(ranges):
        lines.setdefault(each.partition, []).extend(_pieces(each, size))
    deepest = max(map(len, lines.values()), default=0)
    in_order = [line[depth] for depth in range(deepest) for line in lines.values() if depth < len(line)]
    rounds: list[Round] = []
    ends: dict[int, int] = {}
    for piece in in_order:
        touches = ends.get(piece.partition, piece.start) == piece.start
        if not rounds or len(rounds[-1]) == pieces_in_round or not touches:
            rounds.append([])
            ends = {}
        rounds[-1].append(piece)
        # After a smaller piece no other piece of the partition fits into the round.
        ends[piece.partition] = piece.end if piece.end - piece.start == size else -1
    return rounds


def spans(pieces: Iterable[Range]) -> dict[int, tuple[int, int]]:
    """The range of each partition in a round."""
    result: dict[int, tuple[int, int]] = {}
    for partition, start, end in sorted(pieces):
        result[partition] = (result.get(partition, (start, end))[0], end)
    return result


def _pieces(whole: Range, size: int) -> Iterable[Range]:
    for start in range(whole.start, whole.end, size):
        yield Range(whole.partition, start, min(start + size, whole.end))


def _with(name: str, value: str | None) -> str:
    return f"without {name}" if value is None else f"with {name} {value}"
