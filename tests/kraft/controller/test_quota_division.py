"""Quotas of the whole cluster: brokers report their use, the active controller divides each limit between them."""

from __future__ import annotations

import math
import struct
from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.quota_division import MOST_CLIENTS, QuotaDivision, Standing
from barnabas.kraft.quota_reports import QUOTA_PARTS_TAG, answer_parts, answered_parts, report_use, reported_use
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.schema import decode, encode
from barnabas.runtime.identity import ANONYMOUS
from barnabas.runtime.quotas.levels import QuotaLevels
from barnabas.runtime.quotas.manager import QuotaManager
from barnabas.runtime.quotas.parts import LEAST_WINDOW_MS, MOST_REPORTED, RESERVE, ClientUse, QuotaParts, UseReport
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.quotas.source import Client, QuotaType
from tests.examples import examples
from tests.kraft.controller.conftest import finish

pytestmark = pytest.mark.feature("QU-09")

LIMIT = 1_000.0
WINDOW_MS = 2_000
CLIENT = Client(ANONYMOUS, "app")


class Broker:
    """Quotas and parts of one broker, and the client's use there."""

    def __init__(self, brokers: int) -> None:
        self.parts = QuotaParts(WINDOW_MS)
        self.parts.brokers = brokers
        levels = QuotaLevels({(("client-id", "app"),): {QuotaType.PRODUCE.key: LIMIT}})
        self.manager = QuotaManager(QuotaType.PRODUCE, QuotaWindows(), levels)
        self.manager.divide(self.parts)
        self.epoch = 1

    def part(self, now_ms: int) -> float:
        part = self.manager.part_of(self.manager.sensor(CLIENT, now_ms), now_ms)
        assert part is not None
        return part

    def use(self, amount: float, now_ms: int) -> None:
        throttle_ms = self.manager.record(CLIENT, amount, now_ms)
        if throttle_ms:
            self.manager.throttled(CLIENT, throttle_ms, now_ms)


