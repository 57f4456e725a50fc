"""Configs that are set, removed, extended and replaced by requests of every kind, beside plain dictionaries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.runtime.decisions import Note
from tests.examples import examples
from tests.kraft.controller.conftest import Cluster, finish
from tests.kraft.controller.test_plain_changes import Draw

Resource = tuple[int, str]
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE = ErrorCode.NONE

VALUES: dict[int, dict[str, dict[str, ErrorCode]]] = {
    TOPIC: {
        "retention.ms": {"5": NONE, "7": NONE, "soon": ErrorCode.INVALID_CONFIG},
        "cleanup.policy": {"delete": NONE, "compact,delete": NONE, "never": ErrorCode.INVALID_CONFIG},
        "min.insync.replicas": {"1": NONE, "2": NONE, "0": ErrorCode.INVALID_CONFIG},
        "no.such": {"1": ErrorCode.INVALID_CONFIG},
    },
    BROKER: {
        "log.retention.ms": {"5": NONE, "7": NONE, "soon": ErrorCode.INVALID_REQUEST},
        "log.cleanup.policy": {"delete": NONE, "compact,delete": NONE},
        "min.insync.replicas": {"1": NONE, "2": NONE},
        "node.id": {"9": ErrorCode.INVALID_REQUEST},
        "my.own.key": {"secret": NONE, "s" * 40: NONE, "s" * 41: ErrorCode.INVALID_CONFIG},
    },
    GROUP: {
        "consumer.session.timeout.ms": {"45000": NONE, "50000": NONE, "soon": ErrorCode.INVALID_CONFIG},
        "no.such": {"1": ErrorCode.INVALID_CONFIG},
    },
    METRICS: {
        "interval.ms": {
            "100": NONE,
            "3600000": NONE,
            "99": ErrorCode.INVALID_REQUEST,
            "3600001": ErrorCode.INVALID_REQUEST,
            "soon": ErrorCode.INVALID_CONFIG,
        },
        "metrics": {"a": NONE, "a,b": NONE, "a,b,a": ErrorCode.INVALID_CONFIG},
        "match": {
            "client_id=x": NONE,
            "client_id=x, client_source_port=1": NONE,
            "client_id": ErrorCode.INVALID_CONFIG,
            "client_id=": ErrorCode.INVALID_CONFIG,
            "client_id=a=b": ErrorCode.INVALID_CONFIG,
            "color=x": ErrorCode.INVALID_CONFIG,
        },
        "no.such": {"1": ErrorCode.INVALID_REQUEST},
    },
}
"""Values of the keys of each type, and what setting them is answered."""

LIMITS = {"LONGEST_VALUE": 40, "MOST_OVERRIDES": 3, "SHOWN_CHANGES": 2, "WARNED_KEYS": 2}
"""They are small here."""

LISTS = ("cleanup.policy", "log.cleanup.policy", "metrics", "match")
DEFAULTS = {"cleanup.policy": "delete", "log.cleanup.policy": "delete", "metrics": "", "match": ""}
NAMES = {TOPIC: "topic", BROKER: "broker", GROUP: "group", METRICS: "client metrics"}

RESOURCES: dict[Resource, ErrorCode] = {
    (TOPIC, "t"): NONE,
    (TOPIC, "u"): NONE,
    (TOPIC, "missing"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    (TOPIC, ""): ErrorCode.INVALID_REQUEST,
    (BROKER, "1"): NONE,
    (BROKER, "100"): NONE,
    (BROKER, ""): NONE,
    (BROKER, "7"): ErrorCode.BROKER_ID_NOT_REGISTERED,
    (BROKER, "-1"): ErrorCode.INVALID_REQUEST,
    (BROKER, "²"): ErrorCode.INVALID_REQUEST,
    (GROUP, "g"): NONE,
    (GROUP, ""): ErrorCode.INVALID_REQUEST,
    (METRICS, "m"): NONE,
    (METRICS, ""): ErrorCode.INVALID_REQUEST,
    (LOGGER, "1"): ErrorCode.INVALID_REQUEST,
    (5, "x"): ErrorCode.UNSUPPORTED_VERSION,
}


class Configs:
    """A cluster, and the configs of its resources."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.has_elr = draw(st.booleans())
        self.cluster = Cluster(levels={"eligible.leader.replicas.version": int(self.has_elr)}, min_insync_replicas=2)
        self.cluster.start(1, 2, 3)
        for name in ("t", "u"):
            self.cluster.create_topic(name, [1, 2], [2, 1])
        self.plain: dict[Resource, dict[str, str]] = {}
        if self.has_elr:
            self.plain[BROKER, ""] = {"min.insync.replicas": "2"}

    def a_resource(self) -> Resource:
        right = [it for it, code in RESOURCES.items() if code is NONE]
        drawn = st.sampled_from(right * 3 + list(RESOURCES))
        return self.draw(drawn)  # type: ignore[no-any-return]

    def a_key(self, kind: int) -> tuple[str, str]:
        """A key and a value of it; values that are allowed come up more often."""
        known = VALUES.get(kind, VALUES[TOPIC])
        key = self.draw(st.sampled_from(sorted(known)))
        right = [value for value, code in known[key].items() if code is NONE]
        return key, self.draw(st.sampled_from(right * 2 + list(known[key])))

    # -- rules

    def error_of(self, resource: Resource, changes: dict[str, str | None], after: dict[str, str]) -> set[ErrorCode]:
        """The errors of all that is wrong with these changes; NONE if nothing is."""
        kind, name = resource
        errors = set()
        is_one_for_all = self.has_elr and kind == BROKER and "min.insync.replicas" in changes
        if is_one_for_all and (name or changes["min.insync.replicas"] is None):
            errors.add(ErrorCode.INVALID_CONFIG)
        if any(len(value or "") > LIMITS["LONGEST_VALUE"] for value in changes.values()):
            errors.add(ErrorCode.INVALID_CONFIG)
        if len(after) > max(LIMITS["MOST_OVERRIDES"], len(self.plain.get(resource, {}))):
            errors.add(ErrorCode.POLICY_VIOLATION)
        for key, value in (changes if kind == BROKER else after).items():
            if value is None:
                continue
            known = VALUES[kind][key]
            parts = value.split(",")
            if value in known:
                errors.add(known[value])
            elif key in ("cleanup.policy", "log.cleanup.policy"):
                is_right = {*parts} <= {"", "delete", "compact"}
                wrong = ErrorCode.INVALID_CONFIG if kind == TOPIC else ErrorCode.INVALID_REQUEST
                errors.add(NONE if is_right else wrong)
            elif key == "metrics":
                errors.add(NONE if len({*parts}) == len(parts) else ErrorCode.INVALID_CONFIG)
            elif key == "match":
                is_right = all(
                    known.get(part.strip(), NONE if "port=1" in part else None) is NONE
                    for part in parts
                    if part.strip()
                )
                errors.add(NONE if is_right else ErrorCode.INVALID_CONFIG)
        errors.discard(NONE)
        return errors or {NONE}

    def operated(self, current: str | None, key: str, operation: int, value: str) -> str:
        if operation == SET:
            return value
        parts = [it for it in (DEFAULTS[key] if current is None else current).split(",") if it]
        for part in value.split(","):
            if operation == APPEND and part not in parts:
                parts = [*parts, part]
            elif operation == SUBTRACT and part in parts:
                place = parts.index(part)
                parts = parts[:place] + parts[place + 1 :]
        return ",".join(parts)

    # -- requests

    def incremental(self) -> None:
        draw = self.draw
        request = incremental.IncrementalAlterConfigsRequest(validate_only=draw(st.integers(0, 4)) == 0)
        wishes: list[tuple[dict[str, str | None], set[ErrorCode] | None]] = []
        for _ in range(draw(st.integers(1, 3))):
            resource = self.a_resource()
            asked = incremental.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1])
            changes: dict[str, str | None] = {}
            wrong: set[ErrorCode] | None = None
            is_twice = False
            for _ in range(draw(st.integers(0, 3))):
                key, value = self.a_key(resource[0])
                operation = draw(st.sampled_from([SET, SET, SET, DELETE, APPEND, SUBTRACT, 4]))
                is_null = draw(st.integers(0, 9)) == 0
                asked.configs.append(
                    incremental.AlterableConfig(name=key, config_operation=operation, value=None if is_null else value)
                )
                is_twice = is_twice or key in changes
                changes[key] = None
                if operation == 4 or (is_null and operation != DELETE):
                    wrong = (wrong or set()) | {ErrorCode.INVALID_REQUEST}
                elif operation in (APPEND, SUBTRACT) and key not in LISTS:
                    wrong = (wrong or set()) | {ErrorCode.INVALID_CONFIG}
                elif operation != DELETE:
                    changes[key] = self.operated(self.plain.get(resource, {}).get(key), key, operation, value)
            request.resources.append(asked)
            wishes.append((changes, {ErrorCode.INVALID_REQUEST} if is_twice else wrong))
        self.decided(request, wishes)

    def replaced(self) -> None:
        draw = self.draw
        request = legacy.AlterConfigsRequest(validate_only=draw(st.integers(0, 4)) == 0)
        wishes: list[tuple[dict[str, str | None], set[ErrorCode] | None]] = []
        for _ in range(draw(st.integers(1, 3))):
            resource = self.a_resource()
            asked = legacy.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1])
            changes: dict[str, str | None] = {}
            wrong: set[ErrorCode] | None = None
            for _ in range(draw(st.integers(0, 3))):
                key, value = self.a_key(resource[0])
                if key in changes or (is_null := draw(st.integers(0, 9)) == 0):
                    wrong = {ErrorCode.INVALID_REQUEST}
                    is_null = key not in changes
                asked.configs.append(legacy.AlterableConfig(name=key, value=None if is_null else value))
                changes[key] = value
            for key in self.plain.get(resource, {}):
                changes.setdefault(key, None)
            request.resources.append(asked)
            wishes.append((changes, wrong))
        self.decided(request, wishes)

    def decided(self, request: Any, wishes: list[tuple[dict[str, str | None], set[ErrorCode] | None]]) -> None:
        cluster = self.cluster
        steps = cluster.controller.decide(request, request.VERSIONS.highest, len(cluster.log), cluster.now_ms)
        result = finish(steps)
        cluster.append(result)
        times = Counter((it.resource_type, it.resource_name) for it in request.resources)
        answers = result.response.responses
        noted: list[str] = []
        for asked, answer, (changes, wrong) in zip(request.resources, answers, wishes, strict=True):
            resource = (asked.resource_type, asked.resource_name)
            assert (answer.resource_type, answer.resource_name) == resource
            current = self.plain.get(resource, {})
            after = {key: value for key, value in (current | changes).items() if value is not None}
            if times[resource] > 1:
                codes = {ErrorCode.INVALID_REQUEST}
            elif RESOURCES[resource] is not NONE:
                codes = {RESOURCES[resource]}
            else:
                codes = wrong or self.error_of(resource, changes, after)
            assert answer.error_code in codes and (answer.error_message is None) == (NONE in codes)
            operations = {getattr(it, "config_operation", SET) for it in asked.configs}
            if operations in ({APPEND}, {SUBTRACT}) and "not a list" in (answer.error_message or ""):
                assert ("appended" in answer.error_message) == (operations == {APPEND})
            if codes != {NONE}:
                continue
            effective = {key: it for key, it in changes.items() if resource[0] == BROKER or current.get(key) != it}
            if effective and not request.validate_only:
                noted.append(self.name(resource))
                self.check_note(resource, effective, [it for it in result.notes if it.subject == noted[-1]])
            if not request.validate_only:
                self.plain[resource] = after
        subjects = [it.subject for it in result.notes if it.text.startswith("configs of")]
        assert subjects == noted

    def name(self, resource: Resource) -> str:
        return "all brokers" if resource == (BROKER, "") else f"{NAMES[resource[0]]} {resource[1]}"

    def check_note(self, resource: Resource, effective: dict[str, str | None], notes: list[Note]) -> None:
        (note,) = notes
        assert note.text == f"configs of {self.name(resource)} are changed"
        shown = [
            f"{key}={'[hidden]' if key == 'my.own.key' and value is not None else value}"
            for key, value in effective.items()
        ][: LIMITS["SHOWN_CHANGES"]]
        more = len(effective) - len(shown)
        asked = f"a client asked for {', '.join(shown)}" + (f" and {more} more" if more else "")
        assert note.cause.startswith(asked)
        is_unknown = "my.own.key" in list(effective)[: LIMITS["WARNED_KEYS"]] and effective["my.own.key"] is not None
        warning = "; my.own.key is not a broker config and has no effect" if is_unknown else ""
        assert note.cause.removeprefix(asked).startswith(warning) and (is_unknown or note.cause == asked)

    def check(self) -> None:
        found = self.cluster.image.configs
        assert found == {resource: configs for resource, configs in self.plain.items() if configs}


@pytest.mark.feature("AD-02", "MB-20")
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_configs_are_those_of_plain_dictionaries(data: st.DataObject) -> None:
    configs = Configs(data.draw)
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in LIMITS.items():
            patch.setattr(f"barnabas.kraft.controller.configs.{name}", limit)
        change(configs)


def change(configs: Configs) -> None:
    for _ in range(configs.draw(st.integers(1, 6))):
        configs.draw(st.sampled_from([configs.incremental, configs.incremental, configs.replaced]))()
        configs.check()
