"""Kafka's own group coordinator loads the log of a conversion in turns, wherever it ends, and has the same group."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.protocol.errors import ErrorCode
from tests.broker.groups.consumer_rig import GROUP
from tests.broker.groups.large_groups import TURN, LargeRig
from tests.compat.available import kafka_libs

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java"), pytest.mark.feature("CG-16")]

PROGRAM = Path(__file__).parent / "java-tools" / "GroupReplay.java"
MEMBERS = 140


@dataclass(frozen=True)
class Loaded:
    """The group that a coordinator has after loading."""

    kind: str
    state: str
    members: frozenset[str]


def loaded_by_kafka(rig: LargeRig, ends: list[int]) -> list[Loaded]:
    """`ends`: numbers of the records up to which the log is loaded."""
    lines = []
    for place, (key, value) in enumerate(rig.log, 1):
        lines.append(f"{key.hex()} {'-' if value is None else value.hex()}")
        lines += [""] * ends.count(place)
    done = subprocess.run(
        ["java", "-cp", f"{kafka_libs()}/*", str(PROGRAM), GROUP],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("batch\t")]
    failed = [why for words in found if words[0] == "failed" for why in words[1:]]
    assert not failed, failed[0]
    return [Loaded(kind, state, frozenset(filter(None, ids.split(",")))) for kind, state, ids in found]


def loaded_here(rig: LargeRig, end: int) -> Loaded:
    fresh = LargeRig(1)
    fresh.image = rig.image
    fresh.log = rig.log[:end]
    fresh.is_checked = False
    fresh.fail_over()
    group = fresh.directory.get(GROUP)
    if group is None:
        return Loaded("none", "", frozenset())
    assert isinstance(group, ClassicGroup | ConsumerGroup)
    return Loaded(group.type.value, group.state_name(), frozenset(group.members))


def ends_of_batches(rig: LargeRig) -> list[int]:
    """Take all turns; returns the lengths of the log before, between and after them."""
    ends = [len(rig.log)]
    while rig.take_turn(TURN):
        if len(rig.log) > ends[-1]:
            ends.append(len(rig.log))
    return ends


def check_all_prefixes(rig: LargeRig, ends: list[int]) -> list[str]:
    """Compare what both coordinators load; returns the kinds of the groups."""
    theirs = loaded_by_kafka(rig, ends)
    ours = [loaded_here(rig, end) for end in ends]
    assert [(it.kind, it.members) for it in theirs] == [(it.kind, it.members) for it in ours]
    return [it.kind for it in ours]


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
def test_kafka_loads_an_upgrade_wherever_it_ends() -> None:
    rig = LargeRig(MEMBERS)
    answers = rig.join()
    ends = ends_of_batches(rig)
    assert answers[0].error_code == ErrorCode.NONE and len(ends) > 4
    # After each record, too: a batch is loaded as a whole, but no record may need a later one.
    kinds = check_all_prefixes(rig, [*ends[:1], *range(ends[0] + 2, ends[1] + 1), *ends[2:]])
    assert kinds[0] == "classic" and set(kinds[1:]) == {"consumer"}


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
def test_kafka_loads_a_downgrade_wherever_it_ends() -> None:
    rig = LargeRig(MEMBERS).upgraded()
    before = len(rig.log)
    assert rig.leave() is ErrorCode.NONE
    ends = ends_of_batches(rig)
    kinds = check_all_prefixes(rig, [before, *ends])
    assert kinds == ["consumer"] * (len(kinds) - 1) + ["classic"] and len(kinds) > 4


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
def test_kafka_does_not_load_members_before_the_tombstone_of_the_classic_group() -> None:
    """The reason for the order of the batches, and a check that this test notices a wrong one."""
    rig = LargeRig(MEMBERS)
    rig.join()
    start = len(rig.log)
    rig.finish()
    tombstone = rig.log.pop(start)
    rig.log.insert(start + 5, tombstone)
    with pytest.raises(AssertionError, match="is not a consumer group"):
        loaded_by_kafka(rig, [len(rig.log)])
