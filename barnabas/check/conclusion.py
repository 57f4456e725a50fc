"""From all that a run has seen to its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.check.errors import CannotRun
from barnabas.check.feeding import Feeder
from barnabas.check.instance import Instance
from barnabas.check.journal import Journal, calm_spans
from barnabas.check.judge import Finding, Observed, judge
from barnabas.check.options import CheckOptions
from barnabas.check.promises import Kind
from barnabas.check.reading import Reader
from barnabas.check.verdict import Verdict

ENDS_ALLOWED = 3
"""Ends of instances by themselves, besides one of each for every fault."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The parts of a run at its end."""

    reader: Reader
    feeder: Feeder
    instances: Sequence[Instance]
    committed: Mapping[int, int]
    shared_ids: Mapping[str, Sequence[int]]
    """Transactional ids that several instances have used."""
    journal: Journal
    faults: int
    """Number of faults."""

    @property
    def own_ends(self) -> int:
        return sum(len(it.own_ends) for it in self.instances)


def conclude(options: CheckOptions, seen: Seen, began_s: float, end_s: float) -> Verdict:
    """The verdict; faults began at `began_s`. Raises `CannotRun` if the cluster lost an acknowledged input."""
    reader, feeder = seen.reader, seen.feeder
    read = {it.id for it in reader.inputs}
    gone = feeder.sent.keys() - read
    if gone:
        raise CannotRun(f"the cluster lost {len(gone)} acknowledged inputs, the first is {min(gone, key=int)}")
    observed = Observed(
        inputs=reader.inputs,
        outputs=reader.outputs,
        aborted=feeder.aborted,
        uncertain=feeder.uncertain - read,
        committed=seen.committed,
        unreadable=reader.unreadable,
        calm=calm_spans(seen.journal.fault_spans(end_s), began_s, end_s),
        end_s=end_s,
        stuck_s=options.times.stuck_s,
    )
    figures = {"inputs": len(reader.inputs), "outputs": len(reader.outputs), "faults": seen.faults}
    findings = [*judge(observed), *_restless(options.instances, seen)]
    return Verdict(options.promise, options.seed, findings, figures, _notes(options, seen))


def _restless(instances: int, seen: Seen) -> list[Finding]:
    """Instances that end without a fault. A fault may end each of them once, or one of them if it is known that they
    fence each other."""
    each_fault = 1 if seen.shared_ids else instances
    if seen.own_ends <= each_fault * seen.faults + ENDS_ALLOWED:
        return []
    last = [end for it in seen.instances for end in it.own_ends][-1]
    text = f"instances ended by themselves {seen.own_ends} times during {seen.faults} faults, the last one {last}"
    return [Finding(Kind.ENDED, text)]


def _notes(options: CheckOptions, seen: Seen) -> list[str]:
    notes = []
    if not seen.reader.outputs:
        where = f"topic {options.names.output}" if options.sink == "topic" else f"sink {options.sink}"
        notes.append(f"there is no output at all in {where}: is that where the application writes?")
    if seen.own_ends:
        instance = max(seen.instances, key=lambda it: len(it.own_ends))
        notes.append(f"instances ended by themselves {seen.own_ends} times; {instance.name} {instance.own_ends[-1]}")
    for name, users in seen.shared_ids.items():
        who = ", ".join(map(str, users))
        notes.append(f"transactional id {name} was used by instances {who}: the one that starts fences the others")
    for it in seen.instances:
        if it.ignored_sigterm:
            grace_s = options.times.grace_s
            notes.append(f"{it.name} ignored SIGTERM for {grace_s:.0f} s and was killed, {it.ignored_sigterm} times")
    return notes
