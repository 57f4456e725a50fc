"""Histories of a share group: deliveries and acknowledgements that KIP-932 allows, and others."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.share_records import ShareChecker
from checkers.verdict import Verdict
from share_exchanges import LOST
from tests.jepsen.attempt_stories import STEP_NS, Story, bugs

pytestmark = pytest.mark.feature("FI-02", "FI-11", "CG-17")

TOPIC, LIMIT = "share", 3
ACCEPT, RELEASE, RENEW = 1, 2, 4


class Tale:
    """One partition; records 0, 1, … were sent with their offsets as values. Members are `a`, `b`, …"""

    def __init__(self, records: int = 3) -> None:
        self.story = Story()
        values = [str(number) for number in range(records)]
        asked = {"place": [TOPIC, 0], "values": values}
        self.story.did(0, "produce", asked, "ok", {**asked, "sent": [[it, int(it), "ok"] for it in values]})
        self.records = records

    def _exchange(self, member: str, node: int, error: str | None, **more: Any) -> dict[str, Any]:
        self.story.now_ns += 2 * STEP_NS
        sent = self.story.now_ns - STEP_NS
        at = None if error == LOST else self.story.now_ns
        base = {"node": node, "epoch": 1, "sent": sent, "at": at, "fetches": False, "error": error}
        return {**base, "got": [], "acks": [], **more}

    def _consumed(self, member: str, exchange: dict[str, Any], **more: Any) -> None:
        value = {"member": member, "exchanges": [exchange], "polled": [], "reported": [], **more}
        self.story.did(1, "consume", {"topics": [TOPIC]}, "ok", value)

    def gets(self, member: str, first: int, last: int, count: int = 1, *, node: int = 1, text: str = "") -> None:
        polled = [[TOPIC, 0, it, count, text or str(it)] for it in range(first, last + 1)]
        exchange = self._exchange(member, node, None, fetches=True, got=[[TOPIC, 0, first, last, count]])
        self._consumed(member, exchange, polled=polled)

    def loses_a_fetch(self, member: str, node: int = 1) -> None:
        self._consumed(member, self._exchange(member, node, LOST, fetches=True))

    def says(
        self, member: str, offset: int, kind: int = ACCEPT, *, error: str | None = None, node: int = 1, **more: Any
    ) -> None:
        whole = LOST if error == LOST else None
        acks = [[TOPIC, 0, offset, offset, [kind], error]]
        self._consumed(member, self._exchange(member, node, whole, acks=acks), **more)

    def breaks_rules(self, breach: str, error: str | None) -> None:
        asked = {"breach": breach, "member": "x", "place": [TOPIC, 0]}
        acks = [[TOPIC, 0, 0, 0, [9], error]]
        value = {**asked, "exchanges": [self._exchange("x", 1, None, acks=acks)]}
        self.story.did(2, "breach", asked, "ok", value)

    def stands_at(self, start: int, *, final: bool = True, lag: int | None = None) -> None:
        asked = {"final": final}
        value = {**asked, "starts": [[TOPIC, 0, start, lag]], "ends": [[TOPIC, 0, self.records]]}
        self.story.did(3, "starts", asked, "ok", value)

    def ends_well(self) -> Verdict:
        self.stands_at(self.records)
        return self.verdict()

    def verdict(self) -> Verdict:
        return self.story.judged_by(ShareChecker(limit=LIMIT, lock_ms=1_000))


@pytest.fixture
def tale() -> Tale:
    return Tale()


def accepted(tale: Tale, first: int, last: int) -> None:
    tale.gets("z", first, last)
    for offset in range(first, last + 1):
        tale.says("z", offset)


def test_a_record_may_be_delivered_until_it_is_accepted(tale: Tale) -> None:
    accepted(tale, 1, 2)
    tale.gets("a", 0, 0, 1)
    tale.says("a", 0, RELEASE)
    tale.gets("b", 0, 0, 2)
    tale.says("b", 0, error="INVALID_RECORD_STATE")
    tale.gets("a", 0, 0, 3)
    tale.says("a", 0)
    assert tale.ends_well().valid == "true"


def test_an_accepted_record_is_not_delivered_again(tale: Tale) -> None:
    accepted(tale, 0, 2)
    tale.gets("b", 1, 1, 2)
    tale.says("b", 1)
    assert bugs(tale.ends_well()) >= {"redelivered"}


def test_a_deposed_leader_may_deliver_again_but_confirms_nothing(tale: Tale) -> None:
    accepted(tale, 0, 2)
    tale.gets("b", 1, 1, 1, node=2)
    tale.says("b", 1, node=2, error="FENCED_LEADER_EPOCH")
    assert tale.ends_well().valid == "true"
    tale.gets("b", 2, 2, 1, node=2)
    tale.says("b", 2, node=2)
    assert "redelivered" in bugs(tale.ends_well())


def test_a_record_is_accepted_once_unless_the_start_offset_may_be_behind_it(tale: Tale) -> None:
    accepted(tale, 0, 1)
    tale.says("z", 1)
    tale.gets("z", 2, 2)
    tale.says("z", 2)
    assert tale.ends_well().valid == "true"
    other = Tale()
    other.gets("a", 0, 2)
    other.says("a", 2)
    other.says("a", 2)
    other.gets("b", 0, 1, 2)
    other.says("b", 0)
    other.says("b", 1)
    assert "accepted-twice" in bugs(other.ends_well())


def test_a_member_acknowledges_what_it_has(tale: Tale) -> None:
    tale.gets("a", 0, 2)
    tale.gets("b", 1, 1, 2)
    tale.says("a", 1)
    tale.gets("c", 0, 0, 2)
    tale.says("c", 0)
    tale.says("a", 2)
    assert bugs(tale.ends_well()) == {"acknowledged-unheld"}


def test_a_lost_response_may_have_been_a_delivery(tale: Tale) -> None:
    accepted(tale, 1, 2)
    tale.loses_a_fetch("a")
    tale.says("a", 0)
    tale.gets("b", 0, 0, 2)
    assert "acknowledged-unheld" not in bugs(tale.ends_well())


def test_delivery_counts_are_at_most_the_limit_and_grow_by_one(tale: Tale) -> None:
    accepted(tale, 1, 2)
    tale.gets("a", 0, 0, 2)
    assert bugs(tale.verdict()) == {"count-too-high"}
    tale.gets("a", 0, 0, LIMIT + 1)
    assert bugs(tale.verdict()) == {"count-too-high", "count-over-limit"}


def test_a_confirmed_release_counts(tale: Tale) -> None:
    accepted(tale, 1, 2)
    tale.gets("a", 0, 0, 1)
    tale.says("a", 0, RELEASE)
    tale.gets("b", 0, 0, 1)
    tale.says("b", 0)
    assert bugs(tale.ends_well()) == {"count-went-back"}


def test_nothing_is_skipped(tale: Tale) -> None:
    accepted(tale, 0, 0)
    tale.gets("a", 1, 1)
    assert bugs(tale.ends_well()) == {"lost-record", "never-delivered"}
    again = Tale()
    accepted(again, 0, 0)
    for count in range(1, LIMIT + 1):
        again.gets("a", 1, 2, count)
    assert again.ends_well().valid == "true", "delivered as often as allowed"


def test_nothing_stays_acquired(tale: Tale) -> None:
    accepted(tale, 0, 1)
    tale.gets("a", 2, 2)
    tale.stands_at(2, lag=1)
    assert bugs(tale.verdict()) == {"not-drained"}
    tale.says("a", 2)
    tale.stands_at(2, lag=0)
    assert tale.verdict().valid == "true", "the stored start offset may be that of the write before"


def test_the_start_offset_does_not_move_back(tale: Tale) -> None:
    accepted(tale, 0, 2)
    tale.stands_at(2, final=False, lag=1)
    tale.stands_at(1, final=False, lag=2)
    assert tale.ends_well().valid == "true", "a coordinator that was deposed may have answered"
    tale.stands_at(2, lag=0)
    assert bugs(tale.verdict()) == {"start-went-back"}


def test_members_get_what_was_sent(tale: Tale) -> None:
    tale.gets("z", 0, 0, text="1")
    accepted(tale, 1, 2)
    tale.says("z", 0)
    assert bugs(tale.ends_well()) == {"wrong-record"}


def test_a_client_reports_no_success_that_no_broker_reported(tale: Tale) -> None:
    accepted(tale, 1, 2)
    tale.gets("a", 0, 0)
    tale.says("a", 0, error="INVALID_RECORD_STATE", reported=[[TOPIC, 0, [0], None]])
    tale.gets("b", 0, 0, 2)
    tale.says("b", 0)
    assert bugs(tale.ends_well()) == {"false-report"}


def test_nonsense_is_refused(tale: Tale) -> None:
    accepted(tale, 0, 2)
    tale.breaks_rules("unknown-type", "INVALID_REQUEST")
    assert tale.ends_well().valid == "true"
    tale.breaks_rules("unknown-type", None)
    assert "nonsense-accepted" in bugs(tale.ends_well())


def test_a_run_whose_end_was_not_read_proves_nothing(tale: Tale) -> None:
    accepted(tale, 0, 2)
    assert tale.verdict().valid == "unknown"
