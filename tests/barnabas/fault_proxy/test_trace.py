"""Traces: what they show, what they hide, and that their requests can be sent again."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import trio

from barnabas import OffsetSpec, TopicPartition, sync
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.dev.embedded import EmbeddedServers
from barnabas.fault_proxy.dialogue import Seen
from barnabas.fault_proxy.fault_rule import parse_rule
from barnabas.fault_proxy.recorder import Recorder
from barnabas.fault_proxy.replay import read_trace, replay
from barnabas.fault_proxy.setup import ProxySetup, running_proxy
from barnabas.fault_proxy.trace import Entry
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.framing import request_prefix
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.schema import Message, encode
from tests.barnabas.fault_proxy.client_wire import ClientWire, filled


def entry(request: Message, version: int) -> Entry:
    key = type(request).API_KEY
    frame = request_prefix(key, version, 7, "app") + encode(request, version)  # type: ignore[arg-type]
    return Entry(Seen(1, "broker:9092", True, key, version, 7, "app", frame, None), 1_700_000_000_123)


def test_an_entry_has_the_request_in_words_and_in_bytes() -> None:
    written = entry(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9).as_json(1000)
    assert {name: written[name] for name in ("api", "version", "correlation_id", "client", "direction")} == {
        "api": "Metadata",
        "version": 9,
        "correlation_id": 7,
        "client": "app",
        "direction": "request",
    }
    assert written["body"]["topics"] == [{"name": "orders"}]
    assert "frame" in written and json.loads(json.dumps(written)) == written


@pytest.mark.parametrize("spec", API_SPECS.values(), ids=lambda spec: spec.name)
def test_every_request_can_be_shown(spec) -> None:  # type: ignore[no-untyped-def]
    first = 1 if spec.key is ApiKey.SASL_HANDSHAKE else spec.min_version  # its version 0 does not pass the proxy
    for version in (first, spec.max_version):
        json.dumps(entry(filled(spec.request_type(), version), version).as_json(1000))


def test_credentials_are_in_no_trace() -> None:
    login = entry(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    configs = [AlterableConfig(name="sasl.jaas.config", value="secret"), AlterableConfig(name="a", value="shown")]
    change = entry(IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(configs=configs)]), 1)
    for each in (login, change):
        text = json.dumps(each.as_json(1000))
        assert "secret" not in text and "[hidden]" in text and "frame" not in each.as_json(1000)
    assert "shown" in json.dumps(change.as_json(1000))


def test_a_body_of_many_values_is_cut() -> None:
    topics = [MetadataRequestTopic(name="x" * 1000) for _ in range(5000)]
    written = entry(MetadataRequest(topics=topics), 9).as_json(100)
    assert len(json.dumps(written)) < 200_000
    assert written["body"]["topics"][-1] == "4600 more"
    assert "frame" not in written


def test_a_line_names_topics_errors_and_rules() -> None:
    wire = ClientWire("Metadata error=LEADER_NOT_AVAILABLE")
    seen: list[Seen] = []
    wire.common.observers.append(seen.append)
    wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)
    [request] = [Entry(each, 1_700_000_000_123).line(wire.common.topics) for each in seen]
    assert request == "22:13:20.123 #1 app > Metadata v9 orders [rule 1]"


async def test_a_trace_is_sent_again(barnabas_broker: EmbeddedServers, barnabas_topic: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    async with running_proxy(ProxySetup(barnabas_broker)) as proxy:
        recorder = Recorder(proxy)
        recorder.record(path)
        proxy.common.rules.add(parse_rule("Produce error=NOT_LEADER_OR_FOLLOWER times=1"))

        def write() -> None:
            with sync.Producer(bootstrap_servers=proxy.bootstrap_servers, enable_idempotence=False) as producer:
                producer.send(barnabas_topic, b"order")

        await trio.to_thread.run_sync(write)
        recorder.close()
        with pytest.raises(WrongArgument, match="the file exists"):
            recorder.record(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    produced = [each for each in entries if each["api"] == "Produce"]
    assert [each.get("errors") for each in produced] == [None, ["NOT_LEADER_OR_FOLLOWER"], None, None]
    assert [each.get("rule") for each in produced] == [1, 1, None, None]
    trace = read_trace(path)
    done = await replay(trace, ProxySetup(barnabas_broker))
    assert done.sent == done.answered == len(trace.requests)
    assert not done.errors and not done.lost

    def count() -> int:
        with sync.Admin(bootstrap_servers=barnabas_broker) as admin:
            partition = TopicPartition(barnabas_topic, 0)
            return int(admin.list_offsets({partition: OffsetSpec.latest()})[partition].offset)

    # One by the producer, two by the replay, which sends the refused request as well.
    assert await trio.to_thread.run_sync(count) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no JSON\n", "line 1: no entry of a trace"),
        ('{"direction": "request", "connection": 1, "frame": "%"}\n', "line 1: "),
        ('{"direction": "request", "connection": 1, "frame": "AAAA"}\n', "line 1: a request of 3 bytes"),
        ('{"direction": "response"}\n{"direction": "request", "frame": "AAAA"}\n', "line 2"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(WrongArgument) as refused:
        read_trace(path)
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongArgument, match="No such file"):
        read_trace(tmp_path / "none")


async def test_a_trace_that_cannot_be_written_is_refused(barnabas_broker: EmbeddedServers, tmp_path: Path) -> None:
    async with running_proxy(ProxySetup(barnabas_broker)) as proxy:
        with pytest.raises(ClusterError, match="No such file or directory"):
            Recorder(proxy).record(tmp_path / "none" / "trace.jsonl")
