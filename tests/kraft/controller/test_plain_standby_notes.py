"""Notes of a controller that only reads decisions, beside a plain comparison of the images before and after them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller import standby_notes, state
from barnabas.kraft.controller.standby_notes import note_replayed
from barnabas.kraft.metadata.image import NO_LEADER, PartitionImage
from barnabas.kraft.metadata.replay import ImageReplay
from barnabas.kraft.metadata.snapshot import partition_record
from barnabas.protocol.messages.metadata_log import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Notes
from tests.examples import examples
from tests.kraft.controller.conftest import finish
from tests.kraft.controller.plain_cluster import TOPICS, Scene

READ = "controller 7 read it in the metadata log"
MAX_NOTES = 2
"""Elections that are noted one by one."""


def changes(scene: Scene) -> tuple[list[Message], dict[int, str]]:
    """Records of one step of the log; and what was done to each broker."""
    records: list[Message] = []
    done: dict[int, str] = {}
    for broker in scene.image.cluster.brokers.values():
        done[broker.id] = scene.draw(st.sampled_from(["nothing", "fence", "evidence", "unfence", "stop", "remove"]))
        change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        if done[broker.id] == "evidence":
            records.append(FenceBrokerRecord(id=broker.id, epoch=broker.epoch))
        elif done[broker.id] == "remove":
            records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
        elif done[broker.id] != "nothing":
            change.fenced = {"fence": 1, "unfence": -1}.get(done[broker.id], 0)
            change.in_controlled_shutdown = int(done[broker.id] == "stop")
            records.append(change)
    for name, index in scene.places():
        if scene.draw(st.booleans()):
            partition = scene.partition((name, index))
            leader = scene.draw(st.sampled_from([partition.leader, NO_LEADER, *partition.isr]))
            new = replace(partition, leader=leader, leader_epoch=6, partition_epoch=8)
            records.append(partition_record(TOPICS[name], index, new, scene.level))
    return records, done


def sentence(name: str, before: PartitionImage, after: PartitionImage) -> str:
    if after.leader == NO_LEADER:
        return f"{name} has no leader since epoch 6"
    if before.leader == NO_LEADER:
        return f"leader of {name} is {after.leader} in epoch 6, after there was none"
    return f"leader of {name} moved {before.leader} -> {after.leader} in epoch 6"


@pytest.mark.feature("MB-21")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_standby_notes_what_it_reads(data: st.DataObject) -> None:
    scene = Scene(data.draw)
    before = scene.image
    replay = ImageReplay(before)
    records, done = changes(scene)
    for record in records:
        replay.replay(record)
    delta = replay.finish(before.offset + 1, 1, 0)
    notes = Notes()
    took: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standby_notes, "MAX_NOTES", MAX_NOTES)
        patch.setattr(state, "STEP_ITEMS", 1)
        finish(note_replayed(notes, 7, delta), lambda: took.append(1))
    assert len(took) == 1 + sum(len(topic.changed_partitions) for topic in delta.changed_topics.values())

    expected: dict[str, str] = {}
    elected: dict[str, str] = {}
    causes: list[str] = []
    concerned: list[str] = []
    for broker_id, broker in delta.after.cluster.brokers.items():
        old, name = before.cluster.brokers[broker_id], f"broker {broker_id}"
        seen = "its process was seen to be gone" if done[broker_id] == "evidence" else ""
        if broker.fenced and not old.fenced:
            expected[f"{name} is fenced"] = "; ".join(filter(None, [seen, READ]))
            causes.append(", ".join(filter(None, [f"{name} is fenced", seen])))
        if old.fenced and not broker.fenced:
            expected[f"{name} is unfenced"] = READ
        if broker.in_controlled_shutdown and not old.in_controlled_shutdown:
            causes.append(f"controlled shutdown of {name}")
        if broker.fenced != old.fenced or broker.in_controlled_shutdown > old.in_controlled_shutdown:
            concerned.append(name)
    for topic in delta.after.topics.by_name.values():
        for index, after in topic.partitions.items():
            known = before.topics.by_name[topic.name].partitions[index]
            if known.leader != after.leader:
                elected[sentence(f"{topic.name}-{index}", known, after)] = "; ".join([*sorted(causes), READ])
    found = {note.text: note.cause for note in notes}
    assert len(elected.keys() & found.keys()) == min(MAX_NOTES, len(elected))
    expected |= {text: cause for text, cause in elected.items() if text in found}
    assert {text: cause.split("; ") for text, cause in found.items()}.keys() == expected.keys()
    assert {text: sorted(cause.split("; ")) for text, cause in found.items()} == {
        text: sorted(cause.split("; ")) for text, cause in expected.items()
    }
    assert len(notes) == len(expected) and all(note.facts["hearsay"] == 1 for note in notes)
    for note in notes:
        if "leader_before" in note.facts:
            assert sorted(note.also) == sorted(concerned)
            partition = delta.after.topics.partition(*note.subject.split("-")[:1], int(note.subject.split("-")[1]))
            assert partition is not None and note.facts["leader"] == partition.leader
        else:
            assert note.facts["fenced"] == int("unfenced" not in note.text)
