"""The files that come with the project load without a warning and fit together."""

from pathlib import Path

import pytest

from barnabas.settings.broker import load_broker_settings
from barnabas.settings.controller import load_controller_settings
from barnabas.settings.node import NodeSettings

CONFIGS = Path(__file__).parents[2] / "cluster-configs"


def load(path: Path) -> NodeSettings:
    load_settings = load_broker_settings if path.name.startswith("broker") else load_controller_settings
    settings, warnings = load_settings(path.read_text(), path.name)
    assert warnings == []
    return settings


@pytest.mark.feature("OP-02")
@pytest.mark.parametrize("shape", ["local", "compose"])
def test_three_brokers_and_three_controllers_agree(shape: str) -> None:
    nodes = [load(path) for path in sorted((CONFIGS / shape).glob("*.properties"))]
    assert [node.node_id for node in nodes] == [1, 2, 3, 101, 102, 103]
    assert all(node.controller_quorum_voters == nodes[0].controller_quorum_voters for node in nodes)
    assert {(node.default_replication_factor, node.min_insync_replicas) for node in nodes} == {(3, 2)}
    for voter, node in zip(nodes[0].controller_quorum_voters, nodes[3:], strict=True):
        advertised = node.advertised_listeners[0]
        assert (voter.id, voter.host, voter.port) == (node.node_id, advertised.host, advertised.port)


def test_nodes_on_one_machine_share_no_port_and_no_directory() -> None:
    nodes = [load(path) for path in sorted((CONFIGS / "local").glob("*.properties"))]
    assert [node.listeners[0].port for node in nodes] == [9092, 9093, 9094, 9192, 9193, 9194]
    assert [node.http_listener and node.http_listener.port for node in nodes] == [9292, 9293, 9294, 9392, 9393, 9394]
    assert len({node.log_dirs[0] for node in nodes}) == 6
