"""Brokers that were not let in: told as decisions, though they change nothing.

Whoever is refused asks again and again, so that the same is told ever more rarely; and anybody may ask, so that these
decisions push out no others (they are routine), and little is kept of them.
"""

from __future__ import annotations

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.primitives import uuid_to_string
from runtime.decisions import DecisionKind, Notes, cut

MAX_KEPT = 100
"""Of so many processes it is known that they were refused before."""

_Refused = tuple[int, bytes, ErrorCode]


class RefusedRegistrations:
    """Who was refused how often, since this controller started."""

    def __init__(self) -> None:
        self._times: dict[_Refused, int] = {}

    def notes(self, request: BrokerRegistrationRequest, error: KafkaError) -> Notes:
        """What is to be told of one refusal: of many in a row the first, the second, the fourth …"""
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
