"""Outcomes of operations whose calls fail: `fail` only if certainly nothing happened."""

from __future__ import annotations

import random
from typing import Any

import pytest

from clients.client import ClientError, Read, Sent
from operations import Completion, Invocation, Place
from workloads.list_append import ListAppend
from workloads.queue import Queue
from workloads.workload import WorkloadOptions

pytestmark = pytest.mark.feature("FI-01")

OPTIONS = WorkloadOptions(processes=2, abort_probability=0.0)
READS = [Read(Place("t0", 0), offset, None, b"%d" % offset, 0) for offset in (7, 8)]


class ScriptedClient:
    """Does everything well but for the calls that are to fail; remembers what was asked of it."""

    def __init__(self, **failures: ClientError) -> None:
        self.failures = failures
        self.asked: list[str] = []
        self.sought: list[tuple[Place, int]] = []
        self.rebalances: list[list[dict[str, Any]]] = []
        """Answers to the next calls of `take_rebalances`."""

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if name in self.failures:
            raise self.failures[name]

    async def create_topic(self, name: str, partitions: int, replicas: int, configs: Any = None) -> None:
        self._ask("create_topic")

    async def send(self, place: Place, key: bytes | None, value: bytes) -> Sent:
        self._ask("send")
        return Sent(42)

    async def init_transactions(self) -> None:
        self._ask("init_transactions")

    async def begin(self) -> None:
        self._ask("begin")

    async def send_offsets(self, offsets: Any) -> None:
        self._ask("send_offsets")

    async def commit_transaction(self) -> None:
        self._ask("commit_transaction")

    async def abort_transaction(self) -> None:
        self._ask("abort_transaction")

    async def assign(self, places: Any, *, from_beginning: bool) -> None:
        self._ask("assign")

    async def subscribe(self, topics: Any) -> None:
        self._ask("subscribe")

    async def seek(self, place: Place, offset: int) -> None:
        self._ask("seek")
        self.sought.append((place, offset))

    async def poll(self, timeout_ms: int) -> list[Read]:
        self._ask("poll")
        return list(READS)

    async def commit_offsets(self) -> dict[Place, int]:
        self._ask("commit_offsets")
        return {Place("t0", 0): 9}

    async def end_offsets(self, places: Any) -> dict[Place, int]:
        self._ask("end_offsets")
        return dict.fromkeys(places, 9)

    async def position(self, place: Place) -> int:
        return 9

    def assignment(self) -> list[Place]:
        return [Place("t0", 0)]

    def take_rebalances(self) -> list[dict[str, Any]]:
        return self.rebalances.pop(0) if self.rebalances else []


def lost(name: str = "TimeoutException") -> ClientError:
    return ClientError(name, "nobody knows", definite=False)


def refused(name: str = "InvalidTopicException", *, fatal: bool = False) -> ClientError:
    return ClientError(name, "surely not", definite=True, fatal=fatal)


async def perform(client: ScriptedClient, f: str, value: Any, *, subscribed: bool = False) -> Completion:
    """By process 0, which has transactions, or process 1, which has none."""
    queue, process = Queue(OPTIONS), 0 if f == "txn" else 1
    chance = random.Random(1)
    queue.invoke(process, chance, 0)
    assigned = Invocation("subscribe" if subscribed else "assign", [0])
    await queue.perform(process, assigned, ScriptedClient(), chance)  # type: ignore[arg-type]
    return await queue.perform(process, Invocation(f, value), client, chance)  # type: ignore[arg-type]


TXN = [["send", 0, 1], ["poll"]]
SENT, POLLED = ["send", 0, [42, 1]], ["poll", {"0": [[7, 7], [8, 8]]}]
UNSENT = ["send", 0, [None, 1]]


async def test_success_is_ok() -> None:
    assert (await perform(ScriptedClient(), "send", [["send", 0, 1]])).value == [SENT]
    done = await perform(ScriptedClient(), "txn", TXN)
    assert (done.type, done.value) == ("ok", [SENT, POLLED])


@pytest.mark.parametrize("name", ["TimeoutException", "NotLeaderOrFollowerException", "UnknownServerException"])
async def test_a_send_with_an_unknown_outcome_is_info(name: str) -> None:
    done = await perform(ScriptedClient(send=lost(name)), "send", [["send", 0, 1]])

    assert (done.type, done.value, done.error) == ("info", [UNSENT], (name, "nobody knows"))


async def test_a_send_that_was_refused_fails_and_a_dead_producer_ends_its_process() -> None:
    done = await perform(ScriptedClient(send=refused()), "send", [["send", 0, 1]])
    assert (done.type, done.ends_process) == ("fail", False)

    done = await perform(ScriptedClient(send=refused("ProducerFencedException", fatal=True)), "send", [["send", 0, 1]])
    assert (done.type, done.ends_process) == ("fail", True)


async def test_a_send_whose_topic_could_not_be_made_was_never_sent() -> None:
    client = ScriptedClient(create_topic=lost())
    queue, chance = Queue(OPTIONS), random.Random(1)
    queue.invoke(1, chance, 0)
    done = await queue.perform(1, Invocation("send", [["send", 0, 1]]), client, chance)  # type: ignore[arg-type]

    assert done.type == "fail" and client.asked == ["create_topic"]


