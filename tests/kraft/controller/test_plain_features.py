"""Changes of feature levels beside Kafka's rules in their order; each seed is another cluster and its history."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_registration import Feature
from barnabas.protocol.messages.metadata_log import (
    ControllerFeature,
    DelegationTokenRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kraft.controller.conftest import Cluster, finish

ELR, KRAFT, METADATA = "eligible.leader.replicas.version", "kraft.version", "metadata.version"
PREFIX = "The update failed for all features since the following feature had an error: "
NAMES = (METADATA, METADATA, METADATA, ELR, ELR, KRAFT, "group.version", "transaction.version", "tiered.version")
LEVELS = (0, 0, 1, 1, 1, 2, 3, -1)
METADATA_LEVELS = (7, 10, 13, 14, 15, 16, 17, 22, 23, 25, 29, 30, 31, 6)


class FakeQuorum:
    """A quorum at a level of kraft.version, which may be raised to 1."""

    def __init__(self, level: int) -> None:
        self.kraft_version = level

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        if not validate_only:
            self.kraft_version = level
        return None


class Levels:
    """A cluster with two brokers, and perhaps another controller."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        level = chance.choice(METADATA_LEVELS[:-2])
        others = chance.choice([(), (), (101,), (101, 102)])
        self.cluster = cluster = Cluster(levels={METADATA: level}, quorum_ids=(100, *others))
        self.quorum = cluster.controller.quorum = FakeQuorum(chance.choice([0, 1]))
        self.nodes = [("Local controller 100", dict(SUPPORTED_FEATURES))]
        for broker_id in (1, 2):
            ranges = self.ranges(level)
            features = [
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in ranges.items()
            ]
            assert cluster.register(broker_id, features=features).error_code == 0
            self.nodes.append((f"Broker {broker_id}", ranges))
        self.controllers: list[tuple[str, dict[str, tuple[int, int]]]] = []
        self.missing = list(others)
        for node_id in others:
            if level >= 15 and chance.random() < 0.7:
                ranges = self.ranges(level)
                self.controllers.append((f"Controller {node_id}", ranges))
                self.missing.remove(node_id)
                self.write(
                    RegisterControllerRecord(
                        controller_id=node_id,
                        features=[
                            ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                            for name, (lowest, highest) in ranges.items()
                        ],
                    )
                )
        if level >= 14 and chance.random() < 0.4:
            for name in ("t1", "t2")[: chance.choice([1, 2])]:
                self.write(DelegationTokenRecord(token_id=name, owner="User:a", requester="User:a"))
        if level >= 11 and chance.random() < 0.4:
            for name in ("ann", "bob")[: chance.choice([1, 2])]:
                self.write(UserScramCredentialRecord(name=name, mechanism=1))

    def ranges(self, level: int) -> dict[str, tuple[int, int]]:
        """Those of a node that is perhaps a little older."""
        found = dict(SUPPORTED_FEATURES)
        if self.chance.random() < 0.2:
            found[METADATA] = (7, self.chance.randrange(level, 31))
        if self.chance.random() < 0.1 and level < 22:
            del found["group.version"]
        if self.chance.random() < 0.1 and level < 24:
            found["transaction.version"] = (0, 1)
        return found

    def write(self, record: Any) -> None:
        self.cluster.append(ControllerResult(None, [record]))

    # -- rules

    def refusal(self, update: FeatureUpdateKey, upgrade_type: int, proposed: dict[str, int]) -> str | None:
        name, level = update.feature, update.max_version_level
        reason = self.reason(name, level, upgrade_type)
        if reason is None and name == METADATA:
            return self.metadata_refusal(level, upgrade_type, proposed)
        if reason is None and (name, level) == (ELR, 1) and proposed.get(METADATA, 0) < 23:
            reason = f"{ELR} could not be set to 1 because it depends on {METADATA} level 23"
        return None if reason is None else f"Invalid update version {level} for feature {name}. {reason}"

    def reason(self, name: str, level: int, upgrade_type: int) -> str | None:
        image = self.cluster.image
        current = self.quorum.kraft_version if name == KRAFT else image.features.level(name)
        if upgrade_type not in (1, 2, 3):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        registers = image.features.metadata_version >= 15
        for node, ranges in [*self.nodes, *(self.controllers if registers else [])]:
            lowest, highest = ranges.get(name, (0, 0))
            if level not in range(lowest, highest + 1):
                only = f"only supports versions {lowest}-{highest}"
                return f"{node} {only if highest else 'does not support this feature.'}"
        if registers and self.missing:
            return f"controller {self.missing[0]} has not registered, and may not support this feature"
        if upgrade_type == 1 and level < current:
            kinds = "either safe or unsafe downgrade."
            return f"Can't downgrade the version of this feature without setting the upgrade type to {kinds}"
        if upgrade_type != 1 and level > current:
            return "Can't downgrade to a newer version."
        return "Can't downgrade the version of this feature." if name == KRAFT and level < current else None

    def metadata_refusal(self, level: int, upgrade_type: int, proposed: dict[str, int]) -> str | None:
        image = self.cluster.image
        current, others = image.features.metadata_version, image.others
        if level < current:
            refused = f"Unsupported metadata.version downgrade from {current} to {level}."
            needed = []
            if level < 17 and any(it.log_directories for it in image.cluster.brokers.values()):
                needed.append("the log directories of replicas")
            if level < 15 and self.controllers:
                needed.append("the registrations of controllers")
            if level < 17 <= current and not needed:
                needed.append("the log directories of replicas")
            if needed:
                why = "Unsafe metadata downgrade is not supported in this version: it would lose"
                return f"{refused} {why} {', '.join(needed)}."
            lost = []
            if level < 14 and others.delegation_tokens:
                count = len(others.delegation_tokens)
                lost.append(f"{count} delegation token{'s' * (count > 1)}")
            if level < 11 and others.scram:
                users = sorted(name for name, _ in others.scram)
                lost.append(f"SCRAM credentials of user{'s' * (len(users) > 1)} {', '.join(users)}")
            if lost and upgrade_type == 2:
                why = "Refusing to perform the requested downgrade because it might delete metadata information"
                return f"{refused} {why}: {'; '.join(lost)}. An unsafe downgrade removes them."
        if level < 23 and proposed.get(ELR) == 1:
            why = f"{ELR} could not be set to 1 because it depends on {METADATA} level 23"
            return f"Invalid update version {level} for feature {METADATA}. {why}"
        return None

    # -- one request

    def update(self) -> None:
        chance, image = self.chance, self.cluster.image
        version = chance.choice([0, 1, 2, 2])
        updates = []
        for name in chance.sample(NAMES, chance.choice([1, 1, 1, 2, 3])):
            now = image.features.level(name)
            level = chance.choice([*METADATA_LEVELS, now, now + 1]) if name == METADATA else chance.choice(LEVELS)
            updates.append(
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    upgrade_type=chance.choice([1 if level >= now else 2, 1, 2, 3, 3, 0, 4]),
                    allow_downgrade=chance.random() < 0.5,
                )
            )
        only = chance.random() < 0.2
        request = UpdateFeaturesRequest(feature_updates=updates, validate_only=only)
        kinds = [(2 if it.allow_downgrade else 1) if version == 0 else it.upgrade_type for it in updates]
        proposed = image.features.levels | {it.feature: it.max_version_level for it in updates}
        refusals = (self.refusal(it, kind, proposed) for it, kind in zip(updates, kinds, strict=True))
        refused = next((it for it in refusals if it is not None), None)
        is_double = len({it.feature for it in updates}) < len(updates)
        cluster = self.cluster
        result = finish(cluster.controller.decide(request, version, len(cluster.log), cluster.now_ms))
        response: Any = result.response
        if is_double:
            assert response.error_code == ErrorCode.INVALID_REQUEST and not result.records
            return
        if refused is not None:
            assert (response.error_code, response.error_message) == (E_UPDATE, PREFIX + refused)
            assert not result.records and not result.before and not result.notes
            return
        assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
        named = [it.feature for it in updates] if version < 2 else []
        assert [(it.feature, it.error_code, it.error_message) for it in response.results] == [
            (name, ErrorCode.NONE, None) for name in named
        ]
        if only:
            assert not (result.records or result.before or result.notes)
            return
        self.check(updates, result)

    def check(self, updates: list[FeatureUpdateKey], result: ControllerResult[Any]) -> None:
        """metadata.version goes up before the others, and down after them."""
        before = self.cluster.image.features
        others = [it for it in updates if it.feature != METADATA]
        levels = [it for it in updates if it.feature == METADATA]
        goes_up = bool(levels) and levels[0].max_version_level >= before.metadata_version
        ordered = [*levels, *others] if goes_up else [*others, *levels]
        written = [(it.name, it.feature_level) for it in result.records if isinstance(it, FeatureLevelRecord)]
        assert written == [(it.feature, it.max_version_level) for it in ordered if it.feature != KRAFT]
        raised = [it for it in others if it.feature == KRAFT and it.max_version_level != self.quorum.kraft_version]
        assert sum(isinstance(it, NoOpRecord) for it in result.records) == len(raised) == len(result.before)
        texts = [
            f"feature {it.feature} changes its level from {before.level(it.feature)} to {it.max_version_level}"
            for it in ordered
            if it.feature != KRAFT
        ]
        if result.records:
            noted = [it for it in result.notes if it.subject == "quorum"]
            assert [(it.text, it.cause) for it in noted] == [(text, "UpdateFeatures asked for it") for text in texts]
        for each in result.before:
            each()
        self.cluster.append(result)
        others_left = self.cluster.image.others
        level = self.cluster.image.features.metadata_version
        assert all(it.max_version_level == self.quorum.kraft_version for it in others if it.feature == KRAFT)
        assert not (level < 14 and others_left.delegation_tokens) and not (level < 11 and others_left.scram)
        assert all(
            self.cluster.image.features.level(it.feature) == it.max_version_level
            for it in ordered
            if it.feature != KRAFT
        )


E_UPDATE = ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.feature("OP-04")
@pytest.mark.parametrize("block", range(5))
def test_levels_change_as_kafkas_rules_say(block: int) -> None:
    for seed in range(block * 12, (block + 1) * 12):
        levels = Levels(random.Random(seed))
        for _ in range(15):
            levels.update()
