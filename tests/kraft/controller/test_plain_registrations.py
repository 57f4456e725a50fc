"""Which registrations are taken: cluster, log directories and feature ranges, beside plain rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_registration import Feature
from barnabas.protocol.messages.broker_registration import Listener as BrokerListener
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest, Listener
from tests.examples import examples
from tests.kraft.controller.conftest import Cluster

NAMES = ("transaction.version", "group.version", "share.version", "kraft.version", "future.version")
OWN = bytes([2, 1]) * 8
OTHERS = bytes([1, 1]) * 8
RESERVED = [bytes(16), bytes(15) + b"\1", bytes(15) + b"\2", bytes(15) + b"\x63"]


@pytest.mark.feature("MB-02", "KR-12")
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_registration_is_taken_if_it_fits_the_cluster(data: st.DataObject) -> None:
    draw = data.draw
    level = draw(st.sampled_from([16, 17, 30, 30]))
    levels = {"transaction.version": draw(st.integers(0, 2)), "group.version": draw(st.integers(0, 1))}
    cluster = Cluster(levels=levels | {"metadata.version": level})
    cluster.start(1)
    assert cluster.image.features.metadata_version == level
    finalized = cluster.image.features.levels | {"kraft.version": 0}

    ranges = dict(SUPPORTED_FEATURES)
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True)):
        lowest = draw(st.integers(0, 2))
        ranges[name] = (lowest, lowest + draw(st.integers(0, 2)))
    if draw(st.integers(0, 3)) == 0:
        highest = draw(st.sampled_from([level - 1, level, level + 1]))
        ranges["metadata.version"] = (draw(st.sampled_from([7, highest])), highest)
    for name in draw(st.lists(st.sampled_from([*NAMES, "metadata.version"]), max_size=1)):
        ranges.pop(name, None)
    directories = draw(
        st.lists(st.sampled_from([OWN, OWN[::-1], OWN, OTHERS, *RESERVED, bytes(15) + b"\x64"]), max_size=2)
        | st.just([OWN])
    )
    cluster_id = draw(st.sampled_from([None, None, None, "another"]))

    request = cluster.registration(
        2,
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in ranges.items()
        ],
        log_dirs=directories,
        listeners=[BrokerListener(name=f"L{it}", host=f"h{it}", port=it) for it in range(draw(st.integers(0, 3)))],
    )
    request.cluster_id = cluster_id or request.cluster_id
    request.is_migrating_zk_broker = draw(st.integers(0, 9)) == 0
    has_directories = level >= 17
    odd = not directories or len({*directories}) < len(directories) or {*directories} & {*RESERVED, OTHERS}
    unfit = [
        name
        for name in {**ranges, **finalized}
        if not ranges.get(name, (0, 0))[0] <= finalized.get(name, 0) <= ranges.get(name, (0, 0))[1]
    ]
    rules = [
        (cluster_id is not None, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (request.is_migrating_zk_broker, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (has_directories and bool(odd), ErrorCode.INVALID_REGISTRATION),
        ("metadata.version" not in ranges, ErrorCode.INVALID_REGISTRATION),
        (bool(unfit), ErrorCode.UNSUPPORTED_VERSION),
    ]
    response = cluster.send(request)
    assert response.error_code == next((code for is_broken, code in rules if is_broken), ErrorCode.NONE)
    taken = cluster.image.cluster.brokers.get(2)
    assert (taken is None) == (response.error_code != 0)
    if taken is None:
        where = ", ".join(f"{it.host}:{it.port}" for it in request.listeners[:2]) or "no listener"
        (noted,) = cluster.decisions.since(0, "broker 2")
        assert noted.sentence.startswith(f"a process at {where} may not be broker 2: ")
        assert noted.cause.startswith(f"{ErrorCode(response.error_code).name}, ")
        assert noted.concerns("quorum") and noted.facts["times"] == 1
    if taken is not None:
        assert taken.features == ranges
        assert taken.log_directories == (tuple(sorted(directories)) if has_directories else ())
        assert taken.fenced and taken.incarnation_id == request.incarnation_id


@pytest.mark.feature("MB-22")
@pytest.mark.parametrize("level", [14, 15, 30])
def test_a_controller_is_registered_since_level_15_and_that_is_noted(level: int) -> None:
    cluster = Cluster(levels={"metadata.version": level})
    request = ControllerRegistrationRequest(
        controller_id=101,
        incarnation_id=bytes(range(16)),
        listeners=[Listener(name="CONTROLLER", host="node-101", port=9093, security_protocol=0)],
    )
    response = cluster.send(request)
    is_known = level >= 15
    assert response.error_code == (ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION)
    assert list(cluster.image.cluster.controllers) == [101] * is_known
    decided = cluster.decisions.since(0, "controller 101")
    assert [it.sentence for it in decided] == ["controller 101 is registered: it started"] * is_known
    assert all(it.facts["incarnation"] == "AAECAwQFBgcICQoLDA0ODw" for it in decided)
