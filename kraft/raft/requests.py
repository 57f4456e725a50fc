"""One request in flight to each peer, and how long to leave a peer alone after a failure.

An answer counts only if it is to the request in flight: `reset`, done on every change of role, makes all
earlier ones strangers.
"""

from __future__ import annotations

from kraft.raft.messages import Request
from kraft.raft.ready import Send

MAX_BACKOFF_DOUBLINGS = 4
"""A peer that is down is asked every 320 ms, with Kafka's backoff of 20 ms."""
PROMPT_ANSWERS = 500
"""An observer that looks for the leader takes so many answers of no use, from all peers together, before it asks more
slowly. That is some seconds: an election is over by then, also one for which the voters had to wait until a leader was
silent for long enough, unless they cannot agree at all."""


class Requests:
    """Mutable; owned by `Raft`. All times are its `now_ms`."""

    def __init__(self, retry_backoff_ms: int, request_timeout_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._last_id = 0
        self._in_flight: dict[int, tuple[int, int]] = {}  # peer -> (request id, when it counts as lost)
        self._resting_until_ms: dict[int, int] = {}
        self._failures: dict[int, int] = {}  # peer -> how often in a row there was no answer
        self._of_no_use = 0  # answers since the last one that was of use
        self._sends: list[Send] = []

    def is_free(self, peer_id: int, now_ms: int) -> bool:
        """Nothing is under way to the peer and it is not resting."""
        return self.free_at_ms(peer_id, now_ms) <= now_ms

    def free_at_ms(self, peer_id: int, now_ms: int) -> int:
        """When `is_free` will be true at the latest."""
        if peer_id in self._in_flight:
            return max(self._in_flight[peer_id][1], now_ms)
        return max(self._resting_until_ms.get(peer_id, now_ms), now_ms)

    def free_times_ms(self, peer_ids: tuple[int, ...], now_ms: int) -> list[int]:
        """When to look at these peers again; a peer that is free now waits for something else than time."""
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
        """What is to leave since the last call."""
        sends, self._sends = self._sends, []
        return tuple(sends)

    def settle(self, peer_id: int, request_id: int) -> bool:
        """An outcome arrived; False if nobody waits for it any more."""
        if self._in_flight.get(peer_id, (0, 0))[0] != request_id:
            return False
        del self._in_flight[peer_id]
        self._resting_until_ms.pop(peer_id, None)
        return True

    def answered(self, peer_id: int) -> None:
        """The peer lives: the next failure counts as the first."""
        self._failures.pop(peer_id, None)

    def failed(self, peer_id: int, now_ms: int) -> None:
        """There was no answer: leave the peer alone, for longer each time in a row."""
        failures = self._failures.get(peer_id, 0)
        self._failures[peer_id] = failures + 1
        rest_ms = self._retry_backoff_ms << min(failures, MAX_BACKOFF_DOUBLINGS)
        self._resting_until_ms[peer_id] = now_ms + rest_ms

    def rest(self, peer_id: int, now_ms: int) -> None:
        """Leave the peer, which answered something of no use, alone for the retry backoff."""
        self._resting_until_ms[peer_id] = now_ms + self._retry_backoff_ms

    def rest_longer(self, peer_id: int, now_ms: int) -> None:
        """As `rest`; but once nobody has answered anything of use for a while, for longer and longer."""
        self._of_no_use += 1
        doublings = max(self._of_no_use - PROMPT_ANSWERS, 0)
        self._resting_until_ms[peer_id] = now_ms + (self._retry_backoff_ms << min(doublings, MAX_BACKOFF_DOUBLINGS))

    def was_of_use(self) -> None:
        """An answer helped."""
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
