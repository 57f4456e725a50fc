"""The rooms of a broker: each makes exactly the handlers that the table promises, and nothing loads one early."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from barnabas.broker.dispatch import ROOMS
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.runtime.late import Late
from tests.broker.apis.rig import Rig, on_cluster

DIRECTORY = Path(__file__).resolve().parents[2] / "broker" / "rooms"


@on_cluster()
async def test_each_room_makes_the_handlers_of_its_apis(rig: Rig) -> None:
    for maker, keys in ROOMS.items():
        assert Late(maker, rig.broker(1)).get().keys() == set(keys), maker


def test_no_api_is_in_two_rooms() -> None:
    keys = [key for keys in ROOMS.values() for key in keys]
    assert len(keys) == len(set(keys))
    assert all("broker" in API_SPECS[key].listeners for key in keys)


def test_nothing_imports_a_room() -> None:
    """It would be loaded at the start."""
    root = DIRECTORY.parents[1]
    for path in (*root.glob("broker/**/*.py"), *root.glob("kraft/**/*.py")):
        if path.parent != DIRECTORY:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and "broker.rooms" in (node.module or ""):
                    assert node.col_offset > 0, f"{path} imports {node.module} for more than types"


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.FIND_COORDINATOR])
def test_apis_of_every_client_are_in_no_room(key: ApiKey) -> None:
    assert all(key not in keys for keys in ROOMS.values())
