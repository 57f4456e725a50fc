"""A job that is done in rounds, each visible wholly or not at all, whenever its driver is killed.

A round whose result is files is written aside. Then `moves.json` says which file becomes which: from that moment the
round is done, whoever carries it out. The files are renamed, `plan.json` counts the round, the moves are forgotten. Who
comes after a crash finishes the moves of the round at hand, or throws away what lies aside, and goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.files import Files
from barnabas.pipeline.jobs.plan import Claim, Plan, Round, read_document
from barnabas.pipeline.jobs.topics import TopicIdentity

CLAIM = "claim.json"
PLAN = "plan.json"
MOVES = "moves.json"
ASIDE = "aside"


class Moves(BaseModel):
    """From where to where, relative to the folder of the state and to that of the data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int
    moves: list[tuple[str, str]]
    records: int


class Written(BaseModel):
    """What a round came to."""

    records: int
    moves: list[tuple[str, str]] = []
    """Of what it has aside, relative to there: which file of the data it becomes."""


class Rounds:
    """The state of one job. Only one may have it at a time."""

    def __init__(self, files: Files, folder: str, data: str | None = None) -> None:
        """`folder` has the state, `data` is where finished files go."""
        self._files = files
        self._folder = folder
        self._data = data or folder

    @property
    def aside(self) -> str:
        """Where a round writes; what readers of the data do not look at."""
        return f"{self._folder}/{ASIDE}"

    def open(self, wanted: Claim) -> Plan:
        """The plan that is there, its last round finished if it was decided; or an empty one. PipelineError if the
        state belongs to another job."""
        path = f"{self._folder}/{PLAN}"
        text = self._files.read(path)
        if text is None:
            return Plan(claim=wanted)
        plan: Plan = read_document(Plan, text, path)
        plan.claim.require_same(wanted, self._folder)
        return self._finished(plan)

    def save(self, plan: Plan) -> None:
        self._files.write(f"{self._folder}/{PLAN}", plan.forgetting().model_dump_json())

    def run(self, plan: Plan, work: Callable[[int, Round], Written]) -> Iterator[Plan]:
        """Does the rounds that are left; the plan after each. `work` does the round of that number, and may be asked
        for the same again after a crash."""
        while not plan.is_done:
            self._files.remove(self.aside)
            written = work(plan.done, plan.rounds[plan.done])
            if written.moves:
                moves = Moves(round=plan.done, moves=written.moves, records=written.records)
                self._files.write(f"{self._folder}/{MOVES}", moves.model_dump_json())
                self._carry_out(moves)
            plan = plan.round_done(written.records, len(written.moves))
            self.save(plan)
            self._forget()
            yield plan

    def _finished(self, plan: Plan) -> Plan:
        path = f"{self._folder}/{MOVES}"
        text = self._files.read(path)
        if text is not None:
            moves: Moves = read_document(Moves, text, path)
            if moves.round == plan.done:
                self._carry_out(moves)
                plan = plan.round_done(moves.records, len(moves.moves))
                self.save(plan)
        self._forget()
        return plan

    def _carry_out(self, moves: Moves) -> None:
        for source, target in moves.moves:
            here, there = f"{self.aside}/{source}", f"{self._data}/{target}"
            if self._files.exists(here):
                self._files.move(here, there)
            elif not self._files.exists(there):
                raise PipelineError(f"{there} is gone, and this job did not move it; begin again in another folder")

    def _forget(self) -> None:
        self._files.remove(f"{self._folder}/{MOVES}")
        self._files.remove(self.aside)


@contextmanager
def claimed(files: Files, folder: str, wanted: Claim) -> Iterator[Claim]:
    """The claim on a checkpoint that Spark keeps: the one that is there if it is of the same job, else `wanted`, which
    is written. Nobody else has it during the block."""
    with files.only_one(folder):
        path = f"{folder}/{CLAIM}"
        text = files.read(path)
        if text is None:
            if any(name in files.names(folder) for name in ("offsets", "metadata", PLAN)):
                raise PipelineError(f"{folder} is a checkpoint of something else; give another --checkpoint")
            files.write(path, wanted.model_dump_json())
            found = wanted
        else:
            found = read_document(Claim, text, path)
            found.require_same(wanted, folder)
        yield found


def new_claim(job: str, identity: TopicIdentity, other: str, settings: Mapping[str, str | None]) -> Claim:
    """What a job would write into an empty checkpoint; settings that are None are not given."""
    return Claim(
        job=job,
        cluster_id=identity.cluster_id,
        topic=identity.topic,
        topic_id=identity.topic_id,
        other=other,
        settings={name: value for name, value in settings.items() if value is not None},
        query_id=f"{job.split(maxsplit=1)[0]}-{uuid.uuid4().hex}",
    )
