"""Where the HTTP listener of a node may be, given the Kafka listeners of all nodes."""

from __future__ import annotations

import pytest

from barnabas.why.node_addresses import NodeAddress, NodeListener, candidates

pytestmark = pytest.mark.feature("OB-07")


def addresses(listener: NodeListener, *others: NodeListener) -> list[tuple[str, int]]:
    found = candidates(listener, [listener, *others])
    assert all(it == NodeAddress(listener.name, it.host, it.port) for it in found)
    return [(it.host, it.port) for it in found]


def test_a_broker_of_make_up_answers_200_above_its_listener() -> None:
    assert addresses(NodeListener("broker", 2, "127.0.0.1", 9093))[0] == ("127.0.0.1", 9293)


def test_a_controller_in_a_container_answers_on_9292() -> None:
    assert ("controller-101", 9292) in addresses(NodeListener("controller", 101, "controller-101", 9093))


def test_the_docker_host_reaches_controllers_beside_the_published_ports_of_brokers() -> None:
    brokers = [NodeListener("broker", index, "127.0.0.1", 19091 + index) for index in (1, 2, 3)]
    controllers = [NodeListener("controller", 100 + index, f"controller-{100 + index}", 9093) for index in (1, 2, 3)]
    assert addresses(controllers[2], *brokers, *controllers[:2])[-1] == ("127.0.0.1", 19394)


def test_a_controller_without_a_known_listener_still_has_a_candidate() -> None:
    broker = NodeListener("broker", 1, "127.0.0.1", 9092)
    assert addresses(NodeListener("controller", 101, "", 0), broker) == [("127.0.0.1", 9392)]


def test_ports_beyond_65535_are_no_candidates() -> None:
    assert addresses(NodeListener("broker", 1, "h", 65500)) == [("h", 9292)]
