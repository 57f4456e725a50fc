"""The order of turns on the event loop."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from barnabas.runtime.turns import (
    LONG_ROUND_SECONDS,
    LONGEST_PENALTY_SECONDS,
    MOST_CLIENTS,
    REMEMBERED_SECONDS,
    ROUND_SECONDS,
    SHARED_SECONDS,
    Share,
    Turns,
    WorkPayer,
)


class Stopwatch:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Crowd:
    """Connections, each with a share, that note the order of their turns."""

    def __init__(self) -> None:
        self.stopwatch = Stopwatch()
        self.turns = Turns(self.stopwatch)
        self.order: list[str] = []

    def spend(self, share: Share, seconds: float) -> None:
        began = self.stopwatch.now
        self.stopwatch.now += seconds
        self.turns.charge(share, began, self.stopwatch.now)

    async def take_turn(self, name: str, share: Share, seconds: float) -> None:
        await self.turns.wait(share)
        self.order.append(name)
        self.spend(share, seconds)


async def test_turns_are_free_until_the_round_is_used_up() -> None:
    crowd = Crowd()
    share = Share()
    crowd.spend(share, LONG_ROUND_SECONDS / 2)
    assert not crowd.turns.is_over(share)
    crowd.spend(share, LONG_ROUND_SECONDS)
    assert crowd.turns.is_over(share)


async def test_rounds_are_short_while_there_is_another_client() -> None:
    crowd = Crowd()
    busy, quiet = Share(), Share()
    crowd.spend(busy, ROUND_SECONDS)
    assert not crowd.turns.is_over(busy), "it is alone"
    crowd.spend(quiet, 0.0)
    crowd.spend(busy, 0.0)
    assert crowd.turns.is_over(busy)
    crowd.stopwatch.now += 2 * SHARED_SECONDS
    crowd.spend(busy, 0.0)
    assert not crowd.turns.is_over(busy), "the other has gone"


async def test_nodes_need_not_wait_behind_the_turns_of_clients() -> None:
    """Clients that use up their round do not delay replication; turns of nodes are bounded all the same."""
    crowd = Crowd()
    client, other, node = Share(), Share(), Share()
    node.is_node = True
    crowd.spend(other, 0.0)
    crowd.spend(client, ROUND_SECONDS)
    assert crowd.turns.is_over(client)
    assert not crowd.turns.is_over(node)
    crowd.spend(node, LONG_ROUND_SECONDS)
    assert crowd.turns.is_over(node)


async def test_nodes_that_fill_every_round_leave_clients_their_part(autojump_clock: MockClock) -> None:
    crowd = Crowd()
    node, client = Share(), Share()
    node.is_node = True
    node.expected = LONG_ROUND_SECONDS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crowd.take_turn, "client", client, ROUND_SECONDS)
        for _ in range(3):
            nursery.start_soon(crowd.take_turn, "node", node, LONG_ROUND_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(crowd.turns.run)
        while crowd.turns.waiting:
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert "client" in crowd.order[:2]


async def test_the_connection_that_used_least_goes_first_and_nodes_before_all(autojump_clock: MockClock) -> None:
    crowd = Crowd()
    greedy, modest, fresh, node = Share(), Share(), Share(), Share()
    node.is_node = True
    for share, seconds in ((greedy, 0.009), (modest, 0.006), (fresh, 0.001), (node, 0.007)):
        crowd.spend(share, seconds)
        share.expected = ROUND_SECONDS  # one of them fills a round
    async with trio.open_nursery() as nursery:
        for name, share in (("greedy", greedy), ("modest", modest), ("fresh", fresh), ("node", node)):
            nursery.start_soon(crowd.take_turn, name, share, ROUND_SECONDS)
            await trio.testing.wait_all_tasks_blocked()
        assert crowd.turns.waiting == 4
        async with trio.open_nursery() as rounds:
            rounds.start_soon(crowd.turns.run)
            while crowd.turns.waiting:
                await trio.sleep(0.001)
            rounds.cancel_scope.cancel()
    assert set(crowd.order[:2]) == {"node", "fresh"}, "nodes leave clients a part of the first round"
    assert crowd.order[2:] == ["modest", "greedy"]


async def test_no_connection_waits_for_ever_behind_modest_ones() -> None:
    """The time that a connection used moves it back in the line, but never by more than the longest penalty."""
    crowd = Crowd()
    greedy = Share()
    crowd.spend(greedy, 60.0)
    place = greedy.place(crowd.stopwatch.now)
    assert place == crowd.stopwatch.now + LONGEST_PENALTY_SECONDS
    assert Share().place(crowd.stopwatch.now + 2 * LONGEST_PENALTY_SECONDS) > place


async def test_time_that_was_used_is_forgotten() -> None:
    crowd = Crowd()
    share = Share()
    crowd.spend(share, 0.3)
    crowd.stopwatch.now += 10.0
    crowd.spend(share, 0.001)
    assert share.used == pytest.approx(0.001)


async def test_a_round_lets_in_as_many_as_fit(autojump_clock: MockClock) -> None:
    """A thousand quick connections are not let in one by one."""
    crowd = Crowd()
    shares = [Share() for _ in range(100)]
    for share in shares:
        crowd.spend(share, ROUND_SECONDS / 50)
    passes = 0
    async with trio.open_nursery() as nursery:
        for number, share in enumerate(shares):
            nursery.start_soon(crowd.take_turn, str(number), share, ROUND_SECONDS / 50)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(crowd.turns.run)
        while crowd.turns.waiting:
            passes += 1
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(crowd.order) == 100
    assert passes < 10


async def hungry_turns(crowd: Crowd, hungry: dict[str, tuple[list[Share], float]], rounds: int) -> Counter[str]:
    """The turns of clients whose connections always want another one. `hungry`: connections and seconds of a turn."""
    turns: Counter[str] = Counter()

    async def want_more(name: str, share: Share, seconds: float) -> None:
        while True:
            await crowd.turns.wait(share)
            turns[name] += 1
            crowd.spend(share, seconds)

    async with trio.open_nursery() as nursery:
        for name, (shares, seconds) in hungry.items():
            for share in shares:
                share.expected = seconds
                nursery.start_soon(want_more, name, share, seconds)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(crowd.turns.run)
        while turns.total() < rounds:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return turns


def connections(crowd: Crowd, principal: str, host: str, number: int = 1) -> list[Share]:
    return [Share(crowd.turns.client(principal, host)) for _ in range(number)]


async def test_a_thousand_connections_of_one_client_get_no_more_turns_than_one_connection() -> None:
    crowd = Crowd()
    hungry = {
        "many": (connections(crowd, "User:ANONYMOUS", "10.0.0.1", 1_000), 0.004),
        "one": (connections(crowd, "User:ANONYMOUS", "10.0.0.2"), 0.004),
    }
    turns = await hungry_turns(crowd, hungry, 2_000)
    assert turns["one"] >= 0.45 * turns.total()


async def test_a_producer_of_small_requests_gets_its_turn_beside_clients_of_expensive_ones() -> None:
    """Its turns are short, so it has no more time, but more turns than each of the others."""
    crowd = Crowd()
    hungry = {f"expensive {n}": (connections(crowd, "User:x", f"10.0.0.{n}", 50), 0.004) for n in range(4)}
    hungry["producer"] = (connections(crowd, "User:p", "10.0.0.9"), 0.0001)
    turns = await hungry_turns(crowd, hungry, 1_000)
    assert turns["producer"] >= max(turns.values()) - 1


async def test_two_principals_at_one_address_are_two_clients() -> None:
    crowd = Crowd()
    hungry = {
        "alice": (connections(crowd, "User:alice", "10.0.0.1", 100), 0.004),
        "bob": (connections(crowd, "User:bob", "10.0.0.1"), 0.004),
    }
    turns = await hungry_turns(crowd, hungry, 400)
    assert turns["bob"] >= 0.45 * turns.total()


async def test_all_connections_of_a_client_get_turns() -> None:
    crowd = Crowd()
    many = {str(n): ([share], 0.004) for n, share in enumerate(connections(crowd, "User:x", "10.0.0.1", 20))}
    turns = await hungry_turns(crowd, many, 400)
    assert min(turns.values()) >= 15 and len(turns) == 20


async def test_nodes_go_before_clients_however_many_those_are() -> None:
    crowd = Crowd()
    (node,) = connections(crowd, "User:x", "10.0.0.1")
    node.is_node = True
    hungry = {
        "clients": (connections(crowd, "User:x", "10.0.0.1", 200), 0.004),
        "node": ([node], 0.004),
    }
    turns = await hungry_turns(crowd, hungry, 200)
    assert turns["node"] >= turns["clients"]


def test_clients_that_used_nothing_lately_are_forgotten() -> None:
    stopwatch = Stopwatch()
    turns = Turns(stopwatch)
    first = turns.client("User:x", "10.0.0.1")
    turns.charge(Share(first), stopwatch.now - 0.5, stopwatch.now)
    for n in range(MOST_CLIENTS - 1):
        turns.client("User:x", f"host-{n}")
    stopwatch.now += REMEMBERED_SECONDS / 2
    turns.client("User:x", "another")
    assert turns.client("User:x", "10.0.0.1") is first, "it used much a moment ago"
    stopwatch.now += REMEMBERED_SECONDS
    for n in range(2 * MOST_CLIENTS):
        turns.client("User:x", f"late-{n}")
    assert turns.client("User:x", "10.0.0.1") is not first


async def test_work_outside_requests_is_charged_and_waits_for_the_next_round() -> None:
    crowd = Crowd()
    share = Share(crowd.turns.client("mallory", "10.0.0.9"))
    payer = WorkPayer(crowd.turns, share)
    await payer.wait()
    assert not crowd.turns.waiting, "the round is not used up"
    began = payer.stopwatch()
    crowd.stopwatch.now += 2 * LONG_ROUND_SECONDS
    payer.pay(began, payer.stopwatch())
    assert share.used == share.client.used == crowd.turns.spent == pytest.approx(2 * LONG_ROUND_SECONDS)
    assert not share.expected, "its requests take no longer than before"
    other = Share()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(payer.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert crowd.turns.waiting == 1
        nursery.start_soon(crowd.take_turn, "other", other, 2 * LONG_ROUND_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(crowd.turns.run)
        await trio.testing.wait_all_tasks_blocked()
        assert crowd.order == ["other"]
        assert not crowd.turns.waiting
        nursery.cancel_scope.cancel()
