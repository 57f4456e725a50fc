"""Feature levels and min.insync.replicas change, and eligible leader replicas with them, beside plain rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.metadata.image import LEADER_RECOVERING, NO_LEADER, PartitionImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.examples import examples
from tests.kraft.controller.plain_cluster import Place, Scene

ELR = "eligible.leader.replicas.version"
HIGHEST = {ELR: 1, "transaction.version": 2, "group.version": 1, "share.version": 1, "streams.version": 1}
MOST_NOTED = 1

State = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int]


def state_of(it: PartitionImage) -> State:
    return it.isr, it.elr, it.last_known_elr, it.leader, it.leader_recovery_state


def states(scene: Scene) -> dict[Place, State]:
    return {place: state_of(scene.partition(place)) for place in scene.places()}


def waits(it: PartitionImage) -> bool:
    """True for a partition that nobody leads and nobody is in sync with."""
    return it.leader == NO_LEADER and not it.isr


def cleared(it: PartitionImage, *, keeps_waiting: bool) -> State:
    """The state without eligible leader replicas. One that waits for them goes on waiting, or for one in its ISR."""
    if not waits(it):
        return it.isr, (), (), it.leader, it.leader_recovery_state
    if keeps_waiting or not (it.elr or it.last_known_elr):
        return state_of(it)
    last = [each for each in it.last_known_elr if each in it.elr or not it.elr]
    recovery = it.leader_recovery_state if it.elr else LEADER_RECOVERING
    return ((last or it.elr)[0],), (), (), NO_LEADER, recovery


def check_notes(result: Any, names: list[str]) -> None:
    """A note of each partition up to a number, and one of how many more there are."""
    noted = [it for it in result.notes if it.subject[0] in "ab" and it.subject[1:2] == "-"]
    assert [it.subject for it in noted] == names[:MOST_NOTED]
    more = [it for it in result.notes if "more partitions no longer" in it.text]
    left = len(names) - MOST_NOTED
    assert [it.text.split()[0] for it in more] == ([str(left)] if left > 0 else [])
    assert all(it.facts["partitions"] == len(names) for it in more)


def change_features(scene: Scene) -> None:
    draw = scene.draw
    names = draw(st.lists(st.sampled_from(sorted(HIGHEST)), min_size=1, max_size=3, unique=True))
    before = scene.image
    levels = {name: before.features.level(name) for name in HIGHEST}
    wanted = {name: draw(st.integers(-1, HIGHEST[name] + 1)) for name in names}
    updates = []
    is_right = True
    for name, level in wanted.items():
        kind = draw(st.sampled_from([1, 1, 2, 3, 4]))
        updates.append(FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind))
        goes_down, goes_up = level < levels[name], level > levels[name]
        is_right &= kind != 4 and 0 <= level <= HIGHEST[name] and not (goes_down and kind == 1)
        is_right &= not (goes_up and kind != 1)
        is_right &= scene.level >= 23 or name != ELR or level == 0
    # Streams groups and share groups need no other feature here, and transactions of version 2 need a metadata.version.
    expected = states(scene)
    names_noted: list[str] = []
    if is_right and wanted.get(ELR) == 0:
        for place in scene.places():
            partition = scene.partition(place)
            if partition.elr or (waits(partition) and partition.last_known_elr):
                names_noted.append(f"{place[0]}-{place[1]}")
            expected[place] = cleared(partition, keeps_waiting=False)
    validate = draw(st.integers(0, 4)) == 0
    result = scene.decide(UpdateFeaturesRequest(feature_updates=updates, validate_only=validate))
    code = result.response.error_code  # type: ignore[attr-defined]
    assert code == (ErrorCode.NONE if is_right else ErrorCode.INVALID_UPDATE_VERSION)
    if code or validate:
        assert not result.records
        return
    check_notes(result, names_noted)
    scene.cluster.append(result)
    scene.has_elr = scene.image.features.elr_enabled
    assert {name: scene.image.features.level(name) for name in HIGHEST} == levels | wanted
    assert states(scene) == expected
    if wanted.get(ELR, 0) == 0:
        assert scene.image.configs == before.configs, "no other feature needs one min.insync.replicas for all"
    else:
        assert "min.insync.replicas" in scene.image.config(4, "")
    if len(updates) == 1:
        again = UpdateFeaturesRequest(feature_updates=[*updates, *updates])
        assert scene.decide(again).response.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


def change_min_insync(scene: Scene) -> None:
    draw = scene.draw
    resource = draw(st.sampled_from([(2, "a"), (2, "b"), (4, "")]))
    value = draw(st.sampled_from(["1", "2", "3"]))
    key = draw(st.sampled_from(["min.insync.replicas", "min.insync.replicas", "max.message.bytes"]))
    key = "message.max.bytes" if resource[0] == 4 and key == "max.message.bytes" else key
    changes = resource[0] == 4 or scene.image.config(*resource).get(key) != value
    expected = states(scene)
    names: list[str] = []
    if scene.has_elr and changes and key == "min.insync.replicas":
        for place in scene.places():
            partition = scene.partition(place)
            if resource[0] == 2 and place[0] != resource[1]:
                continue
            expected[place] = cleared(partition, keeps_waiting=True)
            if partition.elr and not waits(partition):
                names.append(f"{place[0]}-{place[1]}")
    asked = AlterConfigsResource(resource_type=resource[0], resource_name=resource[1])
    asked.configs.append(AlterableConfig(name=key, config_operation=0, value=value))
    result = scene.decide(IncrementalAlterConfigsRequest(resources=[asked]))
    assert result.response.responses[0].error_code == 0  # type: ignore[attr-defined]
    check_notes(result, names)
    scene.cluster.append(result)
    assert states(scene) == expected
    assert scene.image.config(*resource)[key] == value


@pytest.mark.feature("RE-18", "MB-15", "MB-21")
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_eligible_replicas_after_a_change_of_features_or_configs(data: st.DataObject) -> None:
    scene = Scene(data.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.kraft.controller.eligibility.MAX_CHANGES_NOTED", MOST_NOTED)
        for _ in range(data.draw(st.integers(1, 3))):
            data.draw(st.sampled_from([change_features, change_min_insync]))(scene)
