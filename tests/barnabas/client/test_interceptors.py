"""Interceptors of producers and consumers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.errors import ConfigException
from barnabas.client.interceptors import (
    ConsumerInterceptor,
    ConsumerInterceptors,
    ProducerInterceptor,
    ProducerInterceptors,
    ProducerRecord,
)
from barnabas.client.metadata import TopicPartition


class Stamping(ProducerInterceptor, ConsumerInterceptor):
    """Writes its name on what passes, and remembers the rest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, value=record.value + self.name)

    def on_acknowledgement(self, metadata: Any, error: Exception | None) -> None:
        self.calls.append((metadata, error))

    def on_consume(self, records: list[Any]) -> list[Any]:
        return [record + self.name for record in records]

    def on_commit(self, offsets: Any) -> None:
        self.calls.append(offsets)

    def close(self) -> None:
        self.calls.append("closed")


class Broken(ProducerInterceptor, ConsumerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: Any, error: Exception | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def on_consume(self, records: list[Any]) -> list[Any]:
        return None  # type: ignore[return-value]

    def on_commit(self, offsets: Any) -> None:
        raise RuntimeError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


@pytest.mark.feature("CL-02")
def test_a_record_passes_one_after_the_other() -> None:
    first, second = Stamping("1"), Stamping("2")
    chain = ProducerInterceptors([first, second])
    assert chain.on_send(ProducerRecord("t", "value")).value == "value12"
    error = RuntimeError("lost")
    chain.on_acknowledgement("where", error)
    chain.close()
    assert first.calls == second.calls == [("where", error), "closed"]


@pytest.mark.feature("CL-02")
def test_records_pass_the_interceptors_in_order() -> None:
    first, second = Stamping("1"), Stamping("2")
    chain = ConsumerInterceptors([first, second])
    assert chain.on_consume(["a", "b"]) == ["a12", "b12"]
    offsets = {TopicPartition("t", 0): 5}
    chain.on_commit(offsets)
    chain.close()
    assert first.calls == second.calls == [offsets, "closed"]


def test_a_broken_interceptor_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    good = Stamping("!")
    producing, consuming = ProducerInterceptors([Broken(), good]), ConsumerInterceptors([Broken(), good])
    assert producing.on_send(ProducerRecord("t", "value")).value == "value!"
    producing.on_acknowledgement("where", None)
    assert consuming.on_consume(["a"]) == ["a!"]
    consuming.on_commit({})
    producing.close()
    consuming.close()
    assert good.calls == [("where", None), {}, "closed", "closed"]
    assert [message.split(":")[0] for message in caplog.messages] == [
        "interceptor Broken.on_send raised RuntimeError",
        "interceptor Broken.on_acknowledgement raised RuntimeError",
        "interceptor Broken.on_consume raised TypeError",
        "interceptor Broken.on_commit raised RuntimeError",
        "interceptor Broken.close raised RuntimeError",
        "interceptor Broken.close raised RuntimeError",
    ]


def test_one_that_overwrites_nothing_changes_nothing() -> None:
    record = ProducerRecord("t", b"x", headers=(("h", None),))
    assert ProducerInterceptors([ProducerInterceptor()]).on_send(record) is record
    records = [record]
    assert ConsumerInterceptors([ConsumerInterceptor()]).on_consume(records) is records


def test_no_interceptors_are_false() -> None:
    assert not ProducerInterceptors()
    assert not ConsumerInterceptors()
    assert ProducerInterceptors([ProducerInterceptor()])


def test_invalid_interceptors() -> None:
    with pytest.raises(ConfigException, match="interceptors must be ProducerInterceptor objects; got 'mine'"):
        ProducerInterceptors(["mine"])
    with pytest.raises(ConfigException, match="interceptors must be ConsumerInterceptor objects"):
        ConsumerInterceptors([ProducerInterceptor()])
