"""Long histories of a log that keeps every promise are valid; one broken promise in them is found, by its name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from checkers.all_checkers import check_all, of_every_run, standard
from checkers.verdict import Verdict
from histories.history import History
from histories.synthetic import LegalOptions, legal_history, polled
from operations import Operation
from tests.examples import examples

pytestmark = pytest.mark.feature("FI-02", "FI-11")

OPTIONS = LegalOptions(operations=70, processes=4, keys=3, max_writes_per_key=20)
ASSIGN_ONLY = replace(OPTIONS, subscribe=False)
seeds = st.integers(0, 2**32)


def judged(operations: list[Operation]) -> Verdict:
    history = History.of(operations, {"workload": "queue", "options": {}})
    return check_all(history, [*standard("queue"), *of_every_run(history.run)])


@given(seeds, st.sampled_from([OPTIONS, ASSIGN_ONLY, replace(OPTIONS, transactions=1.0, processes=7)]))
@settings(max_examples=examples(20), deadline=None)
def test_nothing_is_found_where_nothing_is_wrong(seed: int, options: LegalOptions) -> None:
    verdict = judged(legal_history(options, seed))
    assert [finding for finding in verdict.findings if not finding.legal] == []
    assert verdict.valid != "false"


class Send(NamedTuple):
    """A micro-operation in a history that is being spoiled."""

    operation: Operation
    """Its completion."""
    invoked: int
    key: int
    offset: int
    value: int
    micro: list[Any]


class Poll(NamedTuple):
    """The records of one key in one micro-operation."""

    operation: Operation
    key: int
    records: list[list[int]]
    """Changed in place."""


class Spoiler:
    """A history, seen by what is in it."""

    def __init__(self, operations: list[Operation], seed: int) -> None:
        self.operations = operations
        self.chance = random.Random(seed)

    def completions(self, *types: str) -> Iterator[tuple[int, Operation]]:
        open_: dict[int | str, int] = {}
        for operation in self.operations:
            if operation.type == "invoke":
                open_[operation.process] = operation.i
            elif operation.type in types and operation.f in ("send", "poll", "txn"):
                yield open_[operation.process], operation

    def sends(self, *types: str) -> list[Send]:
        return [
            Send(operation, invoked, micro[1], -1 if micro[2][0] is None else micro[2][0], micro[2][1], micro)
            for invoked, operation in self.completions(*types)
            for micro in operation.value
            if micro[0] == "send"
        ]

    def polls(self, *types: str) -> list[Poll]:
        return [
            Poll(operation, int(key), records)
            for _invoked, operation in self.completions(*types)
            for micro in operation.value
            if micro[0] == "poll" and len(micro) > 1
            for key, records in micro[1].items()
        ]

    def choose(self, found: list[Any]) -> Any:
        assume(found)
        return self.chance.choice(found)

    def new_offset(self, key: int) -> int:
        """An offset after all others."""
        offsets = [each.offset for each in self.sends("ok", "fail", "info") if each.key == key]
        return max([*offsets, *(record[0] for each in self.polls("ok", "fail", "info") for record in each.records)]) + 5

    def forget(self, key: int, value: int) -> None:
        """Nobody was ever given it."""
        for each in self.polls("ok", "fail", "info"):
            if each.key == key:
                each.records[:] = [record for record in each.records if record[1] != value]

    def swap(self, one: Send, other: Send) -> None:
        """Each stands where the other stood, and was called as the other."""
        one.micro[2], other.micro[2] = other.micro[2], one.micro[2]

    def swappable(self, fits: Callable[[Send, Send], bool]) -> tuple[Send, Send]:
        acked = self.sends("ok")
        pairs = [
            (one, other)
            for one in acked
            for other in acked
            if one.key == other.key and one.offset < other.offset and fits(one, other)
        ]
        found: tuple[Send, Send] = self.choose(pairs)
        return found


def inconsistent_offsets(spoiler: Spoiler) -> None:
    acked = spoiler.sends("ok")
    known = {(each.key, each.offset) for each in acked}
    records = [
        (poll, record)
        for poll in spoiler.polls("ok")
        for record in poll.records
        # Somebody else must know what stands there.
        if (poll.key, record[0]) in known
    ]
    poll, record = spoiler.choose(records)
    record[1] = spoiler.choose([each for each in acked if each.key == poll.key and each.value != record[1]]).value


def duplicate(spoiler: Spoiler) -> None:
    poll = spoiler.choose([each for each in spoiler.polls("ok") if each.records])
    poll.records.append([spoiler.new_offset(poll.key), spoiler.choose(poll.records)[1]])


def lost_write(spoiler: Spoiler) -> None:
    read = {(poll.key, record[0]) for poll in spoiler.polls("ok") for record in poll.records}
    overtaken = [
        each
        for each in spoiler.sends("ok")
        if each.offset >= 0 and any(key == each.key and offset > each.offset for key, offset in read)
    ]
    lost = spoiler.choose(overtaken)
    spoiler.forget(lost.key, lost.value)


def unseen(spoiler: Spoiler) -> None:
    lost = spoiler.choose(spoiler.sends("ok"))
    spoiler.forget(lost.key, lost.value)


def aborted_read(spoiler: Spoiler) -> None:
    failed = spoiler.choose(spoiler.sends("fail"))
    poll = spoiler.choose([each for each in spoiler.polls("ok") if each.key == failed.key])
    poll.records.append([spoiler.new_offset(poll.key), failed.value])


def precommitted_read(spoiler: Spoiler) -> None:
    send = spoiler.choose([each for each in spoiler.sends("ok") if each.operation.f == "txn"])
    send.operation.value.append(polled({send.key: [(send.offset, send.value)]}))


def unexpected_read(spoiler: Spoiler) -> None:
    poll = spoiler.choose(spoiler.polls("ok"))
    poll.records.append([spoiler.new_offset(poll.key), 1_000_000])


def int_poll_skip(spoiler: Spoiler) -> None:
    poll = spoiler.choose([each for each in spoiler.polls("ok")[:-3] if len(each.records) > 2])
    del poll.records[spoiler.chance.randrange(1, len(poll.records) - 1)]


def int_nonmonotonic_poll(spoiler: Spoiler) -> None:
    poll = spoiler.choose([each for each in spoiler.polls("ok") if len(each.records) > 1])
    poll.records.append(spoiler.choose(poll.records[:-1]))


def successive_reads(spoiler: Spoiler) -> tuple[Poll, Poll]:
    """Two polls of the same partition in a row by the final reader, which is assigned everything."""
    last = spoiler.operations[-1].process
    reads = [each for each in spoiler.polls("ok") if each.operation.process == last and each.records]
    pairs = [
        (one, next(other for other in reads[place + 1 :] if other.key == one.key))
        for place, one in enumerate(reads)
        if any(other.key == one.key for other in reads[place + 1 :])
    ]
    found: tuple[Poll, Poll] = spoiler.choose(pairs)
    return found


def poll_skip(spoiler: Spoiler) -> None:
    _one, other = successive_reads(spoiler)
    assume(len(other.records) > 1)
    del other.records[0]


def nonmonotonic_poll(spoiler: Spoiler) -> None:
    one, other = successive_reads(spoiler)
    other.records.insert(0, one.records[-1])


def nonmonotonic_send(spoiler: Spoiler) -> None:
    def fits(one: Send, other: Send) -> bool:
        # Where an operation sends more than one to the key, its own order is broken first.
        alone = all(
            [micro[1] for micro in each.operation.value if micro[0] == "send"].count(each.key) == 1
            for each in (one, other)
        )
        return alone and one.operation.i < other.operation.i and one.operation.process == other.operation.process

    spoiler.swap(*spoiler.swappable(fits))


def int_nonmonotonic_send(spoiler: Spoiler) -> None:
    spoiler.swap(*spoiler.swappable(lambda one, other: one.operation is other.operation))


def reordered_send(spoiler: Spoiler) -> None:
    pair = spoiler.swappable(
        lambda one, other: one.operation.i < other.invoked and one.operation.process != other.operation.process
    )
    spoiler.swap(*pair)


def read_each_other(spoiler: Spoiler) -> None:
    acked = spoiler.sends("ok")
    one = spoiler.choose(acked)
    other = spoiler.choose([each for each in acked if each.operation is not one.operation])
    one.operation.value.append(polled({other.key: [(other.offset, other.value)]}))
    other.operation.value.append(polled({one.key: [(one.offset, one.value)]}))


def read_before_it_was_sent(spoiler: Spoiler) -> None:
    poll = spoiler.choose(spoiler.polls("ok"))
    late = [each for each in spoiler.sends("ok") if each.invoked > poll.operation.i and each.key == poll.key]
    send = spoiler.choose(late)
    poll.records.append([send.offset, send.value])


def noted_ranges(spoiler: Spoiler) -> list[tuple[int, list[int]]]:
    """(line, range) of all leader epochs that were recorded; ranges are changed in place."""
    return [
        (operation.i, range_) for operation in spoiler.operations for range_ in operation.note.get("read_epochs", ())
    ]


def two_epochs(spoiler: Spoiler) -> None:
    ranges = noted_ranges(spoiler)
    known = [
        range_
        for line, range_ in ranges
        if any(at != line and key == range_[0] and first == range_[1] for at, (key, first, *_) in ranges)
    ]
    spoiler.choose(known)[3] += 1_000


def epochs_went_back(spoiler: Spoiler) -> None:
    """Replaces one epoch in the middle of a key by a lower one, for every reader."""
    ranges = noted_ranges(spoiler)
    key = spoiler.choose(ranges)[1][0]
    mine = [range_ for _, range_ in ranges if range_[0] == key]
    alone = sorted({range_[3] for range_ in mine})
    assume(len(alone) > 1)
    chosen = spoiler.choose(alone[:-1])
    for range_ in mine:
        range_[3] = 1_000 if range_[3] == chosen else range_[3]


def acked_in_other_epoch(spoiler: Spoiler) -> None:
    read = {(range_[0], range_[1]): range_[3] for _, range_ in noted_ranges(spoiler)}
    sends = [each for each in spoiler.sends("ok") if (each.key, each.offset) in read and each.operation.f == "send"]
    send = spoiler.choose(sends)
    epoch = read[send.key, send.offset] + spoiler.chance.choice((-1, 1)) * 1_000
    object.__setattr__(send.operation, "note", {"leader_epochs": {str(send.key): epoch}})


PLANTS: dict[str, Callable[[Spoiler], None]] = {
    "inconsistent-offsets": inconsistent_offsets,
    "duplicate": duplicate,
    "lost-write": lost_write,
    "unseen": unseen,
    "G1a": aborted_read,
    "precommitted-read": precommitted_read,
    "unexpected-read": unexpected_read,
    "int-poll-skip": int_poll_skip,
    "int-nonmonotonic-poll": int_nonmonotonic_poll,
    "poll-skip": poll_skip,
    "nonmonotonic-poll": nonmonotonic_poll,
    "nonmonotonic-send": nonmonotonic_send,
    "int-nonmonotonic-send": int_nonmonotonic_send,
    "reordered-send": reordered_send,
    "two-epochs": two_epochs,
    "epochs-went-back": epochs_went_back,
    "acked-in-other-epoch": acked_in_other_epoch,
    "G1c": read_each_other,
    "G1c-realtime": read_before_it_was_sent,
}
"""Each by the name under which it must be found."""


@pytest.mark.parametrize("name", PLANTS)
@given(seed=seeds)
@settings(max_examples=examples(6), deadline=None)
def test_one_broken_promise_is_found(name: str, seed: int) -> None:
    spoiler = Spoiler(legal_history(OPTIONS, seed), seed)
    PLANTS[name](spoiler)
    verdict = judged(spoiler.operations)
    assert verdict.valid == "false"
    found = {finding.anomaly for finding in verdict.findings if not finding.legal}
    # A cycle that needs no realtime edge is reported without the suffix.
    assert found & {name, name.removesuffix("-realtime")}
