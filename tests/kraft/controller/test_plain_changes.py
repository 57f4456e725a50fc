"""Changes of one partition beside a plain statement of the rules, which looks at the outcome and not at the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.partition_change import Election, PartitionChange, PartitionRules
from barnabas.kraft.metadata.image import (
    LEADER_RECOVERED,
    LEADER_RECOVERING,
    LEADER_RECOVERY_NO_CHANGE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    PartitionImage,
)
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
from tests.examples import examples

BROKERS = (1, 2, 3, 4, 5)
TOPIC_ID = b"t" * 16
Draw = Callable[[st.SearchStrategy[Any]], Any]


def some_of(draw: Draw, members: tuple[int, ...], *, least: int = 0) -> tuple[int, ...]:
    return tuple(draw(st.permutations(members)))[: draw(st.integers(least, len(members)))]


def a_partition(draw: Draw, *, elr: bool) -> PartitionImage:
    """Any state that the controller may have written."""
    replicas = some_of(draw, BROKERS, least=1)
    isr = some_of(draw, replicas, least=0 if elr else 1)
    rest = tuple(it for it in replicas if it not in isr)
    eligible = tuple(sorted(some_of(draw, rest))) if elr else ()
    leader = draw(st.sampled_from([*isr, NO_LEADER])) if isr else NO_LEADER
    adding = some_of(draw, replicas) if draw(st.booleans()) else ()
    removing = some_of(draw, tuple(it for it in replicas if it not in adding)) if draw(st.booleans()) else ()
    return PartitionImage(
        replicas,
        tuple(bytes([it]) * 16 for it in replicas),
        isr,
        removing,
        adding,
        leader=leader,
        elr=eligible,
        last_known_elr=some_of(draw, replicas)[:1] if elr and not isr and not eligible else (),
        leader_recovery_state=draw(st.sampled_from([LEADER_RECOVERED, LEADER_RECOVERED, LEADER_RECOVERING])),
    )


@dataclass
class Wanted:
    """Targets of a change."""

    change: PartitionChange
    able: frozenset[int]
    roomy: frozenset[int]


def a_change(draw: Draw) -> Wanted:
    has_elr = draw(st.booleans())
    partition = a_partition(draw, elr=has_elr)
    able = frozenset(it for it in BROKERS if draw(st.integers(0, 2)))
    if draw(st.integers(0, 2)) == 0:
        able -= {*partition.isr, *partition.elr}
    roomy = frozenset(it for it in BROKERS if draw(st.integers(0, 2)))
    rules = PartitionRules(
        lambda broker: broker in able,
        lambda broker: broker in roomy,
        lambda broker: bytes([broker + 100]) * 16,
        draw(st.integers(1, 3)),
        has_elr,
        draw(st.sampled_from([7, 11, 12, 16, 17, 30])),
    )
    change = PartitionChange(TOPIC_ID, 3, partition, rules, draw(st.sampled_from(Election)))
    if draw(st.booleans()):
        change.isr = some_of(draw, partition.replicas)
    if draw(st.integers(0, 2)) == 0:
        change.replicas = some_of(draw, BROKERS, least=1)
        change.isr = tuple(it for it in change.isr if it in change.replicas)
        change.adding_replicas = tuple(it for it in change.replicas if it not in partition.replicas)
        change.removing_replicas = some_of(draw, tuple(it for it in change.replicas if it in partition.replicas))
    if draw(st.booleans()):
        change.unclean_restarts = some_of(draw, partition.replicas)
        change.emptied = some_of(draw, change.unclean_restarts)
        change.isr = tuple(it for it in change.isr if it not in change.unclean_restarts)
    if draw(st.integers(0, 3)) == 0:
        change.leader_recovery_state = LEADER_RECOVERED
    return Wanted(change, able, roomy)


@dataclass
class Outcome:
    """A partition after a change."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    recovery: int
    bumps_epoch: bool


