"""One run: a cluster, the application, its input, the faults, the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from barnabas import Admin, Consumer, NewTopic, TopicPartition
from barnabas.check.errors import CannotRun
from barnabas.check.feeding import Feeder
from barnabas.check.instance import Instance
from barnabas.check.journal import Event, Journal, What, calm_spans
from barnabas.check.judge import Finding, Observed, judge
from barnabas.check.nemesis import Nemesis, Stage
from barnabas.check.options import CheckOptions
from barnabas.check.own_cluster import OwnCluster
from barnabas.check.promises import Kind
from barnabas.check.reading import Reader, transformation_of
from barnabas.check.records import Output
from barnabas.check.schedule import schedule
from barnabas.check.sinks import Sink, sink_of
from barnabas.check.verdict import Verdict
from barnabas.check.watching import GroupWatch
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.probe import NoAnswer
from barnabas.protocol.errors import KafkaError

Say = Callable[[str], None]
_LOOK_S = 0.1
_QUIET_S = 3.0
"""Time for outputs that come too often, after all have come once."""
_GIVEN_UP_S = 8.0
"""Time without an output after which nothing more is expected from an application that has committed everything."""
_READ_S = 30.0
"""Time to read what is in the topics."""
_MOST_STANDSTILLS = 6
"""The end of a run is at most this many times `stuck_s` after the last fault."""
SESSION_TIMEOUT_MS = 6000
"""A session timeout that an application may use; the checker does not rely on it."""


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
    transformation = transformation_of(None if options.map_file is None else Path(options.map_file))
    for name in ("logs", "run"):
        (out / name).mkdir(parents=True, exist_ok=True)
    say(f"seed {options.seed}, promise {options.promise}; starting three brokers and three controllers")
    cluster = OwnCluster(out, options.instances + 1, options.seed)
    try:
        await trio.to_thread.run_sync(cluster.up)
        more = {} if sink is None else dict(await trio.to_thread.run_sync(sink.open, out))
        reader = Reader(transformation)
        run = _Run(options, out, cluster, reader, more, say)
        return Outcome(await run.whole(sink), run.journal, reader.outputs)
    except (ClusterError, NoAnswer, KafkaError) as error:
        raise CannotRun(f"the cluster of the check fails: {error}") from error
    finally:
        with trio.CancelScope(shield=True):
            if sink is not None:
                await trio.to_thread.run_sync(sink.close)
            await trio.to_thread.run_sync(cluster.close)


class _Run:
    def __init__(
        self,
        options: CheckOptions,
        out: Path,
        cluster: OwnCluster,
        reader: Reader,
        more: Mapping[str, str],
        say: Say,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._reader = reader
        self._say = say
        self._is_over = False
        self.journal = Journal()
        names = options.names
        self._watch = GroupWatch(names.group, names.input, self.journal, cluster.instance_at)
        self._feeder = Feeder(names.input, options.load, options.seed, with_aborted=options.promise.exactly_once)
        self._instances = [self._instance(number, more, out) for number in range(options.instances + 1)]

    def _instance(self, number: int, more: Mapping[str, str], out: Path) -> Instance:
        names = self._options.names
        environment = {
            "BOOTSTRAP_SERVERS": self._cluster.bootstrap_of(number),
            "INPUT_TOPIC": names.input,
            "OUTPUT_TOPIC": names.output,
            "GROUP_ID": names.group,
            "INSTANCE": str(number),
            "SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            **more,
        }
        command = filled(self._options.command, environment)
        return Instance(number, command, environment, out)

    async def whole(self, sink: Sink | None) -> Verdict:
        names, servers = self._options.names, self._cluster.bootstrap_servers
        topics = [names.input, names.output] if sink is None else [names.input]
        try:
            async with AsyncExitStack() as stack:
                admin = await stack.enter_async_context(Admin(bootstrap_servers=servers))
                await _create(admin, topics, self._options.load.partitions)
                nursery = await stack.enter_async_context(trio.open_nursery(strict_exception_groups=True))
                await nursery.start(_read_topics, self._reader, servers, topics)
                if sink is not None:
                    nursery.start_soon(self._reader.read_sink, sink)
                nursery.start_soon(self._watch.run, admin)
                for instance in self._instances:
                    nursery.start_soon(instance.run, self._tell)
                verdict = await self._main(admin, sink, topics)
                nursery.cancel_scope.cancel()
        except* (CannotRun, ClusterError, NoAnswer, KafkaError) as group:
            raise _first(group) from None
        finally:
            for instance in self._instances:
                instance.close()
        return verdict

    async def _main(self, admin: Admin, sink: Sink | None, topics: Sequence[str]) -> Verdict:
        options, servers = self._options, self._cluster.bootstrap_servers
        for instance in self._instances[:-1]:
            instance.want()
        stage = Stage(
            self._instances[:-1],
            self._instances[-1],
            self._cluster,
            admin,
            self._watch,
            topics,
            options.times.grace_s,
        )
        nemesis = Nemesis(stage, self.journal)
        async with trio.open_nursery() as feeding:
            feeding.start_soon(self._feeder.run, servers, lambda: self._is_over)
            await self._until_it_consumes()
            began = time.time()
            self._say(f"the application consumes; faults for {options.times.run_s:.0f} s")
            with trio.move_on_after(options.times.run_s):
                await nemesis.run(schedule(random.Random(f"faults/{options.seed}"), options.faults))
                await trio.sleep_forever()
            await nemesis.repair()
            self._is_over = True
        self._say(f"{sum(nemesis.struck.values())} faults; waiting for the rest of the outputs")
        await self._settle(topics)
        for instance in self._instances:
            await instance.terminate(options.times.grace_s)
        await self._read_to_the_end(topics)
        if sink is not None:
            await self._reader.read_once(sink)
        await self._watch.look(admin)
        return self._judged(began, nemesis)

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

    async def _settle(self, topics: Sequence[str]) -> None:
        """Waits until every output is there, or until nothing has come for long enough."""
        stuck_s = self._options.times.stuck_s
        began = time.time()
        await self._read_to_the_end(topics[:1])
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
        servers = self._cluster.bootstrap_servers
        async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            with trio.move_on_after(_READ_S):
                places = [
                    TopicPartition(name, it.partition) for name in topics for it in await consumer.partitions_for(name)
                ]
                ends = await consumer.end_offsets(places)
                while not self._reader.has_read(ends):
                    await trio.sleep(_LOOK_S)
                return
        raise CannotRun(f"{' and '.join(topics)} could not be read to the end within {_READ_S:.0f} s")

    # ---- the verdict

    def _judged(self, began: float, nemesis: Nemesis) -> Verdict:
        options, reader, feeder = self._options, self._reader, self._feeder
        read = {it.id for it in reader.inputs}
        gone = feeder.sent.keys() - read
        if gone:
            raise CannotRun(f"the cluster lost {len(gone)} acknowledged inputs, first {min(gone, key=int)}")
        end = time.time()
        seen = Observed(
            inputs=reader.inputs,
            outputs=reader.outputs,
            aborted=feeder.aborted,
            uncertain=feeder.uncertain - read,
            committed=self._watch.committed,
            unreadable=reader.unreadable,
            calm=calm_spans(self.journal.fault_spans(end), began, end),
            end_s=end,
            stuck_s=options.times.stuck_s,
        )
        faults = sum(nemesis.struck.values())
        own_ends = sum(len(it.own_ends) for it in self._instances)
        figures = {"inputs": len(reader.inputs), "outputs": len(reader.outputs), "faults": faults}
        findings = [*judge(seen), *self._restless(own_ends, faults)]
        return Verdict(options.promise, options.seed, findings, figures, self._notes(own_ends))

    def _restless(self, own_ends: int, faults: int) -> list[Finding]:
        """Instances that end without a fault. A fault may end each of them once."""
        if own_ends <= self._options.instances * faults + _ENDS_ALLOWED:
            return []
        last = [end for it in self._instances for end in it.own_ends][-1]
        text = f"instances ended by themselves {own_ends} times during {faults} faults, the last one {last}"
        return [Finding(Kind.ENDED, text)]

    def _notes(self, own_ends: int) -> list[str]:
        notes = []
        if not self._reader.outputs:
            names = self._options.names
            where = f"topic {names.output}" if self._options.sink == "topic" else f"sink {self._options.sink}"
            notes.append(f"there is no output at all in {where}: is that where the application writes?")
        if own_ends:
            instance = max(self._instances, key=lambda it: len(it.own_ends))
            notes.append(f"instances ended by themselves {own_ends} times; {instance.name} {instance.own_ends[-1]}")
        for it in self._instances:
            if it.ignored_sigterm:
                grace = self._options.times.grace_s
                notes.append(f"{it.name} ignored SIGTERM for {grace:.0f} s and was killed, {it.ignored_sigterm} times")
        return notes

    def _tell(self, name: str, text: str) -> None:
        self.journal.add(Event(time.time(), What.INSTANCE, text, name))


_ENDS_ALLOWED = 3


def filled(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command with its placeholders filled: `{bootstrap}`, `{input}`, `{output}`, `{group}`, and the lower-case
    name of each variable."""
    values = {name.lower(): value for name, value in environment.items()}
    values |= {
        "bootstrap": environment["BOOTSTRAP_SERVERS"],
        "input": environment["INPUT_TOPIC"],
        "output": environment["OUTPUT_TOPIC"],
        "group": environment["GROUP_ID"],
    }
    words = []
    for word in command:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        words.append(word)
    return words


async def _create(admin: Admin, topics: Sequence[str], partitions: int) -> None:
    await admin.create_topics([NewTopic(name, partitions) for name in topics])


async def _read_topics(
    reader: Reader, servers: str, topics: Sequence[str], *, task_status: trio.TaskStatus[None]
) -> None:
    await reader.read_topics(servers, topics, task_status)


def _died(instance: Instance) -> str:
    last = instance.last_lines()
    words = "\n".join(f"  {line}" for line in last)
    return f"{instance.name} ended before it consumed anything, {instance.own_ends[0]}" + (
        f"\n{words}" if words else ""
    )


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
