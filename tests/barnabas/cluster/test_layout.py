"""Ports, paths and rendered configurations of a local cluster."""

from pathlib import Path

import pytest

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Layout
from barnabas.settings.broker import load_broker_settings
from barnabas.settings.controller import load_controller_settings
from barnabas.settings.listeners import Voter


def test_ports_count_from_the_base(tmp_path: Path) -> None:
    layout = Layout.open(tmp_path, 20000)
    assert [(node.name, node.port) for node in layout.nodes] == [
        ("broker-1", 20000),
        ("broker-2", 20001),
        ("broker-3", 20002),
        ("controller-101", 20100),
        ("controller-102", 20101),
        ("controller-103", 20102),
    ]
    assert layout.bootstrap_servers == "127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"


def test_a_rendered_configuration_is_the_shapes_at_these_ports(tmp_path: Path) -> None:
    layout = Layout.open(tmp_path, 20000)
    broker, controller = layout.node("broker-2"), layout.node("controller-103")
    layout.render_config(broker, {"num.partitions": "7"})
    layout.render_config(controller, {})
    settings, warnings = load_broker_settings(layout.config_file(broker).read_text(), "b")
    assert warnings == []
    assert settings.listeners[0].port == 20001
    assert settings.controller_quorum_voters[0] == Voter(101, "127.0.0.1", 20100)
    assert settings.log_dirs == layout.log_directories(broker) == [str(tmp_path / "broker-2" / "data")]
    assert (settings.num_partitions, settings.min_insync_replicas) == (7, 2)
    seen, _ = load_controller_settings(layout.config_file(controller).read_text(), "c")
    assert seen.listeners[0].port == 20102


def test_a_cluster_keeps_its_id_and_its_ports(tmp_path: Path) -> None:
    first = Layout.open(tmp_path, 21000)
    first.save()
    again = Layout.open(tmp_path)
    assert (again.cluster_id, again.base_port) == (first.cluster_id, 21000)
    assert Layout.open(tmp_path / "other", 21000).cluster_id != first.cluster_id


@pytest.mark.parametrize("port", [-1, 65500])
def test_ports_must_leave_room_for_all_nodes(tmp_path: Path, port: int) -> None:
    with pytest.raises(ClusterError, match="--base-port"):
        Layout.open(tmp_path, port)


def test_an_unknown_node_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no node broker-9; there are broker-1, broker-2"):
        Layout.open(tmp_path).node("broker-9")


def test_a_folder_without_nodes_is_no_shape(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="holds no broker"):
        Layout.open(tmp_path, shape=tmp_path)