def plain(wanted: Wanted) -> Outcome:
    """The rules, in the order in which they build on each other."""
    change, before, rules = wanted.change, wanted.change.partition, wanted.change.rules
    isr, replicas, adding, removing = change.isr, change.replicas, change.adding_replicas, change.removing_replicas

    # A reassignment is over when all that stay are in sync.
    staying = tuple(it for it in replicas if it not in removing)
    synced = tuple(it for it in isr if it not in removing)
    if (adding or removing) and staying and synced and set(staying) <= set(synced):
        isr, replicas, adding, removing = synced, staying, (), ()

    # Below min.insync.replicas nothing was acknowledged without those that leave.
    elr = before.elr
    if rules.elr_enabled:
        held = {*before.isr, *before.elr} - {*isr, *change.unclean_restarts}
        elr = tuple(sorted(held & {*replicas})) if len(isr) < rules.min_insync_replicas else ()
    last_known = before.last_known_elr
    if not isr and not elr:
        back = [it for it in change.unclean_restarts if it in before.elr and it not in change.emptied]
        last_known = (back[-1],) if back else last_known

    # The leader.
    complete = isr or elr
    order = [before.leader, *replicas]
    if change.election is Election.PREFERRED:
        order = [replicas[0], *order]
    able = [it for it in order if it in complete and it in wanted.able]
    known = [it for it in last_known if it in replicas and it in wanted.able]
    loses = False
    if able:
        known_before = {*before.isr, *before.elr, able[0]}
        leader = next((it for it in able if it in wanted.roomy and it in known_before), able[0])
    elif rules.elr_enabled and not complete and len(last_known) == 1 and known:
        leader, loses = known[0], True
    else:
        left = [it for it in replicas if it in wanted.able]
        loses = change.election is Election.UNCLEAN and bool(left)
        leader = left[0] if loses else NO_LEADER

    recovery = change.leader_recovery_state
    moved = leader != before.leader
    if moved and leader in elr:
        # All eligible replicas are complete: those that work are in sync again.
        isr = tuple(it for it in replicas if it == leader or it in {*elr} & wanted.able & wanted.roomy)
        elr = () if len(isr) >= rules.min_insync_replicas else tuple(it for it in elr if it not in isr)
    elif moved and loses:
        isr, elr = (leader,), ()
        # A change that says otherwise comes from a leader, and is none of leaders.
        recovery = LEADER_RECOVERING if recovery == before.leader_recovery_state else recovery
    elif not isr and not rules.elr_enabled:
        isr = before.isr
    shrinks = isr != before.isr and not {*before.isr} <= {*isr}
    bumps = moved or not {*before.replicas} <= {*replicas} or (rules.metadata_version <= 11 and shrinks)

    # The last leader, while there is none.
    if rules.elr_enabled and not isr and before.isr:
        alone = before.isr[0] if len(before.isr) == 1 else NO_LEADER
        last = before.leader if before.leader != NO_LEADER else alone
        last_known = (last,) if last != NO_LEADER else before.last_known_elr
    elif leader != NO_LEADER or not rules.elr_enabled:
        last_known = () if rules.elr_enabled else before.last_known_elr
    elr = elr if rules.elr_enabled else ()
    return Outcome(leader, isr, elr, last_known, replicas, adding, removing, recovery, bumps)


def applied(before: PartitionImage, record: PartitionChangeRecord | None) -> Outcome:
    if record is None:
        record = PartitionChangeRecord()

    def after(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
        return old if new is None else tuple(new)

    unchanged = record.leader_recovery_state == LEADER_RECOVERY_NO_CHANGE
    return Outcome(
        before.leader if record.leader == NO_LEADER_CHANGE else record.leader,
        after(record.isr, before.isr),
        after(record.eligible_leader_replicas, before.elr),
        after(record.last_known_elr, before.last_known_elr),
        after(record.replicas, before.replicas),
        after(record.adding_replicas, before.adding_replicas),
        after(record.removing_replicas, before.removing_replicas),
        before.leader_recovery_state if unchanged else record.leader_recovery_state,
        record.leader != NO_LEADER_CHANGE,
    )


@pytest.mark.feature("RE-18", "RE-19", "MB-13")
@settings(max_examples=examples(600))
@given(st.data())
def test_a_change_has_the_outcome_that_the_rules_state(data: st.DataObject) -> None:
    wanted = a_change(data.draw)
    before = wanted.change.partition
    expected = plain(wanted)
    record = wanted.change.build()
    assert applied(before, record) == expected
    assert (record is None) == (applied(before, None) == expected)
    if record is None:
        return
    assert (record.topic_id, record.partition_id) == (TOPIC_ID, 3)
    for new, old in [
        (record.isr, before.isr if record.leader == NO_LEADER_CHANGE else None),
        (record.eligible_leader_replicas, before.elr),
        (record.last_known_elr, before.last_known_elr),
        (record.replicas, before.replicas),
        (record.adding_replicas, before.adding_replicas),
        (record.removing_replicas, before.removing_replicas),
        (record.directories, before.directories),
    ]:
        assert new is None or tuple(new) != old, "only what changes is in the record"
    directories = tuple(
        before.directory_of(it) if it in before.replicas else bytes([it + 100]) * 16 for it in expected.replicas
    )
    says = wanted.change.rules.metadata_version >= 17 and expected.replicas != before.replicas
    assert record.directories == (list(directories) if says and directories != before.directories else None)
