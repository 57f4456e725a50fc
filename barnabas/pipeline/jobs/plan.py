"""What a job is going to do, cut into rounds, and how far it is: a small document that survives the job.

    plan.json    which job on which topic, its rounds, how many of them are done

A core: offsets in, ranges out. Rounds are done in order; each is done wholly or not at all, by whoever does them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from barnabas.pipeline.errors import PipelineError


class Range(NamedTuple):
    """Offsets of one partition from `start` up to `end`, which is not in it."""

    partition: int
    start: int
    end: int


Round = list[Range]


class Claim(BaseModel):
    """Whose checkpoint it is. Another job, or the same one on other things, must not go on from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    job: str
    cluster_id: str
    topic: str
    topic_id: str
    other: str
    """What is on the other side: a folder, or another topic."""
    settings: dict[str, str] = {}
    """What must not change on the way, by the names of options."""
    query_id: str
    """Of the job's transactions."""

    def require_same(self, wanted: Claim, folder: str) -> None:
        """PipelineError unless `wanted` may go on from here."""
        another = "give another --checkpoint"
        if self.job != wanted.job:
            raise PipelineError(f"{folder} is a checkpoint of {self.job!r}, not of {wanted.job!r}; {another}")
        if self.topic != wanted.topic:
            raise PipelineError(f"{folder} is the checkpoint of topic {self.topic}, not of {wanted.topic}; {another}")
        if self.cluster_id != wanted.cluster_id:
            raise PipelineError(f"{folder} is the checkpoint of a job on cluster {self.cluster_id}; {another}")
        if self.topic_id != wanted.topic_id:
            raise PipelineError(
                f"the topic {self.topic} was made anew since {folder} was begun, its offsets mean other records;"
                f" {another}"
            )
        if self.other != wanted.other:
            raise PipelineError(f"{folder} is the checkpoint of a job with {self.other}, not {wanted.other}; {another}")
        for name in sorted({*self.settings, *wanted.settings}):
            was, is_now = self.settings.get(name), wanted.settings.get(name)
            if was != is_now:
                raise PipelineError(
                    f"{folder} was begun {_with(name, was)}, and now it is {_with(name, is_now)}; {another}"
                )


class Plan(BaseModel):
    """Rounds of a claim, of which `done` are done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: Claim
    rounds: list[Round] = []
    done: int = 0
    next_offsets: dict[int, int] = {}
    """Where new rounds begin, once all are done."""
    records: int = 0
    """In the rounds that are done."""
    files: int = 0

    @property
    def is_done(self) -> bool:
        return self.done == len(self.rounds)

    def round_done(self, records: int, files: int) -> Plan:
        return self.model_copy(
            update={"done": self.done + 1, "records": self.records + records, "files": self.files + files}
        )

    def with_more(self, rounds: Sequence[Round], next_offsets: Mapping[int, int]) -> Plan:
        """A further run, whose rounds have numbers of their own: what was done stays counted."""
        assert self.is_done
        return self.model_copy(
            update={"rounds": [*self.rounds, *rounds], "next_offsets": {**self.next_offsets, **next_offsets}}
        )

    def forgetting(self) -> Plan:
        """Without the ranges of rounds that are done: nobody asks for them, and the document stays small."""
        return self.model_copy(update={"rounds": [[] for _ in range(self.done)] + self.rounds[self.done :]})


def read_document(kind: type[BaseModel], text: str, path: str) -> Any:
    """A document of ours. PipelineError if it is none."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PipelineError(f"{path}: {where + ': ' if where else ''}{first['msg'].lower()}") from None


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets, each once: overlapping and touching ranges are one; empty ones are none."""
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
    """Ranges cut into pieces of at most `size` offsets, dealt to rounds of at most `pieces_in_round`.

    Pieces of a partition keep their order. In a round, those of one partition touch each other, and all but its last
    have exactly `size` offsets: a round is one range for each partition.
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
        # After a piece that is not whole nothing more of its partition fits into the round.
        ends[piece.partition] = piece.end if piece.end - piece.start == size else -1
    return rounds


def spans(pieces: Iterable[Range]) -> dict[int, tuple[int, int]]:
    """A round as one range for each partition."""
    result: dict[int, tuple[int, int]] = {}
    for partition, start, end in sorted(pieces):
        result[partition] = (result.get(partition, (start, end))[0], end)
    return result


def _pieces(whole: Range, size: int) -> Iterable[Range]:
    for start in range(whole.start, whole.end, size):
        yield Range(whole.partition, start, min(start + size, whole.end))


def _with(name: str, value: str | None) -> str:
    return f"without {name}" if value is None else f"with {name} {value}"
