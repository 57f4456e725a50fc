"""One run: a cluster, the application, its input, the faults, the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from barnabas import Admin, Consumer, TopicPartition
from barnabas.check.conclusion import Seen, conclude
from barnabas.check.errors import CannotRun
from barnabas.check.feeding import Feeder
from barnabas.check.instance import Instance
from barnabas.check.journal import Event, Journal, What
from barnabas.check.nemesis import Nemesis, Stage
from barnabas.check.options import CheckOptions
from barnabas.check.placeholders import environment_of, filled
from barnabas.check.reading import Reader, transformation_of
from barnabas.check.records import Output
from barnabas.check.schedule import BROKERS, schedule
from barnabas.check.sinks import Sink, sink_of
from barnabas.check.target import Target, target_of, topics_of
from barnabas.check.verdict import Verdict
from barnabas.check.watching import GroupWatch
from barnabas.check.ways import Ways
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.probe import NoAnswer
from barnabas.protocol.errors import KafkaError

Say = Callable[[str], None]
_LOOK_S = 0.1
_QUIET_S = 3.0
"""Time for outputs that come too often, after all have come once."""
_GIVEN_UP_S = 8.0
"""Time without an output after which nothing more is expected from an application that has committed everything."""
_READ_S = 90.0
"""Time to read what is in the topics."""
_MOST_STANDSTILLS = 6
"""The end of a run is at most this many times `stuck_s` after the last fault."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that remains of a run."""

    verdict: Verdict
    journal: Journal
    outputs: Sequence[Output]


async def check(options: CheckOptions, say: Say) -> Outcome:
    """Run it. Raises `CannotRun` in one line."""
    out = Path(options.directory)
    sink = sink_of(options.sink)
    reader = Reader(transformation_of(None if options.map_file is None else Path(options.map_file)))
    for name in ("logs", "run"):
        (out / name).mkdir(parents=True, exist_ok=True)
    where = "starting three brokers and three controllers" if options.client is None else "through a proxy"
    say(f"seed {options.seed}, promise {options.promise}; {where}")
    try:
        async with (
            target_of(options, out) as target,
            _opened(sink, out) as more,
            trio.open_nursery() as proxies,
        ):
            ways = await Ways.open(proxies, target.servers, target.client, options.instances + 1, options.seed)
            run = _Run(options, target, ways, reader, say)
            run.make_instances(more, out)
            async with (
                Admin(**target.client) as admin,
                topics_of(admin, target, options, _topics(options)),
                trio.open_nursery() as nursery,
            ):
                outcome = await run.whole(nursery, admin, sink)
                nursery.cancel_scope.cancel()
            proxies.cancel_scope.cancel()
        return outcome
    except (ClusterError, NoAnswer, KafkaError) as error:
        raise CannotRun(f"{_CLUSTER_FAILS}: {error}") from error
    except BaseExceptionGroup as group:
        raise _reason(group) from None


def _topics(options: CheckOptions) -> list[str]:
    return [options.names.input, *([options.names.output] if options.sink == "topic" else [])]


@asynccontextmanager
async def _opened(sink: Sink | None, out: Path) -> AsyncIterator[Mapping[str, str]]:
    """The environment variables of a sink, which is open as long as the block. Raises `CannotRun`."""
    if sink is None:
        yield {}
        return
    try:
        more = dict(await trio.to_thread.run_sync(sink.open, out))
    except Exception as error:
        raise CannotRun(f"the sink cannot be opened: {type(error).__name__}: {error}") from error
    try:
        yield more
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(sink.close)