class Cluster:
    """The brokers with ids from 1 on, and a controller; messages travel as bytes."""

    def __init__(self, brokers: int = 3) -> None:
        self.now_ms = 1_000_000
        self.brokers = {broker_id: Broker(brokers) for broker_id in range(1, brokers + 1)}
        self.standing = dict.fromkeys(self.brokers, Standing.ACTIVE)
        self.fail_over()

    def fail_over(self) -> None:
        """Another controller is the active one."""
        self.division = QuotaDivision()
        self.division.clear(self.now_ms)

    def request(self, broker_id: int) -> bytes:
        broker = self.brokers[broker_id]
        heartbeat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=broker.epoch)
        report_use(heartbeat, broker.parts.report([broker.manager], self.now_ms))
        return encode(heartbeat, 2)

    def answer(self, sent: bytes) -> bytes | None:
        """The controller's answer; None without parts."""
        heartbeat = decode(BrokerHeartbeatRequest, sent, 2)
        report = reported_use(heartbeat)
        assert report is not None
        sender = (heartbeat.broker_id, heartbeat.broker_epoch)
        parts = finish(self.division.report(self.standing, sender, report, self.now_ms))
        if parts is None:
            return None
        response = BrokerHeartbeatResponse()
        answer_parts(response, report.sequence, parts)
        return encode(response, 2)

    def take(self, broker_id: int, answer: bytes | None) -> None:
        found = None if answer is None else answered_parts(decode(BrokerHeartbeatResponse, answer, 2))
        if found is not None:
            self.brokers[broker_id].parts.answered(*found)

    def exchange(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.take(broker_id, self.answer(self.request(broker_id)))

    def parts(self) -> list[float]:
        return [broker.part(self.now_ms) for broker in self.brokers.values()]

    def windows(self, count: int, wishes: dict[int, float], cut: tuple[int, ...] = ()) -> None:
        """The client wants these rates, as fractions of its limit, and sends what each broker lets through."""
        for tenth in range(count * 10):
            self.now_ms += WINDOW_MS // 10
            for broker_id, wish in wishes.items():
                broker = self.brokers[broker_id]
                if broker.manager.throttle_ms(CLIENT, self.now_ms) == 0:
                    broker.use(wish * LIMIT * WINDOW_MS / 10_000, self.now_ms)
            if tenth % 10 == 9:
                self.exchange(*(it for it in self.brokers if it not in cut))
                for broker_id in cut:
                    self.request(broker_id)
            assert sum(self.parts()) <= 1 + 1e-9


# -- dividing


def test_one_busy_broker_gets_all_but_the_reserve_of_the_others() -> None:
    cluster = Cluster()
    assert cluster.parts() == [1 / 3] * 3
    cluster.windows(4, {1: 1.0})
    assert cluster.parts() == pytest.approx([1 - 2 * RESERVE / 3, RESERVE / 3, RESERVE / 3])


def test_the_parts_follow_a_client_that_moves() -> None:
    """Its old use counts as long as the windows of the old broker hold it: what both let through is the limit."""
    cluster = Cluster()
    cluster.windows(4, {1: 1.0})
    cluster.windows(4, {2: 1.0})
    assert cluster.parts()[1] > 2 * RESERVE / 3
    cluster.windows(4, {2: 1.0})
    assert cluster.parts() == pytest.approx([RESERVE / 3, 1 - 2 * RESERVE / 3, RESERVE / 3])


def test_two_greedy_brokers_get_equal_parts_and_a_modest_one_what_it_wants() -> None:
    cluster = Cluster()
    cluster.windows(20, {1: 1.0, 2: 1.0, 3: 0.15})
    first, second, third = cluster.parts()
    assert first == pytest.approx(second, abs=0.05) and first > 0.35
    assert third > 0.14


def test_small_uses_get_everything_by_their_use() -> None:
    cluster = Cluster()
    cluster.windows(12, {1: 0.2, 2: 0.1})
    first, second, third = cluster.parts()
    assert first > second > 0.2 and third == pytest.approx(RESERVE / 3)
    assert first + second + third > 0.9


def test_many_connections_do_not_get_around_a_small_part() -> None:
    """Each sends one large request when it may: all wait until the part of the broker has paid for all of them."""
    cluster = Cluster()
    broker = cluster.brokers[2]
    cluster.exchange(1, 2, 3)
    for _ in range(30):
        broker.use(LIMIT, cluster.now_ms)
    waited, held_ms = 0, 1
    while held_ms > 0:
        cluster.windows(1, {})
        waited += WINDOW_MS // 1_000
        held_ms = broker.manager.throttle_ms(CLIENT, cluster.now_ms)
    assert 20 <= waited <= 45, "30 s of the limit less ten of burst; more while the part was small"


def test_a_single_broker_has_the_whole_limit() -> None:
    cluster = Cluster(1)
    cluster.windows(2, {1: 1.0})
    assert cluster.parts() == pytest.approx([1])


# -- brokers and controllers that are lost


def test_a_lost_controller_makes_the_quota_stricter_and_never_void() -> None:
    cluster = Cluster()
    cluster.windows(4, {1: 1.0})
    everybody = (1, 2, 3)
    cluster.windows(3, {1: 1.0}, cut=everybody)
    assert cluster.parts()[0] > 0.8, "its part is still valid"
    cluster.windows(1, {1: 1.0}, cut=everybody)
    assert cluster.parts() == pytest.approx([1 / 3, RESERVE / 3, RESERVE / 3]), "smaller parts first"
    cluster.windows(7, {1: 1.0}, cut=everybody)
    assert cluster.parts() == [1 / 3] * 3


def test_a_new_controller_raises_no_part_before_all_brokers_reported() -> None:
    cluster = Cluster()
    cluster.windows(4, {1: 1.0})
    before = cluster.parts()
    cluster.fail_over()
    cluster.windows(1, {2: 1.0}, cut=(1,))
    assert cluster.parts() == pytest.approx(before)
    cluster.windows(8, {2: 1.0}, cut=(1,))
    assert cluster.parts()[1] == pytest.approx(1 - 1 / 3 - RESERVE / 3), "a silent broker counts as limit / brokers"


def test_the_part_of_a_dead_broker_is_free_when_its_session_ends() -> None:
    cluster = Cluster()
    cluster.windows(4, {1: 1.0})
    cluster.standing[1] = Standing.GONE
    cluster.brokers[1].parts = QuotaParts(WINDOW_MS)
    cluster.brokers[2].use(20 * LIMIT, cluster.now_ms)
    cluster.exchange(2)
    assert cluster.brokers[2].part(cluster.now_ms) == pytest.approx(1 - 2 * RESERVE / 3)


def test_the_use_on_a_fenced_broker_does_not_count() -> None:
    cluster = Cluster()
    cluster.windows(4, {1: 1.0})
    cluster.standing[1] = Standing.FENCED
    cluster.windows(8, {1: 1.0, 2: 1.0})
    assert cluster.parts() == pytest.approx([RESERVE / 3, 1 - 2 * RESERVE / 3, RESERVE / 3], abs=0.01)


def test_an_answer_that_is_lost_keeps_the_part_of_its_broker_reserved() -> None:
    cluster = Cluster()
    cluster.windows(4, {1: 1.0})
    cluster.now_ms += 9_000
    assert cluster.answer(cluster.request(1)) is not None, "no use is left there, and it does not learn its part"
    cluster.brokers[2].use(20 * LIMIT, cluster.now_ms)
    cluster.exchange(2)
    assert sum(cluster.parts()) <= 1 + 1e-9


def test_late_and_repeated_reports() -> None:
    cluster = Cluster()
    cluster.windows(2, {1: 1.0})
    late = cluster.request(1)
    cluster.exchange(1)
    assert cluster.answer(late) is None
    again = cluster.request(1)
    assert cluster.answer(again) == cluster.answer(again)
    cluster.brokers[1].epoch = 2
    cluster.brokers[1].parts = QuotaParts(WINDOW_MS)
    assert cluster.answer(cluster.request(1)) is not None, "a new incarnation counts from one"


OUTCOMES = ("arrives", "request is lost", "answer is lost", "arrives twice", "arrives late", "a copy is late")

moves = st.lists(
    st.tuples(
        st.lists(st.sampled_from(OUTCOMES), min_size=3, max_size=3),
        st.lists(st.sampled_from([0.0, 0.05, 0.3, 1.0, 20.0]), min_size=3, max_size=3),
        st.sampled_from([200, 1_000, WINDOW_MS]),
        st.sampled_from(["", "", "", "fail over", "fence 1", "unfence 1", "cut 2", "heal"]),
    ),
    max_size=60,
)


@settings(max_examples=examples(200), deadline=None)
@given(moves)
def test_the_parts_of_all_brokers_never_exceed_the_limit(steps: list[Any]) -> None:
    """A broker that is fenced and still serves may add what limit / brokers is above its part of the reserve."""
    cluster, cut, was_fenced = Cluster(), set[int](), False
    late: list[bytes] = []
    for outcomes, uses, pause_ms, event in steps:
        cluster.now_ms += pause_ms
        match event.split():
            case ["fail", "over"]:
                cluster.fail_over()
                late.clear()  # the old controller refuses them
            case ["fence", _]:
                cluster.standing[1] = Standing.FENCED
                was_fenced = True
            case ["unfence", _]:
                cluster.standing[1] = Standing.ACTIVE
            case ["cut", _]:
                cut.add(2)
            case ["heal"]:
                cut.clear()
        for broker_id, use, outcome in zip(cluster.brokers, uses, outcomes, strict=True):
            if use:
                cluster.brokers[broker_id].use(use * LIMIT, cluster.now_ms)
            request = cluster.request(broker_id)
            if broker_id in cut or outcome == "request is lost":
                continue
            if outcome == "arrives late":
                late.append(request)
                continue
            answer = cluster.answer(request)
            if outcome == "arrives twice":
                answer = cluster.answer(request)
            if outcome == "a copy is late":
                late.append(request)
            if outcome != "answer is lost":
                cluster.take(broker_id, answer)
            most = 1 + (1 - RESERVE) / 3 * was_fenced
            assert sum(cluster.parts()) <= most + 1e-9, cluster.parts()
            assert min(cluster.parts()) >= 0
        while len(late) > 2:
            cluster.answer(late.pop(0))


# -- reports that cannot be true


def packed(sequence: int, window_ms: int, other_part: float, *uses: tuple[bytes, float, float, bool]) -> bytes:
    return struct.pack(">qid", sequence, window_ms, other_part) + b"".join(struct.pack(">16sdd?", *it) for it in uses)


M = TypeVar("M", BrokerHeartbeatRequest, BrokerHeartbeatResponse)


def tagged(message: M, field: bytes) -> M:
    message.unknown_tagged_fields = {QUOTA_PARTS_TAG: field}
    return message


KEY = b"k" * 16
GOOD = (KEY, 0.5, 0.5, False)

LIES = [
    b"",
    packed(1, 2_000, 0.1)[:-1],
    packed(1, 2_000, 0.1, GOOD) + b"x",
    packed(-1, 2_000, 0.1),
    packed(1, 0, 0.1),
    packed(1, 2**31 - 1, 0.1),
    packed(1, 2_000, math.nan),
    packed(1, 2_000, 1.5),
    packed(1, 2_000, 0.1, GOOD, GOOD),
    packed(1, 2_000, 0.1, (KEY, math.nan, 0.5, False)),
    packed(1, 2_000, 0.1, (KEY, -0.1, 0.5, False)),
    packed(1, 2_000, 0.1, (KEY, math.inf, 0.5, False)),
    packed(1, 2_000, 0.1, (KEY, 1e300, 0.5, True)),
    packed(1, 2_000, 0.1, (KEY, 0.5, -0.5, False)),
    packed(1, 2_000, 0.1, (KEY, 0.5, math.nan, False)),
    packed(1, 2_000, 0.1, *((b"%016d" % number, 0.5, 0.1, False) for number in range(MOST_REPORTED + 1))),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_a_report_that_cannot_be_true_is_none(lie: bytes) -> None:
    heartbeat = tagged(BrokerHeartbeatRequest(), lie)
    assert reported_use(decode(BrokerHeartbeatRequest, encode(heartbeat, 2), 2)) is None


@given(st.binary(max_size=200))
def test_no_bytes_of_a_peer_are_an_error(field: bytes) -> None:
    report = reported_use(tagged(BrokerHeartbeatRequest(), field))
    assert report is None or all(0 <= it.part <= 1 for it in report.uses)
    answer = answered_parts(tagged(BrokerHeartbeatResponse(), field))
    assert answer is None or all(0 <= it <= 1 for it in answer[1])


def test_parts_that_do_not_answer_the_report_are_ignored() -> None:
    cluster = Cluster()
    broker = cluster.brokers[1]
    broker.use(LIMIT, cluster.now_ms)
    report = broker.parts.report([broker.manager], cluster.now_ms)
    broker.parts.answered(report.sequence + 1, [1.0])
    broker.parts.answered(report.sequence, [1.0, 1.0])
    assert broker.part(cluster.now_ms) == 1 / 3
    broker.parts.answered(report.sequence, [0.5])
    assert broker.part(cluster.now_ms) == 0.5


def test_a_heartbeat_of_an_old_incarnation_gets_no_parts(cluster: Any) -> None:
    report = UseReport(1, WINDOW_MS, 1 / 3, (ClientUse(KEY, 0.5, 1 / 3, False),))
    heartbeat = BrokerHeartbeatRequest()
    report_use(heartbeat, report)
    fields = heartbeat.unknown_tagged_fields
    assert answered_parts(cluster.heartbeat(1, unknown_tagged_fields=fields)) is None, "not all brokers reported"
    cluster.now_ms += 3 * WINDOW_MS + 1
    answer = answered_parts(cluster.heartbeat(1, unknown_tagged_fields=fields))
    assert answer is not None and answer[0] == 1 and len(answer[1]) == 1
    refused = cluster.heartbeat(1, broker_epoch=cluster.epochs[1] - 1, unknown_tagged_fields=fields)
    assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH and answered_parts(refused) is None
    assert not cluster.heartbeat(2).unknown_tagged_fields, "a broker that reports nothing gets nothing, as with Kafka"


# -- bounds


def many(clients: int, first: int = 0) -> tuple[ClientUse, ...]:
    return tuple(ClientUse(b"%016d" % number, 0.5, 0.01, True) for number in range(first, first + clients))


def test_a_controller_divides_the_limits_of_a_bounded_number_of_clients() -> None:
    division, standing = QuotaDivision(), dict.fromkeys(range(1, 13), Standing.ACTIVE)
    for broker_id in standing:
        report = UseReport(1, WINDOW_MS, RESERVE / 12, many(MOST_REPORTED, broker_id * MOST_REPORTED))
        parts = finish(division.report(standing, (broker_id, 1), report, 1_000))
        assert parts is not None and len(parts) == MOST_REPORTED
        last = set(parts)
    assert division.clients == MOST_CLIENTS
    assert last == {RESERVE / 12}, "the brokers of others have their parts of the reserve"
    for broker_id in standing:
        finish(division.report(standing, (broker_id, 1), UseReport(2, WINDOW_MS, RESERVE / 12, ()), 2_000))
    assert division.clients == 0


def test_a_long_report_of_a_large_cluster_takes_many_steps() -> None:
    division, standing = QuotaDivision(), dict.fromkeys(range(100), Standing.ACTIVE)
    steps: list[int] = []
    for broker_id in standing:
        steps.clear()
        report = UseReport(1, WINDOW_MS, RESERVE / 100, many(200))
        finish(division.report(standing, (broker_id, 1), report, 1_000), lambda: steps.append(1))
    assert len(steps) > 10



def test_a_report_has_the_clients_that_use_most_and_none_that_use_little() -> None:
    parts = QuotaParts(WINDOW_MS)
    parts.brokers = 4
    levels = QuotaLevels({(("client-id", None),): {QuotaType.PRODUCE.key: LIMIT}})
    manager = QuotaManager(QuotaType.PRODUCE, QuotaWindows(), levels)
    manager.divide(parts)
    for number in range(MOST_REPORTED + 500):
        manager.record(Client(ANONYMOUS, f"app-{number}"), LIMIT + number, 1_000)
    manager.record(Client(ANONYMOUS, "idle"), LIMIT / 100, 1_000)
    report = parts.report([manager], 1_000)
    assert len(report.uses) == MOST_REPORTED
    assert min(it.use for it in report.uses) == pytest.approx((LIMIT + 500) / 10 / LIMIT)
    assert parts.report([manager], 100_000).uses == (), "their windows are over"


def test_a_client_gets_its_own_part_however_long_its_name_is() -> None:
    parts = QuotaParts(WINDOW_MS)
    levels = QuotaLevels({(("client-id", None),): {QuotaType.FETCH.key: LIMIT}})
    manager = QuotaManager(QuotaType.FETCH, QuotaWindows(), levels)
    manager.divide(parts)
    names = ["x" * 1_000, "x" * 1_001, "\ud800", "a", "a\0"]
    assert len({manager.sensor(Client(ANONYMOUS, name), 1_000).key for name in names}) == len(names)


def test_a_fenced_broker_with_a_session_is_not_gone(make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be back in a moment, and its clients with it."""
    cluster = make_cluster()
    cluster.start(1, 2, 3)
    cluster.register(4)
    cluster.die(3)
    seen: list[dict[int, Standing]] = []

    def report(
        division: QuotaDivision, brokers: dict[int, Standing], *_: object
    ) -> Generator[None, None, tuple[float, ...]]:
        seen.append(brokers)
        yield
        return (0.25,)

    monkeypatch.setattr(QuotaDivision, "report", report)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=cluster.epochs[1], current_metadata_offset=9_999)
    assert answered_parts(cluster.send(request)) is None and seen == []
    report_use(request, UseReport(7, LEAST_WINDOW_MS, 0.5, ()))
    assert answered_parts(cluster.send(request)) == (7, (0.25,))
    assert seen == [{1: Standing.ACTIVE, 2: Standing.ACTIVE, 3: Standing.GONE, 4: Standing.FENCED}]
