"""Consumer groups under arbitrary requests: wrong epochs, foreign ids, partitions that are not owned.

Every request is answered, and the invariants of `consumer_rig.Rig.check` hold after every step: no partition has two
owners, and every member has a session timer.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from tests.broker.groups.consumer_rig import Rig

OWN = object()
"""The epoch or the partitions of the member's last answer."""
EPOCHS = st.sampled_from([0, 0, OWN, OWN, OWN, -1, -2, 1, 5, 2**31 - 1, -7])
GARBAGE = [TopicPartitions(topic_id=bytes(15) + b"\x01", partitions=[0, 7, -1])]
SUBSCRIPTIONS = st.fixed_dictionaries(
    {
        "subscribed_topic_names": st.sampled_from([["news"], ["other"], ["news", "other"], [], ["nope"], None]),
        "rebalance_timeout_ms": st.sampled_from([60_000, -1, 0, 1]),
        "topic_partitions": st.sampled_from([[], None, GARBAGE]),
    },
    optional={
        "server_assignor": st.sampled_from(["uniform", "range", "bogus", ""]),
        "subscribed_topic_regex": st.sampled_from(["n.*", "", "(", "[a-z]+"]),
    },
)
FIELDS = SUBSCRIPTIONS | st.fixed_dictionaries({"topic_partitions": st.sampled_from([None, OWN, OWN, GARBAGE])})
ASKED = st.tuples(st.sampled_from("abc"), st.sampled_from([None, None, "one", "two"]), EPOCHS, FIELDS)
HAPPENED = (
    st.sampled_from([1, 1_000, 45_000, 60_000])
    | st.booleans().map(lambda compacted: ("fail over", compacted))
    | st.sampled_from(["delete", "create", "grow"])
)
JOINS: dict[str, Any] = {"subscribed_topic_names": ["news"], "rebalance_timeout_ms": 60_000, "topic_partitions": []}


class Strangers:
    """Clients that send anything, and remember the answers."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.create_topic("news", 4)
        self.rig.create_topic("other", 2)
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, list[TopicPartitions]] = {}

    def ask(self, member_id: str, instance_id: str | None, epoch: object, fields: dict[str, Any]) -> None:
        fields = dict(fields)
        if fields["topic_partitions"] is OWN:
            fields["topic_partitions"] = self._owned.get(member_id, [])
        member_epoch = self._epochs.get(member_id, 0) if epoch is OWN else epoch
        response = self.rig.heartbeat(
            member_id=member_id, instance_id=instance_id, member_epoch=member_epoch, **fields
        )
        if response.error_code == ErrorCode.NONE:
            self._epochs[member_id] = response.member_epoch
            if response.assignment is not None:
                self._owned[member_id] = response.assignment.topic_partitions

    def happens(self, what: object) -> None:
        topics = self.rig.image.topics.by_name
        match what:
            case int(duration_ms):
                self.rig.pass_ms(duration_ms)
            case ("fail over", bool(compacted)):
                self.rig.fail_over(compacted)
            case "delete" if "other" in topics:
                self.rig.delete_topic("other")
            case "create" if "other" not in topics:
                self.rig.create_topic("other", 3)
            case "grow":
                self.rig.add_partitions("news", 1)


@pytest.mark.feature("CG-13")
@given(st.lists(ASKED | HAPPENED, max_size=40))
@example([("a", "one", 0, JOINS), ("a", "one", -2, {"topic_partitions": []}), ("a", "one", 0, JOINS)])
@example([("a", "one", 0, JOINS), ("a", "two", 0, JOINS), ("a", "two", -1, {"topic_partitions": []}),
          ("b", "one", 0, JOINS)])  # fmt: skip
def test_arbitrary_requests_are_answered_and_break_no_invariant(story: list[Any]) -> None:
    strangers = Strangers()
    for step in story:
        if isinstance(step, tuple) and len(step) == 4:
            strangers.ask(*step)
        else:
            strangers.happens(step)
