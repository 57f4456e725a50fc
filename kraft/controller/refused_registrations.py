"""Decision notes of refused broker registrations. They change nothing, but an operator has to see them.

A refused broker asks again and again, so repetitions are noted ever more rarely. Anybody may ask, so these notes are
routine (they push out no others), and only the latest refusals are remembered.
"""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.decisions import DecisionKind, Notes, cut

MAX_KEPT = 100
"""Refused processes that are remembered."""

_Refused = tuple[int, bytes, ErrorCode]


class RefusedRegistrations:
    """Numbers of refusals by process, since this controller started."""

    def __init__(self) -> None:
        self._times: dict[_Refused, int] = {}

    def notes(self, request: BrokerRegistrationRequest, error: KafkaError) -> Notes:
        """Notes of one refusal: of many in a row only the first, the second, the fourth … is noted."""
        key = (request.broker_id, bytes(request.incarnation_id), error.code)
        times = self._times.pop(key, 0) + 1
        if len(self._times) >= MAX_KEPT:
            del self._times[next(iter(self._times))]
        self._times[key] = times
        notes = Notes()
        if times & (times - 1) == 0:
            again = "" if times == 1 else f", its attempt {times}"
            where = ", ".join(f"{it.host}:{it.port}" for it in request.listeners[:2])
            notes.note(
                DecisionKind.FENCING,
                f"broker {request.broker_id}",
                f"a process at {cut(where) or 'no listener'} may not be broker {request.broker_id}{again}",
                also=("quorum",),
                cause=f"{error.code.name}, {error.message}",
                routine=True,
                error=error.code.name,
                incarnation=uuid_to_string(request.incarnation_id),
                times=times,
            )
        return notes
