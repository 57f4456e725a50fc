"""Captures: what the proxy saw comes out of them as streams of TCP, and tshark dissects it, where there is one."""

from __future__ import annotations

import io
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas import sync
from barnabas.cluster.errors import WrongArgument
from barnabas.dev.embedded import EmbeddedServers
from barnabas.fault_proxy.dialogue import Seen
from barnabas.fault_proxy.fault_rule import parse_rule
from barnabas.fault_proxy.pcapng import SEGMENT_BYTES, CapturedConnection, beginning
from barnabas.fault_proxy.recorder import Recorder
from barnabas.fault_proxy.replay import read_trace
from barnabas.fault_proxy.setup import ProxySetup, running_proxy
from barnabas.fault_proxy.trace import Entry
from barnabas.fault_proxy.trace_file import CaptureTrace, open_trace
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import request_prefix
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.schema import encode
from tests.barnabas.fault_proxy.captures import frames_of, packets_of, streams_of

CLIENT, BROKER = ("127.0.0.1", 50123), ("10.0.0.7", 9092)
NOW = 1_700_000_000_123
ENDS = socket.inet_aton(CLIENT[0]), socket.inet_aton(BROKER[0])

sizes = st.integers(0, 200) | st.integers(SEGMENT_BYTES - 2, SEGMENT_BYTES + 2) | st.integers(0, 3 * SEGMENT_BYTES)


@given(st.lists(st.tuples(st.booleans(), sizes), max_size=8))
def test_the_bytes_of_both_directions_come_out_as_they_went_in(messages: list[tuple[bool, int]]) -> None:
    connection = CapturedConnection(CLIENT, BROKER)
    capture = bytearray(beginning() + connection.opened(NOW))
    sent: dict[bool, bytes] = {True: b"", False: b""}
    for number, (is_request, size) in enumerate(messages):
        data = bytes([number]) * size
        sent[is_request] += data
        capture += connection.message(NOW + number, data, "", is_request=is_request, most_bytes=1 << 20)
    packets = packets_of(bytes(capture))
    assert [each.flags for each in packets[:3]] == [2, 18, 16]
    client, broker = (ENDS[0], CLIENT[1]), (ENDS[1], BROKER[1])
    streams = streams_of(packets)
    assert (streams[client, broker], streams[broker, client]) == (sent[True], sent[False])
    assert all(len(each.data) <= SEGMENT_BYTES for each in packets)
    assert packets[-1].time_ms == NOW + max([number for number, (_, size) in enumerate(messages) if size], default=0)


def test_addresses_of_two_families_become_those_of_one() -> None:
    packets = packets_of(beginning() + CapturedConnection(CLIENT, ("::1", 9092)).opened(NOW))
    assert packets[0].source == (bytes(10) + b"\xff\xff" + ENDS[0], CLIENT[1])
    assert packets[0].target == (bytes(15) + b"\1", 9092)


def test_the_end_of_a_long_message_is_left_out_and_counted() -> None:
    connection = CapturedConnection(CLIENT, BROKER)
    for is_request in (True, False):
        connection.message(NOW, bytes(100), "", is_request=is_request, most_bytes=100)
    first = connection.message(NOW, bytes(100_000), "a rule", is_request=True, most_bytes=40_000)
    last = connection.message(NOW, b"end", "", is_request=True, most_bytes=40_000)
    packets = packets_of(beginning() + first + last)
    assert [len(each.data) for each in packets] == [SEGMENT_BYTES, 40_000 - SEGMENT_BYTES, 3]
    assert [each.comment for each in packets] == ["a rule", "", ""]
    assert packets[-1].seq == packets[0].seq + 100_000


def test_credentials_are_in_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "login.pcapng"
    trace = open_trace(path, 1 << 20, lambda number: (CLIENT, BROKER))
    assert isinstance(trace, CaptureTrace)
    request = encode(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    for version in (2, 99):
        frame = request_prefix(ApiKey.SASL_AUTHENTICATE, 2, 7, "app") + request
        for is_request in (True, False):
            trace.write(
                Entry(Seen(1, "b:9092", is_request, ApiKey.SASL_AUTHENTICATE, version, 7, "app", frame, None), NOW)
            )
    trace.close()
    assert b"secret" not in path.read_bytes()
    notes = [each.comment for each in packets_of(path.read_bytes())[3:]]
    assert notes[0] == "SaslAuthenticate v2 with credentials is left out" and len(notes) == 4


@pytest.mark.parametrize("name", ["trace.pcap", "trace.cap"])
def test_a_capture_by_another_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongArgument, match=r"a capture must be called NAME\.pcapng"):
        open_trace(tmp_path / name, 1, lambda number: (CLIENT, BROKER))
    assert not (tmp_path / name).exists()


def test_a_full_disk_ends_the_trace_and_nothing_else() -> None:
    full = io.FileIO("/dev/full", "w")
    with pytest.raises(OSError, match="No space left"):
        CaptureTrace(full, 1, lambda number: (CLIENT, BROKER))
    full.close()


async def capture_of_a_fault(broker: EmbeddedServers, topic: str, path: Path) -> int:
    """The port of the broker; its second Produce is answered by a rule."""
    async with running_proxy(ProxySetup(broker)) as proxy:
        recorder = Recorder(proxy)
        recorder.record(path)
        proxy.common.rules.add(parse_rule("Produce error=NOT_LEADER_OR_FOLLOWER times=1"))

        def write() -> None:
            with sync.Producer(bootstrap_servers=proxy.bootstrap_servers, enable_idempotence=False) as producer:
                producer.send(topic, b"order")

        await trio.to_thread.run_sync(write)
        recorder.close()
    return int(str(broker).rpartition(":")[2])


async def test_a_conversation_is_captured(
    barnabas_broker: EmbeddedServers, barnabas_topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.pcapng"
    port = await capture_of_a_fault(barnabas_broker, barnabas_topic, path)
    packets = packets_of(path.read_bytes())
    asked = [
        int.from_bytes(frame[:2], "big")
        for (_, target), stream in streams_of(packets).items()
        if target[1] == port
        for frame in frames_of(stream)
    ]
    assert asked.count(ApiKey.PRODUCE) == 2 and ApiKey.METADATA in asked
    rule = "rule 1: Produce error=NOT_LEADER_OR_FOLLOWER times=1"
    assert [each.comment for each in packets if each.comment] == [rule, rule], "the request and its answer"
    with pytest.raises(WrongArgument, match="line 1: no entry of a trace"):
        read_trace(path)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark on this machine")
async def test_tshark_dissects_it(barnabas_broker: EmbeddedServers, barnabas_topic: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.pcapng"
    port = await capture_of_a_fault(barnabas_broker, barnabas_topic, path)
    fields = ("-T", "fields", "-e", "_ws.col.Info", "-e", "frame.comment", "-Y", "kafka.api_key == 0")
    done = subprocess.run(
        ["tshark", "-r", str(path), "-d", f"tcp.port=={port},kafka", *fields],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len([line for line in lines if "Kafka Produce" in line and "Request" in line]) == 2, done.stdout
    assert "rule 1" in lines[0]
