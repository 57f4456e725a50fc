"""The brokers of a cluster beside plain ones: registrations, heartbeats, sessions, and who is fenced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.brokers import next_session_check_ms
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.primitives import uuid_to_string
from tests.examples import examples
from tests.kraft.controller.conftest import Cluster

TIMEOUT_MS = 9_000
BROKERS = (1, 2, 3)
NOW = 1 << 62
"""The offset of the records of a decision that is being made."""


@dataclass
class Session:
    """The last heartbeat of one incarnation."""

    epoch: int
    last_ms: int
    offset: int = -1
    stops_at: int = -1
    """Offset that the others must have read before it stops."""


@dataclass
class PlainBroker:
    """A registered broker."""

    incarnation: bytes
    epoch: int
    fenced: bool = True
    stops: bool = False
    session: Session | None = None

    def is_alive(self, now_ms: int) -> bool:
        session = self.session
        return session is not None and session.epoch == self.epoch and now_ms - session.last_ms <= TIMEOUT_MS

    def due_ms(self, now_ms: int) -> int:
        """The first moment at which its session is over."""
        known = self.session is not None and self.session.epoch == self.epoch
        return self.session.last_ms + TIMEOUT_MS + 1 if self.session is not None and known else now_ms


class Brokers:
    """Both."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        levels = {"eligible.leader.replicas.version": draw(st.sampled_from([0, 1]))}
        self.real = Cluster(levels=levels, broker_session_timeout_ms=TIMEOUT_MS, metadata_max_idle_interval_ms=0)
        self.plain: dict[int, PlainBroker] = {}
        self.terms = 1
        self.notes: list[tuple[str, str, dict[str, object]]] = []
        """Subject, sentence and facts of what is decided about brokers."""
        self.noted = 0

    def a_broker(self) -> int:
        number: int = self.draw(st.sampled_from(BROKERS))
        return number

    def leads(self, number: int) -> bool:
        """By the real metadata: who leads is the matter of other tests."""
        topics = self.real.image.topics.by_name.values()
        return any(it.leader == number for topic in topics for it in topic.partitions.values())

    # -- notes

    def note(self, number: int, what: str, cause: str, **facts: object) -> None:
        self.notes.append((f"broker {number}", f"broker {number} {what}: {cause}", facts))

    def is_fenced(self, number: int, cause: str) -> None:
        """Before it is."""
        topics = self.real.image.topics.by_name.values()
        in_sync = sum(number in it.isr for topic in topics for it in topic.partitions.values())
        self.note(number, "is fenced", cause, broker_epoch=self.plain[number].epoch, fenced=1, partitions=in_sync)

    def check_notes(self) -> None:
        decided = self.real.decisions.since(self.noted + 1)
        self.noted += len(decided)
        found = [(it.subject, it.sentence, dict(it.facts)) for it in decided if it.subject.startswith("broker ")]
        for _, _, facts in found:
            facts.pop("metadata_offset", None)
        assert found == self.notes
        self.notes = []

    def register(self) -> None:
        number = self.a_broker()
        known = self.plain.get(number)
        request = self.real.registration(number)
        if known is not None and self.draw(st.booleans()):
            request.incarnation_id = known.incarnation
        if known is not None:
            request.previous_broker_epoch = self.draw(st.sampled_from([-1, known.epoch]))
        version = self.draw(st.sampled_from([0, 2, 3, 4, 4, 4]))
        response = self.real.send(request, version)
        if known is not None and request.incarnation_id == known.incarnation:
            assert (response.error_code, response.broker_epoch) == (ErrorCode.NONE, known.epoch)
        elif known is not None and known.is_alive(self.real.now_ms):
            assert response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            cause = f"DUPLICATE_BROKER_REGISTRATION, another broker {number} sent a heartbeat within {TIMEOUT_MS} ms"
            what = f"a process at broker{number}:9092 may not be broker {number}"
            facts = {"error": "DUPLICATE_BROKER_REGISTRATION", "times": 1}
            facts["incarnation"] = uuid_to_string(request.incarnation_id)
            self.notes.append((f"broker {number}", f"{what}: {cause}", facts))
        else:
            assert response.error_code == ErrorCode.NONE
            epoch = response.broker_epoch
            assert epoch == len(self.real.log) - 1, "the offset of the registration"
            is_clean = known is not None and version >= 3 and request.previous_broker_epoch == known.epoch
            how = "" if known is None else f"process of epoch {known.epoch} ended {'' if is_clean else 'un'}cleanly"
            self.note(
                number,
                f"is registered in epoch {epoch}, fenced until it has caught up",
                f"it restarted; its {how}" if known is not None else "it was not known before",
                broker_epoch=epoch,
                previous_broker_epoch=None if known is None else known.epoch,
                incarnation=uuid_to_string(request.incarnation_id),
            )
            session = Session(epoch, self.real.now_ms)
            self.plain[number] = PlainBroker(request.incarnation_id, epoch, session=session)

    def heartbeat(self) -> None:
        number = self.a_broker()
        known = self.plain.get(number)
        epoch = known.epoch if known is not None else 0
        epoch += self.draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1]))
        offset = self.draw(st.sampled_from([len(self.real.log), len(self.real.log), epoch, epoch - 1, 0]))
        fence, stop = self.draw(st.integers(0, 5)) == 0, self.draw(st.integers(0, 3)) == 0
        request = BrokerHeartbeatRequest(broker_id=number, broker_epoch=epoch, current_metadata_offset=offset)
        request.want_fence, request.want_shut_down = fence, stop
        leads = self.leads(number)
        before = len(self.real.log)
        if known is None or known.epoch != epoch:
            response = self.real.send(request)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH and len(self.real.log) == before
            return
        stopped = self.heard(number, known, (offset, fence, stop), leads)
        response = self.real.send(request)
        if known.session is not None and known.session.stops_at == NOW:
            known.session.stops_at = len(self.real.log) - 1
        found = (response.error_code, response.is_caught_up, response.is_fenced, response.should_shut_down)
        assert found == (ErrorCode.NONE, offset >= epoch, known.fenced, stopped)

    def heard(self, number: int, known: PlainBroker, beat: tuple[int, bool, bool], leads: bool) -> bool:
        """True if the broker may stop now."""
        offset, fence, stop = beat
        session = known.session
        if session is None or session.epoch != known.epoch:
            session = known.session = Session(known.epoch, self.real.now_ms)
        session.last_ms, session.offset = self.real.now_ms, offset
        stopped = False
        facts = {"broker_epoch": known.epoch}
        if session.stops_at >= 0 and not known.fenced:
            others = [it for it in self.plain.values() if not it.fenced and not it.stops]
            stopped = not leads and all(
                it.session is not None and it.session.offset >= session.stops_at for it in others
            )
            if stopped:
                self.is_fenced(number, "its controlled shutdown is complete")
        elif stop and (known.fenced or fence or not leads):
            stopped = True
            if not known.fenced:
                self.is_fenced(number, "it wants to stop and leads nothing")
        elif stop:
            known.stops = True
            session.stops_at = NOW
            cause = "it asked to stop, and its leaderships move away first"
            self.note(number, "begins its controlled shutdown", cause, **facts)
        elif fence:
            if not known.fenced:
                self.is_fenced(number, "it asked to be fenced")
            known.fenced = True
        elif known.fenced and offset >= known.epoch and not known.stops:
            known.fenced = False
            cause = "it asked for it, and has applied the metadata log past its own registration"
            self.note(number, "is unfenced", cause, **facts, fenced=0, metadata_applied=offset)
        if stopped:
            known.fenced, known.session = True, None
        return stopped

    def die(self) -> None:
        """Evidence that a process is gone, perhaps of an earlier one."""
        number = self.a_broker()
        known = self.plain.get(number)
        epoch = 7 if known is None else known.epoch - self.draw(st.sampled_from([0, 0, 1]))
        is_it = known is not None and known.epoch == epoch
        if known is not None and is_it and not known.fenced:
            self.is_fenced(number, "its port refuses")
        result = self.real.fence(number, epoch)
        self.real.append(result)
        assert result.response == (known is not None and is_it and not known.fenced)
        if known is not None and is_it:
            known.fenced, known.session = True, None

    def unregister(self) -> None:
        number = self.a_broker()
        response = self.real.send(UnregisterBrokerRequest(broker_id=number))
        known = self.plain.pop(number, None)
        if known is not None:
            self.note(number, "is unregistered", "UnregisterBroker asked for it", broker_epoch=known.epoch)
        assert response.error_code == (ErrorCode.BROKER_ID_NOT_REGISTERED if known is None else ErrorCode.NONE)

    def time(self) -> None:
        self.real.now_ms += self.draw(st.sampled_from([1, TIMEOUT_MS - 1, TIMEOUT_MS, TIMEOUT_MS + 1]))

    def look(self) -> None:
        """Sessions that are over are noticed."""
        due = [it.due_ms(self.real.now_ms) for it in self.plain.values() if not it.fenced]
        state = self.real.controller._state(0, self.real.now_ms)
        assert next_session_check_ms(state) == min(due, default=None)
        stale = [each for each, it in self.plain.items() if not it.fenced and not it.is_alive(self.real.now_ms)]
        last_ms = {each: it.session.last_ms for each, it in self.plain.items() if it.session is not None}
        for each in sorted(stale, key=lambda each: (last_ms.get(each, -1), each)):
            silent = f" for {self.real.now_ms - last_ms[each]} ms" if each in last_ms else ""
            self.is_fenced(each, f"its session of {TIMEOUT_MS} ms expired, no heartbeat{silent}")
        self.real.work()
        for each in stale:
            self.plain[each].fenced, self.plain[each].session = True, None

    def create_topic(self) -> None:
        if len(self.plain) == len(BROKERS) and not all(it.fenced for it in self.plain.values()):
            self.real.create_topic(f"t{len(self.real.image.topics.by_name)}", list(self.draw(st.permutations(BROKERS))))

    def fail_over(self) -> None:
        """Another controller: it knows no session, and gives each unfenced broker a new one."""
        self.terms += 1
        self.real.fail_over(self.terms)
        for it in self.plain.values():
            it.session = None if it.fenced else Session(it.epoch, self.real.now_ms)

    def check(self) -> None:
        self.check_notes()
        image = self.real.image.cluster.brokers
        found = {
            number: (it.incarnation_id, it.epoch, it.fenced, it.in_controlled_shutdown) for number, it in image.items()
        }
        assert found == {number: (it.incarnation, it.epoch, it.fenced, it.stops) for number, it in self.plain.items()}
        for number, it in self.plain.items():
            session = self.real.controller.sessions.get(number)
            valid = self.real.controller.sessions.is_valid(number, it.epoch, self.real.now_ms)
            assert valid == it.is_alive(self.real.now_ms)
            assert (session is None) == (it.session is None)
        for topic in self.real.image.topics.by_name.values():
            for partition in topic.partitions.values():
                fenced = {number for number in BROKERS if number not in self.plain or self.plain[number].fenced}
                assert partition.leader == NO_LEADER or partition.leader not in fenced, "no fenced broker leads"


STEPS = ["register", "register", *["heartbeat"] * 6, "die", "unregister", "time", "look", "create_topic", "fail_over"]


@pytest.mark.feature("MB-02", "MB-03", "MB-04", "MB-05")
@settings(max_examples=examples(100))
@given(st.data())
def test_brokers_are_fenced_and_stopped_as_the_plain_ones(data: st.DataObject) -> None:
    brokers = Brokers(data.draw)
    for number in BROKERS[: data.draw(st.integers(0, 3))]:
        brokers.real.start(number)
        epoch = brokers.real.epochs[number]
        session = Session(epoch, brokers.real.now_ms, len(brokers.real.log) - 1)
        brokers.plain[number] = PlainBroker(brokers.real.incarnations[number], epoch, fenced=False, session=session)
    brokers.noted = len(brokers.real.decisions.since(0))
    for _ in range(data.draw(st.integers(2, 25))):
        getattr(brokers, data.draw(st.sampled_from(STEPS)))()
        brokers.check()
