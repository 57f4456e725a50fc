"""States of replicas, as the metadata gives them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.kraft.metadata.image import BrokerImage, PartitionImage
from barnabas.kraft.metadata.replica_states import ReplicaState, replica_states

pytestmark = pytest.mark.feature("MB-11")

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
DIRECTORIES = tuple(bytes([9, number] * 8) for number in range(4))


def broker(number: int) -> BrokerImage:
    return BrokerImage(number, 1, bytes(16), {}, {}, fenced=False, log_directories=(DIRECTORIES[number],))


def partition(*replicas: int, isr: tuple[int, ...] = (), adding: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(replicas, tuple(DIRECTORIES[each] for each in replicas), isr, adding_replicas=adding)


def test_a_replica_is_new_until_it_was_in_sync_and_online_from_then_on() -> None:
    brokers = {number: broker(number) for number in (1, 2, 3)}
    moving = partition(1, 2, 3, isr=(1, 2), adding=(3,))
    assert replica_states(moving, brokers) == {1: ONLINE, 2: ONLINE, 3: NEW}
    assert replica_states(replace(moving, isr=(1, 2, 3)), brokers)[3] is ONLINE
    behind = partition(1, 2, isr=(1,))
    assert replica_states(behind, brokers) == {1: ONLINE, 2: ONLINE}, "catching up is no state of its own"


def test_a_replica_is_offline_with_its_broker_or_its_directory_and_comes_back() -> None:
    brokers = {1: broker(1), 2: replace(broker(2), fenced=True), 3: replace(broker(3), log_directories=DIRECTORIES[:1])}
    found = partition(2, 1, 3, 0, isr=(1,), adding=(2,))
    assert replica_states(found, brokers) == {2: OFFLINE, 1: ONLINE, 3: OFFLINE, 0: OFFLINE}
    assert list(replica_states(found, brokers)) == [2, 1, 3, 0], "the order of the assignment"
    brokers[2] = broker(2)
    assert replica_states(found, brokers)[2] is NEW


def test_a_replica_that_left_the_assignment_has_no_state() -> None:
    assert replica_states(partition(1, isr=(1,)), {1: broker(1), 2: broker(2)}) == {1: ONLINE}
