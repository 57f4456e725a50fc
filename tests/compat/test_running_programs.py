"""A library that has locked itself up is found out from outside, and its client goes on in a new process."""

from __future__ import annotations

import os
import signal

import pytest

from tests.compat import running_programs
from tests.compat.foreign import KafkaPython, Sent
from tests.compat.librdkafka import ConfluentWriter, Follower
from tests.compat.running import RunningCluster

pytestmark = pytest.mark.compat

RECORDS = 100


@pytest.mark.client("confluent-kafka", "kafka-python")
def test_clients_go_on_where_locked_up_ones_stood(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_programs, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(running_programs, "STILL_LOOKS", 6)
    topic = cluster.create_topic("locked", 2)
    writer = ConfluentWriter(cluster.bootstrap_servers, topic, 1, 50)
    follower = Follower(cluster.bootstrap_servers, topic, 2)
    writer.start()
    follower.start()
    other = KafkaPython(cluster.bootstrap_servers)
    other.produce(topic, [Sent("", f"{number}") for number in range(RECORDS)])
    cluster.wait_for("all is read", lambda: len(values(follower, 0)) == RECORDS and len(values(follower, 1)) > 10)
    # No thread of theirs moves any more, which is all that can be seen of a lock that is never let go.
    for client in (writer, follower):
        pid = client.program.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    acked = len(writer.acks)
    other.produce(topic, [Sent("", f"{RECORDS + number}") for number in range(RECORDS)])
    cluster.wait_for("the reader goes on", lambda: len(values(follower, 0)) == 2 * RECORDS)
    cluster.wait_for("the writer goes on", lambda: len(writer.acks) > acked + 50)
    writer.stop()
    cluster.wait_for("the end", lambda: {ack.value for ack in writer.acks} <= {*values(follower, 1)})
    follower.stop()
    assert writer.failures == follower.failures == []
    assert writer.revivals == follower.revivals == [running_programs.LOCKED]
    assert values(follower, 0) == [f"{number}" for number in range(2 * RECORDS)], "each record once, in order"
    offsets = [record.offset for record in follower.seen if record.partition == 1]
    assert offsets == list(range(len(offsets)))


def values(follower: Follower, partition: int) -> list[str]:
    return [record.value for record in follower.seen if record.partition == partition]
