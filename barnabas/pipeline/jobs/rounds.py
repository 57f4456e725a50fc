"""Runs a job in rounds, each of which becomes visible atomically, even if the driver is killed at any moment.

The files of a round are written to a temporary directory. Then `moves.json` lists which file gets which final name:
from that moment the round is completed. The files are renamed, `plan.json` counts the round, and `moves.json` is
removed. After a crash the next run finishes the moves of the current round if they are listed, or else removes the
temporary files, and continues.
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
    """Source and target of each file, relative to the temporary directory and to the data directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int
    moves: list[tuple[str, str]]
    records: int


class Written(BaseModel):
    """The result of a round."""

    records: int
    moves: list[tuple[str, str]] = []
    """(temporary file, final name) pairs, relative as in `Moves`."""


class Rounds:
    """The state of one job. Only one process may use it at a time."""

    def __init__(self, files: Files, folder: str, data: str | None = None) -> None:
        """`folder` has the state, `data` the final files."""
        self._files = files
        self._folder = folder
        self._data = data or folder

    @property
    def aside(self) -> str:
        """The temporary directory of a round, which readers of the data skip."""
        return f"{self._folder}/{ASIDE}"

    def open(self, wanted: Claim) -> Plan:
        """The plan, after finishing listed moves; an empty plan if there is none. PipelineError if the state belongs to
        another job."""
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
        """Run the remaining rounds; yields the plan after each. `work` runs the round with a number, and runs it again
        after a crash."""
        while not plan.is_done:
            self._files.remove(self.aside)
            written = work(plan.done, plan.rounds[plan.done])
            if written.moves:
                moves = Moves(round=plan.done, moves=written.moves, records=written.records)
                self._files.write(f"{self._folder}/{MOVES}", moves.model_dump_json())
                self._rename_all(moves)
            plan = plan.round_done(written.records, len(written.moves))
            self.save(plan)
            self._clean_up()
            yield plan

    def _finished(self, plan: Plan) -> Plan:
        path = f"{self._folder}/{MOVES}"
        text = self._files.read(path)
        if text is not None:
            moves: Moves = read_document(Moves, text, path)
            if moves.round == plan.done:
                self._rename_all(moves)
                plan = plan.round_done(moves.records, len(moves.moves))
                self.save(plan)
        self._clean_up()
        return plan

    def _rename_all(self, moves: Moves) -> None:
        for source, target in moves.moves:
            here, there = f"{self.aside}/{source}", f"{self._data}/{target}"
            if self._files.exists(here):
                self._files.move(here, there)
            elif not self._files.exists(there):
                raise PipelineError(f"neither {there} nor its temporary file exists; give another directory")

    def _clean_up(self) -> None:
        self._files.remove(f"{self._folder}/{MOVES}")
        self._files.remove(self.aside)


@contextmanager
def claimed(files: Files, folder: str, wanted: Claim) -> Iterator[Claim]:
    """The claim on a checkpoint of Spark, locked for the block: the existing one, if it is of the same job, or
    `wanted`, which is written."""
    with files.only_one(folder):
        path = f"{folder}/{CLAIM}"
        text = files.read(path)
        if text is None:
            if any(name in files.names(folder) for name in ("offsets", "metadata", PLAN)):
                raise PipelineError(f"{folder} is the checkpoint of another program; give another --checkpoint")
            files.write(path, wanted.model_dump_json())
            found = wanted
        else:
            found = read_document(Claim, text, path)
            found.require_same(wanted, folder)
        yield found


def new_claim(job: str, identity: TopicIdentity, other: str, settings: Mapping[str, str | None]) -> Claim:
    """The claim of a job on an empty checkpoint, without settings that are None."""
    return Claim(
        job=job,
        cluster_id=identity.cluster_id,
        topic=identity.topic,
        topic_id=identity.topic_id,
        other=other,
        settings={name: value for name, value in settings.items() if value is not None},
        query_id=f"{job.split(maxsplit=1)[0]}-{uuid.uuid4().hex}",
    )
