"""Which offsets a consumer group takes: from members by their epochs, and from outside."""

from __future__ import annotations

import pytest

from barnabas.broker.groups.group import Commit
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.consumer_rig import Reader, Rig, settle

pytestmark = pytest.mark.feature("CG-04", "CG-09")

E = ErrorCode
MEMBER, NOBODY = "one", ""
EPOCH = 2


def code_of(rig: Rig, commit: Commit, partition: int | None = None) -> ErrorCode | None:
    """The error of a commit, or of one partition of it."""
    try:
        if partition is None:
            rig.group.check_commit(commit, rig.now)
        else:
            topic_id = rig.image.topics.by_name["t"].id
            rig.group.check_commit_of(commit, "t", topic_id, partition)
    except KafkaError as error:
        return error.code
    return None


@pytest.fixture
def rig() -> Rig:
    """A group with one member, which owns both partitions."""
    rig = Rig()
    rig.create_topic("t", 2)
    reader = Reader(rig, MEMBER, "t")
    reader.join()
    settle(reader)
    assert rig.group.members[MEMBER].epoch == EPOCH
    return rig


@pytest.mark.parametrize(
    ("commit", "code"),
    [
        (Commit(MEMBER, None, EPOCH, False, 9), None),
        (Commit(MEMBER, None, 0, False, 9), None),
        (Commit(MEMBER, None, EPOCH + 1, False, 9), E.STALE_MEMBER_EPOCH),
        (Commit(MEMBER, None, EPOCH, False, 8), E.UNSUPPORTED_VERSION),
        (Commit(MEMBER, None, EPOCH, True, 3), None),
        (Commit(MEMBER, None, EPOCH + 1, True, 3), E.STALE_MEMBER_EPOCH),
        (Commit(MEMBER, None, -1, True, 3), None),
        (Commit("another", None, EPOCH, False, 9), E.UNKNOWN_MEMBER_ID),
        (Commit(NOBODY, None, -1, False, 9), E.UNKNOWN_MEMBER_ID),
        (Commit(NOBODY, None, -1, True, 3), None),
        (Commit(NOBODY, None, -2, True, 3), E.UNKNOWN_MEMBER_ID),
        (Commit(NOBODY, "instance", -1, True, 3), E.UNKNOWN_MEMBER_ID),
        (Commit(NOBODY, None, 0, True, 3), E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_group_with_members_takes_their_commits(rig: Rig, commit: Commit, code: ErrorCode | None) -> None:
    assert code_of(rig, commit) == code


@pytest.mark.parametrize(
    ("commit", "code"),
    [
        (Commit(NOBODY, None, -1, False, 9), None),
        (Commit(NOBODY, None, -1, False, 1), None),
        (Commit(MEMBER, None, -1, False, 9), None),
        (Commit(MEMBER, None, EPOCH, False, 9), E.UNKNOWN_MEMBER_ID),
        (Commit(NOBODY, None, 0, False, 9), E.UNKNOWN_MEMBER_ID),
    ],
)
def test_an_empty_group_takes_commits_from_outside(rig: Rig, commit: Commit, code: ErrorCode | None) -> None:
    rig.heartbeat(member_id=MEMBER, member_epoch=-1)
    assert rig.group.is_empty()
    assert code_of(rig, commit) == code
    if code is None:
        assert code_of(rig, commit, 0) is None, "whatever the partition is"


def test_an_older_epoch_counts_for_a_partition_that_was_owned_since(rig: Rig) -> None:
    """KIP-1251: the member did not know the new epoch yet."""
    first, second = Reader(rig, MEMBER, "t"), Reader(rig, "two", "t")
    first.epoch = EPOCH
    second.join()
    settle(first, second)
    members = rig.group.members
    topic_id = rig.image.topics.by_name["t"].id
    (kept,) = members[MEMBER].assigned[topic_id]
    epoch = members[MEMBER].epoch
    assert epoch > EPOCH
    for asked, partition, code in [
        (epoch, kept, None),
        (epoch, 1 - kept, None),
        (EPOCH, kept, None),
        (EPOCH - 1, kept, E.STALE_MEMBER_EPOCH),
        (EPOCH, 1 - kept, E.STALE_MEMBER_EPOCH),
    ]:
        assert code_of(rig, Commit(MEMBER, None, asked, False, 9), partition) == code, (asked, partition)
