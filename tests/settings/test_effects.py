"""The list of settings without effect is true: it is compared with the settings that the code reads."""

import re
from pathlib import Path

from barnabas.settings.broker import BrokerSettings
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.definitions import definitions
from barnabas.settings.effects import WITHOUT_EFFECT_YET
from barnabas.settings.group import GROUP_KEYS
from barnabas.settings.node import field_names
from barnabas.settings.topic import BROKER_SYNONYMS

ROOT = Path(__file__).parents[2]

READ_BY_THE_LOADER = {
    "process_roles",
    "metadata_log_dir",
    "listener_security_protocol_map",
    "node_id",
    "remote_log_storage_manager_class_name",
    "remote_log_storage_manager_impl_prefix",
}
"""Fields whose work is done once the settings stand."""

OF_GROUPS = {
    synonym.replace(".", "_")
    for fallback in GROUP_KEYS.values()
    for synonym in (fallback.synonym, fallback.least, fallback.most)
    if synonym is not None
}
"""`settings/group.py` asks for them by key."""

READ_AS = {"message.timestamp.type": {"log_append_time"}, "cleanup.policy": {"deletes", "compacts"}}
"""Topic keys that code reads through properties of `TopicConfig`."""


def code_of_nodes() -> str:
    rooms = ("broker", "kraft", "storage", "runtime")
    return "\n".join(path.read_text() for room in rooms for path in sorted((ROOT / room).rglob("*.py")))


def test_a_setting_is_listed_exactly_if_no_code_reads_it() -> None:
    words = set(re.findall(r"\w+", code_of_nodes()))
    fields = field_names(BrokerSettings) | field_names(ControllerSettings)
    keys = {definition.attribute: name for name, definition in definitions("broker").items()}
    unread = {
        keys[field] for field in fields if field in keys and field not in words | READ_BY_THE_LOADER | OF_GROUPS
    }
    for topic_key, synonyms in BROKER_SYNONYMS.items():
        if not words & READ_AS.get(topic_key, {topic_key.replace(".", "_")}):
            unread |= {name for name, _factor in synonyms}
        else:
            unread -= {name for name, _factor in synonyms}
    assert sorted(WITHOUT_EFFECT_YET - unread) == [], "these have an effect now: take them off settings/effects.py"
    assert sorted(unread - WITHOUT_EFFECT_YET) == [], "no code reads these: put them on settings/effects.py"


def test_every_listed_key_exists() -> None:
    assert definitions("broker").keys() >= WITHOUT_EFFECT_YET