class _Run:
    def __init__(self, options: CheckOptions, target: Target, ways: Ways, reader: Reader, say: Say) -> None:
        self._options = options
        self._target = target
        self._ways = ways
        self._reader = reader
        self._say = say
        self._is_over = False
        self._topics = _topics(options)
        self._journal = Journal()
        names = options.names
        self._watch = GroupWatch(names.group, names.input, self._journal, ways.instance_of)
        self._feeder = Feeder(names.input, options.load, options.seed, with_aborted=options.promise.exactly_once)
        self._instances: list[Instance] = []
        """The last one is the spare."""

    def make_instances(self, more: Mapping[str, str], out: Path) -> None:
        for number in range(self._options.instances + 1):
            own = environment_of(self._options.names, self._ways.bootstrap_of(number), number)
            environment = {**own, **more}
            self._instances.append(Instance(number, filled(self._options.command, environment), environment, out))

    async def whole(self, nursery: trio.Nursery, admin: Admin, sink: Sink | None) -> Outcome:
        """From the first start to the verdict; what it starts in the nursery ends with that."""
        await nursery.start(self._reader.read_topics, self._target.client, self._topics)
        if sink is not None:
            nursery.start_soon(self._reader.read_sink, sink)
        nursery.start_soon(self._watch.run, admin)
        for instance in self._instances:
            nursery.start_soon(instance.run, self._tell)
        try:
            return await self._main(admin, sink)
        finally:
            for instance in self._instances:
                instance.close()

    async def _main(self, admin: Admin, sink: Sink | None) -> Outcome:
        options = self._options
        *regular, spare = self._instances
        for instance in regular:
            instance.want()
        stage = Stage(
            regular,
            spare,
            self._ways,
            self._target.cluster,
            admin,
            self._watch,
            self._topics,
            options.times.grace_s,
        )
        nemesis = Nemesis(stage, self._journal)
        possible = options.faults - (BROKERS if self._target.cluster is None else frozenset())
        async with trio.open_nursery() as feeding:
            feeding.start_soon(self._feeder.run, self._target.client, lambda: self._is_over)
            await self._until_it_consumes()
            began_s = time.time()
            self._say(f"the application consumes; faults for {options.times.run_s:.0f} s")
            with trio.move_on_after(options.times.run_s):
                await nemesis.run(schedule(random.Random(f"faults/{options.seed}"), possible))
                await trio.sleep_forever()
            await nemesis.repair()
            self._is_over = True
        faults = sum(nemesis.struck.values())
        self._say(f"{faults} faults; waiting for the rest of the outputs")
        await self._settle()
        for instance in self._instances:
            await instance.terminate(options.times.grace_s)
        await self._read_to_the_end(self._topics)
        if sink is not None:
            await self._reader.read_once(sink)
        await self._watch.look(admin)
        seen = Seen(
            self._reader,
            self._feeder,
            self._instances,
            self._watch.committed,
            self._ways.shared_ids(),
            self._journal,
            faults,
        )
        return Outcome(conclude(options, seen, began_s, time.time()), self._journal, self._reader.outputs)

    # ---- phases

    async def _until_it_consumes(self) -> None:
        """Raises `CannotRun` if it does not, or if an instance ends before."""
        times = self._options.times
        with trio.move_on_after(times.start_s):
            while not self._watch.was_joined and not self._reader.outputs:
                for instance in self._instances:
                    if instance.own_ends:
                        raise CannotRun(_died(instance))
                await trio.sleep(_LOOK_S)
            return
        words = [line for instance in self._instances for line in instance.last_lines()[-1:]]
        raise CannotRun(
            f"the application never began to consume: no member of group {self._options.names.group}, no committed "
            f"offset and no output within {times.start_s:.0f} s" + (f"; it wrote: {words[0]}" if words else "")
        )

    async def _settle(self) -> None:
        """Waits until every output is there, or until nothing has come for long enough."""
        stuck_s = self._options.times.stuck_s
        began = time.time()
        await self._read_to_the_end(self._topics[:1])
        while self._reader.missing:
            now = time.time()
            quiet_s = now - max(began, self._reader.last_output_s)
            if quiet_s > stuck_s + 1 or now > began + _MOST_STANDSTILLS * stuck_s:
                return
            if quiet_s > _GIVEN_UP_S and self._has_committed_all():
                return
            await trio.sleep(_LOOK_S)
        await trio.sleep(_QUIET_S)

    def _has_committed_all(self) -> bool:
        """True if the application has gone past all inputs: what is missing now will not come."""
        ends: dict[int, int] = {}
        for each in self._reader.inputs:
            ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
        return all(self._watch.committed.get(partition, 0) >= end for partition, end in ends.items())

    async def _read_to_the_end(self, topics: Sequence[str]) -> None:
        """Waits until the reader has all committed records. Raises `CannotRun` if it does not get them."""
        async with Consumer(**self._target.client, isolation_level="read_committed") as consumer:
            with trio.move_on_after(_READ_S):
                places = [
                    TopicPartition(name, it.partition) for name in topics for it in await consumer.partitions_for(name)
                ]
                ends = await consumer.end_offsets(places)
                while not self._reader.has_read(ends):
                    await trio.sleep(_LOOK_S)
                return
        raise CannotRun(f"{' and '.join(topics)} could not be read to the end within {_READ_S:.0f} s")

    def _tell(self, name: str, text: str) -> None:
        self._journal.add(Event(time.time(), What.INSTANCE, text, name))


def _died(instance: Instance) -> str:
    lines = "".join(f"\n  {line}" for line in instance.last_lines())
    return f"{instance.name} ended before it consumed anything, {instance.own_ends[0]}{lines}"


_CLUSTER_FAILS = "the cluster of the check fails"


def _reason(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that stands for all: Ctrl-C, or the one line that is expected, else the group itself."""
    if group.subgroup(KeyboardInterrupt) is not None:
        return KeyboardInterrupt()
    if (known := group.subgroup(CannotRun)) is not None:
        return _first(known)
    failed, rest = group.split((ClusterError, NoAnswer, KafkaError))
    return group if failed is None or rest is not None else CannotRun(f"{_CLUSTER_FAILS}: {_first(failed)}")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
