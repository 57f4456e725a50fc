"""The quotas of a node: limits from the metadata, or from a class of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import trio

from barnabas.kraft.metadata.image import EMPTY_IMAGE, ClientQuotas, MetadataImage
from barnabas.kraft.metadata.snapshot import difference
from barnabas.kraft.quota_callbacks import KEY, load_callback
from barnabas.kraft.quotas import NodeQuotas
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from barnabas.protocol.schema import decode, encode
from barnabas.protocol.throttle_times import throttle_time_of, with_throttle_time
from barnabas.runtime.decisions import DecisionKind, Decisions
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.metrics import render
from barnabas.runtime.quotas.callback import CallbackLimits
from barnabas.runtime.quotas.levels import QuotaLevels
from barnabas.runtime.quotas.manager import QuotaManager
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.quotas.reports import ThrottleNotes
from barnabas.runtime.quotas.requests import MutationQuota, RequestQuotas
from barnabas.runtime.quotas.source import Client, QuotaType
from barnabas.runtime.request import Request
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.settings.errors import SettingsError
from tests.broker.some_settings import some_settings


class Clock:
    def __init__(self) -> None:
        self.ms = 5_000_000

    def now_ms(self) -> int:
        return self.ms


def request(api_key: ApiKey = ApiKey.CREATE_TOPICS, user: str = "alice", size: int = 0) -> Request:
    body = memoryview(bytearray(size))
    return Request(api_key, 7, 1, "app", body, "host", "PLAINTEXT", 1, 0, principal=Principal(user))


# -- changes of the cluster


def mutations(quota: float, *, strict: bool) -> tuple[MutationQuota, Clock, RequestQuotas]:
    clock = Clock()
    levels = QuotaLevels({(("user", "alice"),): {"controller_mutation_rate": quota}})
    quotas = RequestQuotas(QuotaWindows(), QuotaWindows(), clock, levels)
    found = quotas.mutations(request(), strict=strict)
    assert found is not None
    return found, clock, quotas


@pytest.mark.feature("QU-08")
def test_a_strict_quota_lets_a_burst_through_and_refuses_what_follows() -> None:
    """Eleven windows of one second: a burst of 55, which the last request may exceed."""
    quota, clock, _ = mutations(5, strict=True)
    quota.spend(50)
    quota.spend(10)
    assert quota.throttle_ms() == 0
    with pytest.raises(KafkaError) as refused:
        quota.spend(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.throttle_ms() == 1_000, "5 tokens are missing"
    clock.ms += 400
    assert quota.throttle_ms() == 600, "it was decided a while ago"
    clock.ms += 600
    assert quota.throttle_ms() == 0
    quota.spend(1)


@pytest.mark.feature("QU-08")
def test_a_permissive_quota_refuses_nothing_and_holds_the_client_back() -> None:
    quota, _, _ = mutations(5, strict=False)
    quota.spend(65)
    assert quota.throttle_ms() == 2_000
    quota.spend(5)
    assert quota.throttle_ms() == 3_000


@pytest.mark.feature("QU-08")
def test_a_decision_that_is_made_again_spends_once() -> None:
    quota, _, quotas = mutations(5, strict=True)
    for _ in range(10):
        quota.again()
        quota.spend(40)
    (sensor,) = quotas.managers[QuotaType.CONTROLLER_MUTATION].all()
    assert sensor.bucket is not None and sensor.bucket.tokens(5, 5_000_000) == 15
    assert sensor.rate.total == 40


@pytest.mark.feature("QU-08")
def test_clients_without_a_quota_of_their_own_spend_nothing() -> None:
    clock = Clock()
    levels = QuotaLevels({(("user", "alice"),): {"controller_mutation_rate": 1.0}})
    quotas = RequestQuotas(QuotaWindows(), QuotaWindows(), clock, levels)
    quota = quotas.mutations(request(user="bob"), strict=True)
    assert quota is not None
    for _ in range(100):
        quota.spend(1_000)
    assert RequestQuotas(QuotaWindows(), QuotaWindows(), clock, QuotaLevels()).mutations(request(), strict=True) is None


# -- answers as bytes


@pytest.mark.feature("QU-06")
@pytest.mark.parametrize("version", [2, 7])
def test_the_throttle_of_a_forwarded_answer_is_read_and_replaced(version: int) -> None:
    spec = API_SPECS[ApiKey.CREATE_TOPICS]
    prefix = response_prefix(9, spec.response_header_version(version) == 1)
    answer = prefix + encode(CreateTopicsResponse(throttle_time_ms=1_234), version)
    assert throttle_time_of(spec, version, answer) == 1_234
    replaced = with_throttle_time(spec, version, answer, 5_678)
    assert decode(CreateTopicsResponse, replaced[len(prefix) :], version).throttle_time_ms == 5_678
    assert throttle_time_of(spec, version, prefix) == 0


@pytest.mark.feature("QU-06")
def test_a_throttle_at_the_end_of_an_answer_is_found_too() -> None:
    spec, version = API_SPECS[ApiKey.EXPIRE_DELEGATION_TOKEN], 2
    prefix = response_prefix(9, True)
    answer = prefix + encode(ExpireDelegationTokenResponse(expiry_timestamp_ms=77, throttle_time_ms=3), version)
    assert throttle_time_of(spec, version, answer) == 3
    replaced = with_throttle_time(spec, version, answer, 900)
    body = decode(ExpireDelegationTokenResponse, replaced[len(prefix) :], version)
    assert (body.expiry_timestamp_ms, body.throttle_time_ms) == (77, 900)


# -- sensors


@pytest.mark.feature("QU-05")
def test_hostile_client_ids_take_bounded_memory() -> None:
    levels = QuotaLevels({(("client-id", None),): {"producer_byte_rate": 10.0}})
    manager = QuotaManager(QuotaType.PRODUCE, QuotaWindows(), levels, most=100)
    honest = Client(ANONYMOUS, "honest")
    for number in range(1_000):
        now_ms = number * 1_000
        manager.record(Client(ANONYMOUS, f"{number}" + "x" * 30_000), 1, now_ms)
        manager.record(honest, 1_000, now_ms)
    assert manager.sensors <= 100
    assert manager.sensor(honest, 1_000_000).rate.total > 1_000, "those in use stay"
    assert max(len(value) for sensor in manager.all() for _, value in sensor.tags) < 200


@pytest.mark.feature("QU-05")
def test_a_sensor_is_forgotten_after_an_hour_of_silence() -> None:
    levels = QuotaLevels({(("client-id", None),): {"producer_byte_rate": 10.0}})
    manager = QuotaManager(QuotaType.PRODUCE, QuotaWindows(), levels)
    manager.record(Client(ANONYMOUS, "a"), 1, 0)
    manager.record(Client(ANONYMOUS, "b"), 1, 3_600_000)
    assert manager.sensors == 2
    manager.forget_silent(3_600_001)
    assert manager.sensors == 1


# -- a node


def node_quotas(world, decisions: Decisions, **raw: str) -> NodeQuotas:
    settings = some_settings(raw=raw)
    return NodeQuotas(settings, QuotaWindows(), world, decisions, "broker 1")


def image_with(quotas: ClientQuotas) -> MetadataImage:
    return replace(EMPTY_IMAGE, others=replace(EMPTY_IMAGE.others, quotas=quotas))


@pytest.mark.feature("QU-04", "OB-01")
def test_a_node_follows_the_metadata_and_shows_who_is_held_back() -> None:
    async def story(universe: object) -> None:
        world = make_world("node", universe)
        decisions = Decisions("broker-1", world.wall_clock.now_ms)
        quotas = node_quotas(world, decisions)
        assert not quotas.requests.is_active
        addresses = {(("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0}}
        first = image_with({(("user", "alice"),): {"producer_byte_rate": 100.0}, **addresses})
        quotas.changed(difference(EMPTY_IMAGE, first))
        assert quotas.ip_limit("10.0.0.1") == 3 and quotas.ip_limit("10.0.0.2") is None
        for _ in range(50):
            quotas.requests.arrival_throttle_ms(request(api_key=ApiKey.PRODUCE, size=1_000))
        (held,) = quotas.state()
        assert (held["user"], held["client_id"], held["quota"]) == ("alice", "", "producer_byte_rate")
        assert held["limit"] == 100 and held["left_ms"] == held["throttle_ms"] > 0
        text = b"".join(piece for family in quotas.families() for piece in render(family)).decode()
        assert 'kafka_server_produce_byte_rate{client_id="",user="alice"}' in text
        assert 'kafka_server_produce_throttle_time{client_id="",user="alice"}' in text
        (note,) = decisions.since(0, "user alice")
        assert note.kind is DecisionKind.QUOTA
        assert "user alice is held back for" in note.sentence and "of 100 bytes a second" in note.sentence
        quotas.changed(difference(first, EMPTY_IMAGE))
        assert not quotas.requests.is_active
        await trio.lowlevel.checkpoint()

    run_simulation(1, story)


@pytest.mark.feature("QU-05")
def test_notes_of_many_client_ids_are_bounded() -> None:
    clock = Clock()
    decisions = Decisions("broker-1", clock.now_ms)
    levels = QuotaLevels({(("client-id", None),): {"producer_byte_rate": 1.0}})
    quotas = RequestQuotas(QuotaWindows(), QuotaWindows(), clock, levels)
    quotas.on_throttled = ThrottleNotes(decisions, clock, "broker 1")

    def flood() -> int:
        for number in range(500):
            again = request(api_key=ApiKey.PRODUCE, size=1_000)
            again.client_id = f"hostile-{number}"
            assert quotas.arrival_throttle_ms(again) > 0
        return len(decisions.since(0))

    assert flood() == flood() == 20
    clock.ms += 60_000
    assert flood() == 40


class ByDepartment:
    """One limit for all users of a department: the part of the name before the dot."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.limit = 50.0
        self.has_changed = False

    def configure(self, configs: Mapping[str, str]) -> None:
        self.calls.append(("configure", configs["node.id"]))

    def quota_metric_tags(self, quota_type: QuotaType, principal: Principal, client_id: str) -> dict[str, str]:
        return {"department": principal.name.partition(".")[0]} if "." in principal.name else {}

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.limit if quota_type is QuotaType.PRODUCE else None

    def update_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None], new_value: float) -> None:
        self.calls.append(("update", quota_type, dict(entity), new_value))

    def remove_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None]) -> None:
        self.calls.append(("remove", quota_type, dict(entity)))

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        changed, self.has_changed = self.has_changed, False
        return changed


