"""The tracker over a cluster that loses brokers."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from protocol.position import Position
from storage.positions import Positions
from tracker import track

PLANES = ("UA1545", "LX8", "SR111")


def report(bootstrap_servers: str, topic: str, first: int, last: int) -> None:
    """Every plane reports that often, each time a little further east."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    refusals = []
    for number in range(first, last):
        for plane in PLANES:
            position = Position(47.0, number / 100, 10_000)
            producer.produce(topic, position.encode(), plane, on_delivery=lambda error, _: refusals.append(error))
    assert producer.flush(60) == 0
    assert refusals == [None] * len(refusals)


def test_a_position_is_what_it_was() -> None:
    position = Position(47.4502, 8.5618, 1250)
    assert Position.decode(position.encode()) == position


def test_no_report_is_lost_or_counted_twice_while_brokers_die(barnabas_cluster, tmp_path: Path) -> None:
    cluster, topic = barnabas_cluster, "positions"
    cluster.create_topic(topic, partitions=2)
    positions = Positions(tmp_path / "positions.sqlite")

    report(cluster.bootstrap_servers, topic, 0, 50)
    track(cluster.bootstrap_servers, topic, positions, lambda: sum(positions.reports().values()) >= 70)

    cluster.kill(cluster.leader_of(topic, 0))
    report(cluster.bootstrap_servers, topic, 50, 100)
    track(cluster.bootstrap_servers, topic, positions, lambda: sum(positions.reports().values()) >= 300)

    assert positions.reports() == {"LX8": 100, "SR111": 100, "UA1545": 100}
    assert positions.last("UA1545") == Position(47.0, 0.99, 10_000)
    positions.close()


def test_reports_go_on_while_the_controllers_are_split(barnabas_cluster) -> None:
    cluster, topic = barnabas_cluster, "split"
    cluster.create_topic(topic)
    active = cluster.active_controller()
    cluster.partition([active])
    report(cluster.bootstrap_servers, topic, 0, 10)
    assert cluster.active_controller(other_than=active) != active