async def test_a_topic_that_another_process_made_is_there() -> None:
    client = ScriptedClient(create_topic=refused("TopicExistsException"))
    queue, chance = Queue(OPTIONS), random.Random(1)
    queue.invoke(1, chance, 0)
    done = await queue.perform(1, Invocation("send", [["send", 0, 1]]), client, chance)  # type: ignore[arg-type]

    assert done.type == "ok"


@pytest.mark.parametrize("step", ["init_transactions", "begin", "send", "poll"])
@pytest.mark.parametrize("error", [lost(), refused()])
async def test_a_transaction_that_failed_before_its_commit_fails(step: str, error: ClientError) -> None:
    client = ScriptedClient(**{step: error})
    done = await perform(client, "txn", TXN)

    assert done.type == "fail" and not done.ends_process
    assert ("abort_transaction" in client.asked) == (step in ("send", "poll"))


@pytest.mark.parametrize("kind", ["revoked", "lost"])
async def test_a_transaction_whose_partition_is_taken_away_commits_nothing_of_it(kind: str) -> None:
    """Found by a run of the suite: the next owner had begun at 0, committed, and stood below the transaction."""
    client = ScriptedClient()
    client.rebalances = [[], [{"kind": kind, "places": [["t0", 0]], "generation": 4}]]
    done = await perform(client, "txn", [["poll"], ["poll"]], subscribed=True)

    assert (done.type, done.value) == ("fail", [POLLED, POLLED]) and done.note["aborted"] == "PartitionsTakenAway"
    assert "send_offsets" not in client.asked and "abort_transaction" in client.asked
    assert [each["kind"] for each in done.note["rebalances"]] == [kind]


async def test_a_transaction_keeps_what_it_polled_first_of_a_partition_after_it_got_it() -> None:
    client = ScriptedClient()
    client.rebalances = [[{"kind": kind, "places": [["t0", 0]], "generation": 4} for kind in ("revoked", "assigned")]]
    done = await perform(client, "txn", [["poll"], ["poll"]], subscribed=True)

    assert done.type == "ok" and "send_offsets" in client.asked


async def test_a_transaction_that_cannot_be_aborted_ends_its_process_and_still_fails() -> None:
    done = await perform(ScriptedClient(send=lost(), abort_transaction=lost()), "txn", TXN)

    assert (done.type, done.ends_process) == ("fail", True)


async def test_records_polled_by_a_failed_transaction_are_recorded_and_polled_again() -> None:
    client = ScriptedClient(send_offsets=refused("IllegalGenerationException"))
    done = await perform(client, "txn", TXN, subscribed=True)

    assert (done.type, done.value) == ("fail", [SENT, POLLED])
    assert client.sought == [(Place("t0", 0), 7)]
    assert "committed" not in done.note


async def test_a_process_that_cannot_seek_back_ends() -> None:
    done = await perform(ScriptedClient(commit_transaction=refused(), seek=refused()), "txn", TXN)

    assert (done.type, done.ends_process) == ("fail", True)


async def test_a_commit_whose_abort_succeeds_fails() -> None:
    """After the abort the coordinator refuses a commit of this transaction."""
    client = ScriptedClient(commit_transaction=lost())
    done = await perform(client, "txn", TXN)

    assert (done.type, done.ends_process) == ("fail", False)


async def test_a_commit_of_which_nobody_knows_is_info() -> None:
    done = await perform(ScriptedClient(commit_transaction=lost(), abort_transaction=lost()), "txn", TXN)

    assert (done.type, done.value) == ("info", [SENT, POLLED])


async def test_a_producer_that_was_fenced_at_its_commit_leaves_it_open() -> None:
    fenced = ClientError("ProducerFencedException", "", definite=False, fatal=True)
    client = ScriptedClient(commit_transaction=fenced)
    done = await perform(client, "txn", TXN)

    assert (done.type, done.ends_process) == ("info", True)
    assert "abort_transaction" not in client.asked


async def test_a_poll_without_an_answer_has_done_nothing() -> None:
    done = await perform(ScriptedClient(poll=lost()), "poll", [["poll"]])

    assert (done.type, done.value) == ("fail", [["poll"]])


async def test_reads_are_real_though_their_commit_failed() -> None:
    done = await perform(ScriptedClient(commit_offsets=lost()), "poll", [["poll"]], subscribed=True)
    assert (done.type, done.value, done.note) == ("ok", [POLLED], {"commit": "TimeoutException"})

    done = await perform(ScriptedClient(), "poll", [["poll"]], subscribed=True)
    assert done.note == {"committed": {"0": 9}, "group": "queue", "generation": -1}


async def test_a_list_is_appended_to_and_read_by_the_same_rules() -> None:
    chance = random.Random(1)
    for failures, expected in (
        ({"commit_transaction": lost()}, "fail"),
        ({"commit_transaction": lost(), "abort_transaction": lost()}, "info"),
        ({"send": lost()}, "fail"),
        ({}, "ok"),
    ):
        lists, client = ListAppend(OPTIONS), ScriptedClient(**failures)
        lists.invoke(0, chance, 0)
        asked = Invocation("txn", [["send", 0, 1]])
        done = await lists.perform(0, asked, client, chance)  # type: ignore[arg-type]
        assert done.type == expected