@pytest.mark.feature("QU-05")
def test_a_class_of_the_operator_decides_on_tags_and_limits() -> None:
    callback = load_callback({KEY: f"{__name__}:ByDepartment", "node.id": "7"})
    assert isinstance(callback, ByDepartment) and callback.calls.pop() == ("configure", "7")
    limits = CallbackLimits(callback)
    manager = QuotaManager(QuotaType.PRODUCE, QuotaWindows(), limits)
    for user in ("sales.ann", "sales.bob"):
        throttle_ms = manager.record(Client(Principal(user), "x"), 400, 0)
    assert throttle_ms == 6_000, "800 of both together: 80 a second of 50"
    assert manager.record(Client(Principal("nobody"), "x"), 10_000, 0) == 0
    callback.limit, callback.has_changed = 1_000.0, True
    assert manager.record(Client(Principal("sales.ann"), "x"), 400, 0) == 0
    entity = (("user", "ann"),)
    limits.apply({}, {entity: {"producer_byte_rate": 5.0}})
    limits.apply({entity: {"producer_byte_rate": 5.0}}, {entity: None})
    assert callback.calls == [
        ("update", QuotaType.PRODUCE, {"user": "ann"}, 5.0),
        ("remove", QuotaType.PRODUCE, {"user": "ann"}),
    ]


class Broken(ByDepartment):
    def quota_metric_tags(self, quota_type: QuotaType, principal: Principal, client_id: str) -> dict[str, str]:
        raise RuntimeError("no directory of departments")


class Unmade(ByDepartment):
    def __init__(self) -> None:
        raise RuntimeError("no directory of departments")


@pytest.mark.feature("QU-05")
def test_a_class_that_fails_limits_nobody(caplog: pytest.LogCaptureFixture) -> None:
    manager = QuotaManager(QuotaType.PRODUCE, QuotaWindows(), CallbackLimits(Broken()))
    assert [manager.record(Client(Principal("sales.ann"), str(n)), 1e9, 0) for n in range(100)] == [0] * 100
    assert 0 < len(caplog.records) <= 10


@pytest.mark.feature("QU-05")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("com.example.Quotas", "must name a Python class as module:Class"),
        ("no_such_module:Quotas", "cannot be loaded"),
        (f"{__name__}:Unmade", "cannot be loaded: no directory of departments"),
        ("collections:Counter", "has no method configure"),
    ],
)
def test_a_class_that_cannot_be_used_is_named(name: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        load_callback({KEY: name})
