"""Reads the input and the outputs while the run goes on, and all of them at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from barnabas import Consumer, TopicPartition
from barnabas.check.errors import CannotRun
from barnabas.check.records import Input, NotReadable, Output, Transformation, read_value
from barnabas.check.sinks import Sink
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.protocol.errors import KafkaError

_POLL_MS = 300
_SINK_POLL_S = 0.2
MOST_UNREADABLE = 1000


class Reader:
    """All inputs and outputs that were seen."""

    def __init__(self, transformation: Transformation) -> None:
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.unreadable: list[str] = []
        self.last_output_s = 0.0
        """Time at which the last output was seen."""
        self.done: set[str] = set()
        """Ids of outputs that were seen."""
        self.wanted: set[str] = set()
        """Ids of outputs that the inputs ask for."""
        self._transformation = transformation
        self._places: dict[str, int] = {}
        self._positions: dict[TopicPartition, int] = {}

    @property
    def missing(self) -> int:
        """Number of outputs that the inputs ask for and that were not seen."""
        return len(self.wanted - self.done)

    # ---- topics

    async def read_topics(
        self, client: Mapping[str, Any], names: Sequence[str], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Reads committed records of the input topic, the first of `names`, and of the output topic, until it is
        cancelled."""
        async with Consumer(**client, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            partitions = [
                TopicPartition(name, it.partition) for name in names for it in await consumer.partitions_for(name)
            ]
            consumer.assign(partitions)
            task_status.started()
            while True:
                try:
                    records = await consumer.poll(timeout_ms=_POLL_MS)
                except KafkaError:
                    # The cluster is broken on purpose: the next poll asks again.
                    await trio.sleep(_POLL_MS / 1000)
                    continue
                for record in records:
                    self._take(record, is_input=record.topic == names[0])
                self._positions |= {at: place.offset for at, place in consumer.positions().items()}

    def has_read(self, ends: dict[TopicPartition, int]) -> bool:
        return all(self._positions.get(partition, 0) >= end for partition, end in ends.items())

    def _take(self, record: ConsumerRecord, *, is_input: bool) -> None:
        if is_input:
            self._take_input(record)
        else:
            place = f"{record.topic}-{record.partition}"
            self.take_output(place, record.offset, record.key, record.value or b"")

    def _take_input(self, record: ConsumerRecord) -> None:
        try:
            value = read_value(record.value)
            name, key = str(value["id"]), str(value["key"])
        except (ValueError, KeyError, TypeError):
            at = f"{record.topic}-{record.partition}@{record.offset}"
            raise CannotRun(f"{at} is no record of the check: does the application write to its input?") from None
        wanted = self._call(lambda: self._transformation.outputs_of(value), "outputs")
        at_s = record.timestamp_ms / 1000
        found = Input(name, key, record.partition, record.offset, at_s, wanted)
        self.inputs.append(found)
        self.wanted.update(wanted)

    # ---- other sinks

    async def read_sink(self, sink: Sink) -> None:
        """Reads until it is cancelled."""
        while True:
            await self.read_once(sink)
            await trio.sleep(_SINK_POLL_S)

    async def read_once(self, sink: Sink) -> None:
        """Raises `CannotRun` if the sink fails."""
        try:
            arrived = await trio.to_thread.run_sync(lambda: list(sink.read()))
        except Exception as error:
            raise CannotRun(f"the sink cannot be read: {type(error).__name__}: {error}") from error
        for each in arrived:
            position = self._places.get(each.place, 0)
            self._places[each.place] = position + 1
            self.take_output(each.place, position, each.key, each.value)

    def take_output(self, place: str, position: int, key: bytes | None, value: bytes) -> None:
        now = time.time()
        self.last_output_s = now
        try:
            name = self._call(lambda: self._transformation.identify(key, value), "identify")
        except NotReadable as error:
            if len(self.unreadable) < MOST_UNREADABLE:
                self.unreadable.append(f"{place}@{position} is {error}")
            return
        if name is not None:
            self.done.add(str(name))
            self.outputs.append(Output(str(name), place, position, now))

    @staticmethod
    def _call(work: Callable[[], Any], name: str) -> Any:
        """Calls a function of the user's."""
        try:
            return work()
        except NotReadable:
            raise
        except Exception as error:
            raise CannotRun(f"{name}() of the map failed: {type(error).__name__}: {error}") from error


def transformation_of(path: Path | None) -> Transformation:
    """The functions of `--map FILE.py`. Raises `CannotRun`."""
    if path is None:
        return Transformation()
    from barnabas.check.sinks import attribute_of

    plain = Transformation()
    outputs = attribute_of(path, "outputs", plain.outputs)
    identify = attribute_of(path, "identify", plain.identify)
    if outputs is plain.outputs and identify is plain.identify:
        raise CannotRun(f"--map {path} defines neither outputs(record) nor identify(key, value)")
    return Transformation(outputs, identify)
