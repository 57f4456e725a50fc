"""The log dirs of a node at its start beside a list of what is in each: whose they are, whether the node may start."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_directory import LogDirectoryError, MetaProperties, format_directory, read_meta_properties
from tests.examples import examples
from tests.storage.rig import Rig

PATHS = ["/logs/a", "/logs/b", "/logs/deep/er/c"]
META = "/logs/meta"
NODE = 1
IDS = [bytes(15) + bytes([number]) for number in (1, 2, 3)]
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Plain:
    """A directory before the start."""

    path: str
    state: str
    """`new`, `owned`, `malformed`, `in use` or `failing`"""
    owner: MetaProperties | None = None
    replicas: int = 0


def a_directory(draw: Draw, rig: Rig, path: str) -> Plain:
    state = draw(st.sampled_from(["new", "owned", "owned", "owned", "owned", "malformed", "in use", "failing"]))
    plain = Plain(path, state)
    if state in ("owned", "in use", "failing"):
        cluster = draw(st.sampled_from(["mine"] * 8 + ["other"]))
        node, directory_id = draw(st.sampled_from([NODE] * 8 + [2])), draw(st.sampled_from([*IDS, *IDS, None]))
        plain.owner = MetaProperties(cluster, node, directory_id)
        format_directory(rig.disk, path, plain.owner)
        for index in range(draw(st.integers(0, 2))):
            rig.disk.make_directories(f"{path}/orders-{index}")
            plain.replicas += 1
        others = ["__cluster_metadata-0", "orders-9.x-delete", "notes"]
        for name in draw(st.lists(st.sampled_from(others), unique=True)):
            rig.disk.make_directories(f"{path}/{name}")
    elif state == "malformed":
        rig.disk.make_directories(path)
        rig.disk.open(f"{path}/meta.properties", create=True).pwrite(b"version=7\n", 0)
    return plain


def expected_error(plains: list[Plain], paths: list[str], cluster: str | None) -> str | None:
    for plain in plains:
        if plain.state == "in use":
            return f"{plain.path} is in use by another process"
        if plain.state == "malformed":
            return f"{plain.path}/meta.properties: version 7, expected 1"
    online = [plain for plain in plains if plain.state != "failing"]
    for plain in online:
        if plain.owner is not None:
            cluster = cluster or plain.owner.cluster_id
            if plain.owner.cluster_id != cluster:
                return f"{plain.path} belongs to cluster {plain.owner.cluster_id}, not {cluster}"
            if plain.owner.node_id != NODE:
                return f"{plain.path} belongs to node {plain.owner.node_id}, not {NODE}"
    if not any(plain.path in paths for plain in online):
        return "no log dir is usable"
    if cluster is None:
        return f"{plains[0].path} was never formatted"
    ids = [plain.owner.directory_id for plain in online if plain.owner is not None and plain.owner.directory_id]
    for plain in online:
        if plain.owner is not None and ids.count(plain.owner.directory_id or b"") > 1:
            return f"{plain.path} has the directory.id of another log dir"
    return None


@pytest.mark.feature("ST-17")
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_node_takes_the_directories_that_are_its_own(data: st.DataObject) -> None:
    draw = data.draw
    rig = Rig(seed=draw(st.integers(0, 9)))
    paths = draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True))
    metadata_path = draw(st.sampled_from([None, META, paths[0]]))
    all_paths = [*paths, *([META] if metadata_path == META else [])]
    plains = [a_directory(draw, rig, path) for path in all_paths]
    rig.store.sync_all()
    cluster = draw(st.sampled_from([None, "mine"]))
    other = rig.process
    rig.start()
    for plain in plains:
        if plain.state == "in use":
            rig.locks[f"{plain.path}/.lock"] = other
        elif plain.state == "failing":
            rig.store.fail("open", "read", prefix=f"{plain.path}/")

    def start() -> LogDirectories:
        chance = random.Random(draw(st.integers(0, 9)))
        return LogDirectories.open(rig.disk, paths, NODE, chance, cluster, metadata_path)

    error = expected_error(plains, paths, cluster)
    if error is not None:
        with pytest.raises(LogDirectoryError) as refused:
            start()
        assert str(refused.value).startswith(error) and "\n" not in str(refused.value)
        assert [path for path, holder in rig.locks.items() if holder is rig.process] == [], "nothing is locked"
        return
    found = start()
    owners = [each.owner.cluster_id for each in plains if each.owner is not None and each.state == "owned"]
    assert found.cluster_id == (cluster or owners[0])
    assert [each.path for each in found.directories] == all_paths
    assert [each.path for each in found.online] == [each.path for each in plains if each.state != "failing"]
    taken = [each.path for each in found.with_replicas]
    assert taken == [
        each.path for each in plains if each.path in paths or (each.replicas and each.state != "failing")
    ]
    ids = [each.directory_id for each in found.online]
    assert None not in ids and len({*ids}) == len(ids)
    rig.store.faults.clear()
    for directory, plain in zip(found.directories, plains, strict=True):
        assert directory.takes_replicas == (plain.path in paths)
        if plain.state == "failing":
            assert directory.directory_id is None or directory.failure is not None
            continue
        kept = plain.owner.directory_id if plain.owner is not None else None
        assert kept in (None, directory.directory_id)
        written = read_meta_properties(rig.disk, plain.path)
        assert written == MetaProperties(found.cluster_id, NODE, directory.directory_id)
        if draw(st.booleans()):
            # It is durable.
            rig.store.power_cut(())
            assert read_meta_properties(rig.disk, plain.path) == written
