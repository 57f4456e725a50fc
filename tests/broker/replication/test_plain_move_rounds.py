"""The moves between directories of a broker beside plain lists: which are under way, and when each is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication.log_dir_move import Phase
from barnabas.broker.replication.log_dir_moves import BACKOFF_MS, THROTTLED_WAIT_MS, LogDirMoves, MovePorts
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.decisions import Notes
from tests.broker.replication.shells import TrioClock
from tests.examples import examples

Key = tuple[str, int]
KEYS: list[Key] = [("orders", 0), ("orders", 1), ("stock", 0)]
PATHS = ["/logs/a", "/logs/b"]
ERRORS: list[Exception] = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), OSError(5, "no"), ZeroDivisionError("a mistake")]


@dataclass
class Round:
    """One look at all moves into a directory."""

    at: float
    moves: list[Key]
    """Those that are under way when it begins."""
    rung: int
    """How often the bell has rung by then."""
    stepped: list[Key] = field(default_factory=list)
    waits_ms: list[int] = field(default_factory=list)
    is_throttled: bool = False
    is_closing: bool = False


class Moves(LogDirMoves):
    """Their steps are those of the test."""

    node: Node

    async def _go_round(self, path: str) -> int | None:
        return await self.node.goes_round(path, super()._go_round)

    async def _step(self, move: Any) -> int | None:
        return await self.node.steps(move)

    def _ring(self, target: Any) -> None:
        self.node.rings[target.path].append(trio.current_time())
        super()._ring(target)


class Node:
    """A broker with two directories."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], nursery: trio.Nursery) -> None:
        self.draw = draw
        self.places = {path: SimpleNamespace(path=path, directory_id=path.encode()) for path in PATHS}
        self.homes: dict[Key, Any] = dict.fromkeys(KEYS, self.places[PATHS[0]])
        self.partitions: dict[Key, Any] = {key: self.a_partition(key) for key in KEYS}
        self.futures: Any = SimpleNamespace(logs={}, places={})
        self.dropped: list[Key] = []
        self.assigned: list[tuple[Any, bytes]] = []
        self.notes = Notes()
        self.rounds: dict[str, list[Round]] = {path: [] for path in PATHS}
        self.rings: dict[str, list[float]] = {path: [] for path in PATHS}
        self.mistakes: list[AssertionError] = []
        self.expected: dict[Key, tuple[Any, Any]] = {}
        """(partition, future log) of the moves under way."""
        self.taken_back: list[tuple[Any, bytes]] = []
        directories: Any = SimpleNamespace(
            futures=self.futures,
            directory_of=lambda topic, partition: self.homes.get((topic, partition)),
            drop_future=self.drops,
        )
        self.store: Any = SimpleNamespace(directories=directories, is_closing=False)
        clock = TrioClock()
        world: Any = SimpleNamespace(monotonic=clock, wall_clock=clock)
        partitions: Any = SimpleNamespace(find=lambda topic, index: self.partitions.get((topic, index)))
        assign: Any = lambda key, directory, answered: self.assigned.append((key, directory))  # noqa: E731
        quota: Any = SimpleNamespace(is_exceeded=lambda now_ms: self.is_throttled())
        self.real = Moves(MovePorts(world, nursery, self.store, partitions, assign, quota, self.notes, 4))
        self.real.node = self

    @staticmethod
    def a_partition(key: Key) -> Any:
        cleaning = SimpleNamespace(interrupted=0)
        cleaning.interrupt = lambda: setattr(cleaning, "interrupted", cleaning.interrupted + 1)
        topic, index = key
        log = SimpleNamespace(cleaning=cleaning)
        name = f"{topic}-{index}"
        return SimpleNamespace(topic=topic, index=index, key=(topic, index), name=name, log=log, is_offline=False)

    # -- rounds

    async def goes_round(self, path: str, real: Callable[[str], Any]) -> int | None:
        known = self.rounds[path]
        moves = [key for key, (_, future) in self.expected.items() if future.path == path]
        now = Round(trio.current_time(), moves, len(self.rings[path]))
        try:
            self.is_due(now, known[-1] if known else None, self.rings[path])
        except AssertionError as error:
            self.mistakes.append(error)
        known.append(now)
        self.current = now
        wait_ms: int | None = await real(path)
        expected = None if now.is_closing else min(now.waits_ms, default=None)
        if wait_ms != expected:
            self.mistakes.append(AssertionError(f"{wait_ms} ms instead of {expected}"))
        now.waits_ms = [] if expected is None else [expected]
        return wait_ms

    @staticmethod
    def is_due(now: Round, before: Round | None, rings: list[float]) -> None:
        """The bell has rung, or the time is over."""
        if before is not None:
            dues = [before.at + wait_ms / 1000 for wait_ms in before.waits_ms]
            dues += rings[before.rung :]
            assert dues and now.at == pytest.approx(min(dues), abs=1e-6)

    def is_throttled(self) -> bool:
        throttled = self.draw(st.integers(0, 5)) == 0
        if throttled:
            self.current.waits_ms.append(THROTTLED_WAIT_MS)
            self.current.is_throttled = True
        self.current.is_closing = self.store.is_closing and not throttled
        return throttled

    async def steps(self, move: Any) -> int | None:
        now = self.current
        now.stepped.append(move.key)
        if self.store.is_closing or now.is_throttled:
            self.mistakes.append(AssertionError("it must not go on"))
        wait_ms = self.draw(st.sampled_from([None, 0, 170, 400, *ERRORS]))
        if isinstance(wait_ms, Exception):
            now.waits_ms.append(BACKOFF_MS)
            raise wait_ms
        if wait_ms is not None:
            now.waits_ms.append(wait_ms)
        return cast("int | None", wait_ms)

    # -- what happens

    def begin(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        target = self.places[self.draw(st.sampled_from(PATHS))]
        topic, partition = key
        end = self.draw(st.integers(0, 9))
        future = SimpleNamespace(topic=topic, partition=partition, log_end_offset=end, path=target.path)
        self.futures.logs[key], self.futures.places[key] = future, target

    def lose_future(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        self.futures.logs.pop(key, None)
        self.futures.places.pop(key, None)

    def change_partition(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        how = self.draw(st.sampled_from(["gone", "new", "offline", "no home", "home"]))
        if how == "gone":
            self.partitions.pop(key, None)
        elif how == "new":
            self.partitions[key] = self.a_partition(key)
        elif how == "offline" and key in self.partitions:
            self.partitions[key].is_offline = True
        elif how == "no home":
            self.homes.pop(key, None)
        else:
            self.homes[key] = self.places[PATHS[0]]

    def ask_controller(self) -> None:
        """It may know the new directory by now."""
        for move in self.real._moves.values():
            move.core.phase = self.draw(st.sampled_from(Phase))

    def look(self) -> None:
        began = dict.fromkeys(PATHS, 0)
        for key, (partition, future) in list(self.expected.items()):
            is_here = self.partitions.get(key) is partition and not partition.is_offline
            if not is_here or self.futures.logs.get(key) is not future:
                self.ends(key)
        for key, future in self.futures.logs.items():
            partition = self.partitions.get(key)
            if key in self.expected or partition is None or partition.is_offline or key not in self.homes:
                continue
            self.expected[key] = (partition, future)
            began[future.path] += 1
        rung = {path: len(rings) for path, rings in self.rings.items()}
        before = {key: each.log.cleaning.interrupted for key, each in self.partitions.items()}
        known = {key for key, move in self.real._moves.items() if self.is_same(move, self.expected.get(key))}
        self.real.look()
        assert {path: len(rings) - rung[path] for path, rings in self.rings.items()} == began
        for key, partition in self.partitions.items():
            is_new = key in self.expected and key not in known
            assert partition.log.cleaning.interrupted == before[key] + is_new
        texts = [it.text for it in self.notes]
        for key in self.expected.keys() - known:
            text = f"the replica of {key[0]}-{key[1]} on broker 4 moves from /logs/a to {self.expected[key][1].path}"
            assert text in texts

    @staticmethod
    def is_same(move: Any, expected: tuple[Any, Any] | None) -> bool:
        return expected is not None and expected[0] is move.partition and expected[1] is move.future

    def ends(self, key: Key) -> None:
        partition, _ = self.expected.pop(key)
        move = self.real._moves[key]
        if move.core.phase is not Phase.COPYING:
            self.taken_back.append((partition.key, move.home.directory_id))

    def drops(self, key: Key, now_ms: int) -> None:
        assert now_ms == int(trio.current_time() * 1000)
        self.dropped.append(key)
        self.futures.logs.pop(key, None)
        self.futures.places.pop(key, None)

    def cancel(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        self.dropped, before = [], len(self.notes)
        is_moving = key in self.expected
        if is_moving:
            self.ends(key)
        self.real.cancel(key)
        assert self.dropped == [key]
        new = [(it.text, it.cause) for it in self.notes][before:]
        name = f"the replica of {key[0]}-{key[1]} on broker 4"
        assert new == ([(f"{name} stays in /logs/a", "the move was cancelled")] if is_moving else [])

    def close(self) -> None:
        self.store.is_closing = self.draw(st.integers(0, 3)) == 0

    def check(self) -> None:
        assert not self.mistakes, self.mistakes[0]
        found = {key: (move.partition, move.future) for key, move in self.real._moves.items()}
        assert found == self.expected and len(self.real) == len(found)
        assert self.assigned == self.taken_back
        for key in KEYS:
            assert self.real.target_of(key) is self.futures.places.get(key)
        for known in self.rounds.values():
            for each in known[:-1]:
                whole = not each.is_throttled and not each.is_closing
                assert each.stepped == each.moves[: None if whole else len(each.stepped)], "each once, in order"


STEPS = ["begin", "begin", "look", "look", "look", "lose_future", "change_partition", "ask_controller"]
STEPS += ["cancel", "close"]


@pytest.mark.feature("RE-19")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_move_is_looked_at_as_long_as_it_is_under_way(data: st.DataObject) -> None:
    async def life() -> None:
        async with trio.open_nursery() as nursery:
            node = Node(data.draw, nursery)
            for _ in range(data.draw(st.integers(2, 20))):
                getattr(node, data.draw(st.sampled_from(STEPS)))()
                await trio.sleep(data.draw(st.sampled_from([0.00037, 0.0513, 1.0071])))
                node.look()
                node.check()
                await trio.sleep(0.00011)
            nursery.cancel_scope.cancel()

    trio.run(life, clock=trio.testing.MockClock(autojump_threshold=0))
