"""The command that becomes a node finds out from the file which one."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.main import NODES, module_for


@pytest.mark.parametrize(
    ("roles", "role"),
    [("broker", "broker"), ("controller", "controller"), ("broker,controller", "broker"), ("other", "broker")],
)
def test_the_roles_of_a_file_choose_the_module(roles: str, role: str, tmp_path: Path) -> None:
    config = tmp_path / "node.properties"
    config.write_text(f"process.roles={roles}\n")
    assert module_for([str(config)]) == NODES[role]
    assert module_for([str(config), "--set", "process.roles=controller"]) == NODES["controller"]


def test_a_missing_file_is_left_to_the_module_to_report(tmp_path: Path) -> None:
    assert module_for([str(tmp_path / "none")]) == NODES["broker"]
    assert module_for([]) == NODES["broker"]
