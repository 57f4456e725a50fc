"""Brokers that stop or start together, beside a plain statement of who waits for whom, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.gatherings import is_awaited, note_wishes
from barnabas.kraft.controller.sessions import BrokerSession
from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.metadata.image import NO_LEADER, BrokerImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.metadata_log import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from barnabas.protocol.schema import Message
from tests.examples import examples
from tests.kraft.controller.plain_cluster import TOPICS, Moves, Scene

STOPS_WITHIN_MS, STARTS_WITHIN_MS = 80, 3_500


class Gathering:
    """A cluster, and what each broker asked for last."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        draw = scene.draw
        cluster = scene.cluster
        self.timeout_ms = cluster.controller.sessions.session_timeout_ms = draw(
            st.sampled_from([100, 199, 200, 201, 8_749, 8_750, 9_000])
        )
        records: list[Message] = []
        if draw(st.integers(0, 3)) == 0:
            records += [RemoveTopicRecord(topic_id=it) for it in TOPICS.values()]
        is_idle = draw(st.booleans())
        for broker in scene.image.cluster.brokers.values():
            change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
            if broker.fenced or is_idle:
                change.fenced = int(not broker.fenced)
                change.in_controlled_shutdown = int(draw(st.integers(0, 4)) == 0)
                if change.fenced or change.in_controlled_shutdown:
                    records.append(change)
        cluster.append(ControllerResult(None, records))
        for broker in scene.image.cluster.brokers.values():
            cluster.controller.sessions.end(broker.id)
            if not broker.fenced or draw(st.integers(0, 4)):
                cluster.controller.sessions.start(broker.id, broker.epoch, cluster.now_ms)
        self.stops: set[int] = set()
        self.serves: set[int] = set()

    def brokers(self) -> list[BrokerImage]:
        return list(self.scene.image.cluster.brokers.values())

    def active(self) -> list[BrokerImage]:
        return [it for it in self.brokers() if not it.fenced and not it.in_controlled_shutdown]

    def session(self, broker: BrokerImage) -> BrokerSession | None:
        found = self.scene.cluster.controller.sessions.get(broker.id)
        return found if found is not None and found.epoch == broker.epoch else None

    def arrives(self) -> None:
        """A heartbeat, which is not decided on yet."""
        draw, scene = self.scene.draw, self.scene
        broker = draw(st.sampled_from(self.brokers()))
        request = BrokerHeartbeatRequest(broker_id=broker.id, broker_epoch=broker.epoch)
        request.want_fence = draw(st.integers(0, 4)) == 0
        request.want_shut_down = draw(st.booleans())
        request.current_metadata_offset = broker.epoch + draw(st.sampled_from([-1, 0, 0, 1]))
        found_ms = note_wishes(scene.image, scene.cluster.controller.sessions, request)
        if self.session(broker) is None:
            assert found_ms == 0
            return
        active = self.active()
        stops = request.want_shut_down and broker.id in {it.id for it in active}
        wants = not (request.want_fence or request.want_shut_down) and not broker.in_controlled_shutdown
        serves = wants and broker.fenced and request.current_metadata_offset >= broker.epoch
        self.stops = (self.stops - {broker.id}) | ({broker.id} if stops else set())
        self.serves = (self.serves - {broker.id}) | ({broker.id} if serves else set())
        wait_ms = 0
        if stops and scene.has_elr and len(active) > 1:
            wait_ms = STOPS_WITHIN_MS
        elif serves and scene.places() and not active:
            wait_ms = STARTS_WITHIN_MS
        assert found_ms == min(wait_ms, self.timeout_ms * 2 // 5)

    def restarts(self) -> None:
        """A fenced broker has another process, which has no session yet; that of the last one says nothing of it."""
        scene = self.scene
        fenced = [it for it in self.brokers() if it.fenced]
        if not fenced:
            return
        broker = scene.draw(st.sampled_from(fenced))
        record = RegisterBrokerRecord(
            broker_id=broker.id,
            incarnation_id=bytes(16),
            broker_epoch=broker.epoch + 1,
            rack=None,
            log_dirs=list(broker.log_directories),
            fenced=True,
        )
        scene.cluster.append(ControllerResult(None, [record]))
        self.serves.discard(broker.id)

    def check(self) -> None:
        now_ms = self.scene.cluster.now_ms
        for later_ms in (0, self.timeout_ms, self.timeout_ms + 1):
            awaited = [
                it
                for it in self.brokers()
                if it.fenced
                and not it.in_controlled_shutdown
                and (session := self.session(it)) is not None
                and now_ms + later_ms <= session.last_contact_ms + self.timeout_ms
                and it.id not in self.serves
            ]
            sessions = self.scene.cluster.controller.sessions
            assert is_awaited(self.scene.image, sessions, now_ms + later_ms) == bool(awaited)

    def is_decided(self) -> None:
        """One of those that asked is answered, and the others with it."""
        scene, draw = self.scene, self.scene.draw
        asked = [it for it in self.brokers() if it.id in self.stops | self.serves]
        if not asked:
            return
        first = draw(st.sampled_from(asked))
        is_stop = first.id in self.stops
        together = [it.id for it in self.brokers() if it.id in (self.stops if is_stop else self.serves)]
        if is_stop and not scene.has_elr:
            together = [first.id]
        if is_stop and not any(scene.partition(place).leader == first.id for place in scene.places()):
            return
        for broker in self.brokers():
            session = self.session(broker)
            if session is not None:
                session.full_directories = ()
        if is_stop:
            moves = Moves(leaving=tuple(together))
            places = [it for it in scene.places() if {*together} & {*scene.partition(it).isr}]
        else:
            moves = Moves(returning=tuple(together))
            places = [it for it in scene.places() if scene.partition(it).leader == NO_LEADER]
        expected = scene.moved(moves, places)
        offsets = {it.id: it.epoch + draw(st.integers(0, 3)) for it in self.brokers()}
        for broker in self.brokers():
            session = self.session(broker)
            if session is not None:
                session.metadata_offset = offsets[broker.id]
        request = BrokerHeartbeatRequest(broker_id=first.id, broker_epoch=first.epoch, want_shut_down=is_stop)
        request.current_metadata_offset = offsets[first.id]
        result = scene.decide(request)
        for broker_id in together:
            notes = [it for it in result.notes if it.subject == f"broker {broker_id}"]
            said = "begins its controlled shutdown" if is_stop else "is unfenced"
            assert [it.text for it in notes] == [f"broker {broker_id} {said}"]
            assert is_stop or notes[0].facts["metadata_applied"] == offsets[broker_id]
        names = f"broker{'s' * (len(together) > 1)} {', '.join(map(str, sorted(together)))}"
        verb = "is" if len(together) == 1 else "are"
        cause = f"controlled shutdown of {names}" if is_stop else f"{names} {verb} unfenced"
        assert all(cause in it.cause for it in result.notes if it.subject[1:2] == "-")
        scene.take(result, expected, *together)
        for broker in self.brokers():
            if broker.id in together:
                assert broker.in_controlled_shutdown if is_stop else not broker.fenced
            session = self.session(broker)
            is_stopping = session is not None and session.controlled_shutdown_offset >= 0
            assert is_stopping == (is_stop and broker.id in together)
            if is_stopping:
                assert session is not None and session.controlled_shutdown_offset == len(scene.cluster.log) - 1


@pytest.mark.feature("MB-03", "MB-05", "OP-08")
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_those_that_asked_together_are_decided_on_together(data: st.DataObject) -> None:
    gathering = Gathering(Scene(data.draw))
    for _ in range(data.draw(st.integers(1, 10))):
        data.draw(st.sampled_from([gathering.arrives] * 5 + [gathering.restarts]))()
        gathering.check()
    gathering.is_decided()
