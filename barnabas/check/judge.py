"""Core: compares outputs with inputs, and names every difference.

- `lost`: an input has no output, and the application went past it: the group committed a later offset, or a later
  input of the partition has its output;
- `stuck`: inputs of a partition waited for longer than allowed while nothing was broken;
- `doubled`: an output more often than its input asks for;
- `reordered`: the first outputs of two inputs of a key are swapped within one place;
- `aborted`, `invented`, `unreadable`: outputs that should not be there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.check.journal import Span, longest_calm
from barnabas.check.promises import Kind
from barnabas.check.records import Input, Output


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a run has seen."""

    inputs: Sequence[Input]
    """Committed inputs."""
    outputs: Sequence[Output]
    """In the order in which they were seen; within a place, in the order of their positions."""
    aborted: Collection[str] = ()
    """Ids of inputs that were aborted."""
    uncertain: Collection[str] = ()
    """Ids of inputs that may be in the topic or not."""
    committed: Mapping[int, int] = field(default_factory=dict)
    """Offsets of the group at the end, by partition."""
    unreadable: Sequence[str] = ()
    """Outputs in which no id was found, as text."""
    calm: Sequence[Span] = ()
    """Times without a fault."""
    end_s: float = 0.0
    stuck_s: float = 30.0
    """Seconds for which inputs may wait without a fault."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    kind: Kind
    text: str
    """One line."""
    input: Input | None = None
    outputs: tuple[Output, ...] = ()


def judge(seen: Observed) -> list[Finding]:
    """All findings, by kind, within a kind in the order of the inputs. What breaks a promise is decided elsewhere."""
    first: dict[str, Output] = {}
    again: dict[str, list[Output]] = defaultdict(list)
    for output in seen.outputs:
        if output.id in first:
            again[output.id].append(output)
        else:
            first[output.id] = output
    inputs = sorted(seen.inputs, key=lambda it: (it.partition, it.offset))
    return [
        *_lost(inputs, first, seen),
        *_waiting(inputs, first, seen),
        *_doubled(inputs, first, again),
        *_reordered(inputs, first),
        *_unwanted(inputs, first, seen),
    ]


def _lost(inputs: Sequence[Input], first: Mapping[str, Output], seen: Observed) -> list[Finding]:
    reached = dict(seen.committed)
    for each in inputs:
        if each.outputs and all(wanted in first for wanted in each.outputs):
            reached[each.partition] = max(reached.get(each.partition, 0), each.offset)
    findings = []
    for each in inputs:
        missing = [wanted for wanted in each.outputs if wanted not in first]
        if missing and each.offset < reached.get(each.partition, 0):
            what = "no output" if len(missing) == len(each.outputs) else f"no output {', '.join(missing)}"
            findings.append(Finding(Kind.LOST, f"input {each.id} (key {each.key}) has {what}", each))
    return findings


def _waiting(inputs: Sequence[Input], first: Mapping[str, Output], seen: Observed) -> list[Finding]:
    """At most one finding for each time in which a partition stood still."""
    by_partition: dict[int, list[tuple[float, Input]]] = defaultdict(list)
    reached = {partition: offset - 1 for partition, offset in seen.committed.items()}
    for each in inputs:
        if not each.outputs:
            continue
        times = [first[wanted].at_s for wanted in each.outputs if wanted in first]
        if len(times) == len(each.outputs):
            by_partition[each.partition].append((max(times), each))
        elif each.offset > reached.get(each.partition, -1):
            # It may come later: a lost one does not.
            by_partition[each.partition].append((seen.end_s, each))
    findings = []
    for partition in sorted(by_partition):
        findings += _standstills(partition, by_partition[partition], seen)
    return findings


def _standstills(partition: int, done: list[tuple[float, Input]], seen: Observed) -> list[Finding]:
    done.sort(key=lambda it: it[0])
    oldest: list[Input] = [done[-1][1]] * len(done)
    """By place in `done`: the oldest input that is done then or later."""
    for place in range(len(done) - 2, -1, -1):
        oldest[place] = min(done[place][1], oldest[place + 1], key=lambda it: it.at_s)
    findings, before = [], 0.0
    for (at_s, _each), waits in zip(done, oldest, strict=True):
        start = max(before, waits.at_s)
        seconds = longest_calm(seen.calm, start, at_s)
        if seconds > seen.stuck_s:
            text = f"partition {partition} stood still for {seconds:.0f} s without a fault; input {waits.id} waited"
            findings.append(Finding(Kind.STUCK, text, waits))
        before = at_s
    return findings


def _doubled(
    inputs: Sequence[Input], first: Mapping[str, Output], again: Mapping[str, Sequence[Output]]
) -> list[Finding]:
    findings = []
    for each in inputs:
        for wanted in dict.fromkeys(each.outputs):
            found = again.get(wanted, ())
            if len(found) >= each.outputs.count(wanted):
                every = (first[wanted], *found)
                where = ", ".join(str(it) for it in every[:4]) + (", …" if len(every) > 4 else "")
                text = f"input {each.id} (key {each.key}) is in the output {len(every)} times: {where}"
                findings.append(Finding(Kind.DOUBLED, text, each, every))
    return findings


def _reordered(inputs: Sequence[Input], first: Mapping[str, Output]) -> list[Finding]:
    latest: dict[tuple[str, int, str], tuple[Output, Input]] = {}
    findings = []
    for each in inputs:
        for wanted in each.outputs:
            output = first.get(wanted)
            if output is None:
                continue
            line = (each.key, each.partition, output.place)
            before = latest.get(line)
            if before is not None and output.position < before[0].position:
                later = f"its output {output} is before {before[0]}"
                text = f"key {each.key}: input {each.id} came after {before[1].id}, and {later}"
                findings.append(Finding(Kind.REORDERED, text, each, (before[0], output)))
            else:
                latest[line] = (output, each)
    return findings


def _unwanted(inputs: Sequence[Input], first: Mapping[str, Output], seen: Observed) -> list[Finding]:
    wanted = {each for it in inputs for each in it.outputs}
    findings = []
    for output in first.values():
        if output.id in wanted or output.id in seen.uncertain:
            continue
        if output.id in seen.aborted:
            text = f"output {output} is of input {output.id}, whose transaction was aborted: isolation.level?"
            findings.append(Finding(Kind.ABORTED, text, outputs=(output,)))
        else:
            text = f"output {output} has id {output.id}, which no input has"
            findings.append(Finding(Kind.INVENTED, text, outputs=(output,)))
    findings += [Finding(Kind.UNREADABLE, text) for text in seen.unreadable]
    return findings
