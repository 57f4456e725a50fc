"""One request in flight to each peer, and the backoff of a peer after a failure.

An answer counts only if it is to the request in flight: `reset`, done on every change of role, makes all
earlier ones strangers.
"""

from __future__ import annotations

from barnabas.kraft.raft.messages import Request
from barnabas.kraft.raft.ready import Send

MAX_BACKOFF_DOUBLINGS = 4
"""With Kafka's backoff of 20 ms, a peer that is down is asked every 320 ms."""
PROMPT_ANSWERS = 500
"""An observer that looks for the leader takes so many useless answers, from all peers together, before it backs off.
That is some seconds: an election is over by then, even one for which the voters had to wait out the fetch timeout,
unless they cannot agree at all."""


class Requests:
    """Mutable; owned by `Raft`. All times are its `now_ms`."""

    def __init__(self, retry_backoff_ms: int, request_timeout_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._last_id = 0
        self._in_flight: dict[int, tuple[int, int]] = {}  # peer -> (request id, when it counts as lost)
        self._resting_until_ms: dict[int, int] = {}
        self._failures: dict[int, int] = {}  # peer -> requests in a row without an answer
        self._of_no_use = 0  # useless answers since the last useful one
        self._sends: list[Send] = []

    def is_free(self, peer_id: int, now_ms: int) -> bool:
        """Nothing is in flight to the peer and it is not backing off."""
        return self.free_at_ms(peer_id, now_ms) <= now_ms

    def free_at_ms(self, peer_id: int, now_ms: int) -> int:
        """Time at which `is_free` will be true at the latest."""
        if peer_id in self._in_flight:
            return max(self._in_flight[peer_id][1], now_ms)
        return max(self._resting_until_ms.get(peer_id, now_ms), now_ms)

    def free_times_ms(self, peer_ids: tuple[int, ...], now_ms: int) -> list[int]:
        """Times at which these peers become free; a peer that is free now waits for something else than time."""
        times = (self.free_at_ms(peer_id, now_ms) for peer_id in peer_ids)
        return [time for time in times if time > now_ms]

    def send_if_free(self, peer_id: int, request: Request, now_ms: int) -> bool:
        if not self.is_free(peer_id, now_ms):
            return False
        self._last_id += 1
        self._in_flight[peer_id] = (self._last_id, now_ms + self._request_timeout_ms)
        self._sends.append(Send(peer_id, self._last_id, request))
        return True

    def take_sends(self) -> tuple[Send, ...]:
        """Requests to send since the last call."""
        sends, self._sends = self._sends, []
        return tuple(sends)

    def settle(self, peer_id: int, request_id: int) -> bool:
        """An outcome arrived; False if it is no longer waited for."""
        if self._in_flight.get(peer_id, (0, 0))[0] != request_id:
            return False
        del self._in_flight[peer_id]
        self._resting_until_ms.pop(peer_id, None)
        return True

    def answered(self, peer_id: int) -> None:
        """The peer is alive: its backoff starts over."""
        self._failures.pop(peer_id, None)

    def failed(self, peer_id: int, now_ms: int) -> None:
        """There was no answer: back off, longer each time in a row."""
        failures = self._failures.get(peer_id, 0)
        self._failures[peer_id] = failures + 1
        rest_ms = self._retry_backoff_ms << min(failures, MAX_BACKOFF_DOUBLINGS)
        self._resting_until_ms[peer_id] = now_ms + rest_ms

    def rest(self, peer_id: int, now_ms: int) -> None:
        """Back off from a peer whose answer was useless."""
        self._resting_until_ms[peer_id] = now_ms + self._retry_backoff_ms

    def rest_longer(self, peer_id: int, now_ms: int) -> None:
        """Like `rest`; but after many useless answers from all peers the backoff grows."""
        self._of_no_use += 1
        doublings = max(self._of_no_use - PROMPT_ANSWERS, 0)
        self._resting_until_ms[peer_id] = now_ms + (self._retry_backoff_ms << min(doublings, MAX_BACKOFF_DOUBLINGS))

    def was_of_use(self) -> None:
        """An answer was useful."""
        self._of_no_use = 0

    def expire(self, now_ms: int) -> None:
        """Give up requests that were not answered in time."""
        for peer_id in [peer for peer, (_, lost_ms) in self._in_flight.items() if lost_ms <= now_ms]:
            del self._in_flight[peer_id]

    def any_in_flight(self) -> bool:
        return bool(self._in_flight)

    def reset(self) -> None:
        self._in_flight.clear()
        self._resting_until_ms.clear()
        self._sends.clear()
